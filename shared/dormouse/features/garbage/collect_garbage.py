"""collect_garbage: delete the objects of unreferenced shards, then remove them from the state.

The shards that are due are chosen before the pins are read; those of pinned versions stay, and are
candidates again once these are unpinned. So do those that a restore referenced meanwhile. Then the
record of what is published is read: what readers of Iceberg may need stays, and comes again.

Order of writes: object, then state. A crash in between leaves a shard that the state still lists;
the redelivery deletes its object again, which is idempotent. The other order could leak objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from dormouse.features.garbage.garbage import (
    collectable,
    unpinned,
    unpublished,
    waiting_seconds,
)
from dormouse.jobs.tracking import finalise, record, tracked
from dormouse.messages.stages import GarbageCandidates, OutboundMessage
from dormouse.model.jobs.job_events import Finished, Started, TrackedJob
from dormouse.model.state import TableState
from dormouse.model.transactions import DeleteShards
from dormouse.ports.services import Services
from dormouse.state_store import Rejected
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table

MAX_DELAY_SECONDS = 15 * 60
"""The longest SQS delays a message; a longer wait is several messages."""


CANDIDATES_PER_MESSAGE = 1000


def candidates(table: Table, state: TableState, shards: Sequence[str]) -> list[OutboundMessage]:
    """Return the messages that name these shards as candidates, with no delay."""
    return [
        OutboundMessage("gc-candidates", GarbageCandidates(table.id, state.generation, some))
        for some in together(shards)
    ]


def together(shards: Sequence[str]) -> list[tuple[str, ...]]:
    """Return shards in the batches of one message each."""
    starts = range(0, len(shards), CANDIDATES_PER_MESSAGE)
    return [tuple(shards[start : start + CANDIDATES_PER_MESSAGE]) for start in starts]


def collect_garbage(services: Services, message: GarbageCandidates) -> list[OutboundMessage]:
    """Delete the candidates whose delay is over; return a delayed message of the others."""
    table = services.table(message.table_id)
    if table is None:
        return []
    store = services.store(table)
    state = store.current()
    job_id = garbage_job_id(message.shards)
    if message.generation != state.generation:
        finalise(services, table.id, job_id)
        return []
    now_ms, delay_seconds = services.clock.now_ms(), table.properties.gc_delay_seconds
    due, waiting = collectable(state, message.shards, now_ms, delay_seconds)
    due = unpinned(store, state, due)
    free = unpublished(services, table, state, due)
    held = [shard for shard in due if shard not in set(free)]
    if not free:
        finalise(services, table.id, job_id)
    elif not _delete(services, table, state, job_id, free):
        return [OutboundMessage("gc-candidates", message)]
    if not waiting and not held:
        return []
    seconds = [waiting_seconds(state, shard, now_ms, delay_seconds) for shard in waiting]
    left = MAX_DELAY_SECONDS if held else max(seconds)
    again = GarbageCandidates(table.id, state.generation, (*waiting, *held))
    return [OutboundMessage("gc-candidates", again, min(left, MAX_DELAY_SECONDS))]


def garbage_job_id(shards: Sequence[str]) -> str:
    """Return the id of the job of a message, the same for each of its deliveries."""
    return f"garbage-{blake2b(' '.join(shards).encode(), digest_size=16).hexdigest()}"


def _delete(
    services: Services, table: Table, state: TableState, job_id: str, due: list[str]
) -> bool:
    """Delete shards and remove them from the state.

    Return False to retry, if another delivery removed some of them meanwhile.
    """
    job = TrackedJob(table.id, job_id, "garbage")
    started = Started(
        subject=f"{len(due)} shards",
        files=len(due),
        size_bytes=sum(state.shards[shard].size_bytes for shard in due),
    )
    with tracked(services, job, started):
        services.storage.delete([shard_path(table.id, shard) for shard in due])
        deletion = DeleteShards(tuple(due))
        (outcome,) = services.store(table).commit(deletion, generation=state.generation)
        if isinstance(outcome, Rejected):
            return False
    record(services, job, Finished(files=len(due)))
    return True
