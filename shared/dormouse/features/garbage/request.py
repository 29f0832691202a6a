"""collect_garbage: what nothing references goes now, not when its own message comes."""

from __future__ import annotations

from dormouse.features.garbage.collect_garbage import candidates
from dormouse.features.garbage.garbage import collectable
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Garbage
from dormouse.ports import Services
from dormouse.replies import Counts
from dormouse.requests import CollectGarbage


def collect_garbage(services: Services, request: CollectGarbage) -> Begun:
    """Have the shards deleted whose delay is over, also of a table that is offline.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = living(services, request)
    state = services.store(table).current()
    due, _ = collectable(
        state, state.unreferenced, services.clock.now_ms(), table.properties.gc_delay_seconds
    )
    if not due:
        return Begun()
    size_bytes = sum(state.shards[shard].size_bytes for shard in due)
    work = Garbage(state.generation, tuple(due))
    return Begun(candidates(table, state, due), work, Counts(size_bytes=size_bytes))
