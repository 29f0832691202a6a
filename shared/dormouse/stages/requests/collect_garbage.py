"""collect_garbage: what nothing references goes now, not when its own message comes."""

from __future__ import annotations

from dormouse.messages import Outgoing
from dormouse.policy.garbage import collectable
from dormouse.ports import Services
from dormouse.requests import CollectGarbage
from dormouse.stages.collect_garbage import candidates
from dormouse.stages.requests.named import living


def collect_garbage(services: Services, request: CollectGarbage) -> list[Outgoing]:
    """Give the messages for the shards whose delay is over, also of a table that is offline.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = living(services, request)
    state = services.store(table).current()
    due, _ = collectable(
        state, state.unreferenced, services.clock.now_ms(), table.properties.gc_delay_seconds
    )
    return candidates(table, state, due)
