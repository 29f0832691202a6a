"""collect_garbage: shards without references → deleted, then forgotten.

Order: the object is deleted first. A crash in between leaves a shard the state still lists, which
the redelivery deletes again, harmlessly, and forgets. The other order could leak objects.
"""

from __future__ import annotations

from dormouse.messages import GarbageCandidates, Outgoing
from dormouse.model.names import shard_path
from dormouse.model.transactions import ForgetShards
from dormouse.policy.garbage import collectable, waiting_seconds
from dormouse.ports import Services

MAX_DELAY_SECONDS = 15 * 60
"""The longest SQS delays a message; a longer wait is several messages."""


def collect_garbage(services: Services, message: GarbageCandidates) -> list[Outgoing]:
    """Delete the candidates whose delay is over; send the others round again."""
    table = services.table(message.table_id)
    if table is None:
        return []
    store = services.store(table)
    state = store.current()
    if message.generation != state.generation:
        return []
    now_ms, delay_seconds = services.clock.now_ms(), table.properties.gc_delay_seconds
    due, waiting = collectable(state, message.shards, now_ms, delay_seconds)
    if due:
        services.storage.delete([shard_path(table.id, shard) for shard in due])
        # Rejected if another delivery forgot some meanwhile; what is left, the sweep finds again.
        store.commit(ForgetShards(tuple(due)), generation=state.generation)
    if not waiting:
        return []
    left = max(waiting_seconds(state, shard, now_ms, delay_seconds) for shard in waiting)
    again = GarbageCandidates(table.id, state.generation, tuple(waiting))
    return [Outgoing("gc-candidates", again, min(left, MAX_DELAY_SECONDS))]
