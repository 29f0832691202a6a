"""collect_garbage: delete the unreferenced shards whose delay is over, on request."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.garbage.collect_garbage import candidates, garbage_job_id, together
from dormouse.features.garbage.garbage import collectable
from dormouse.features.requests.outcomes import EMPTIED, End, Look
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Work
from dormouse.messages import OutboundMessage
from dormouse.ports import Services
from dormouse.replies import Counts
from dormouse.requests import CollectGarbage
from dormouse.tables.table import Table


class GarbageWork(Work, frozen=True, tag="garbage"):
    """Shards that are to be deleted."""

    generation: int
    shards: tuple[str, ...]

    @property
    def job_ids(self) -> list[str]:
        """Return the id of the job of each batch of shards."""
        return [garbage_job_id(shards) for shards in together(self.shards)]

    def messages_again(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of shards that are not deleted yet."""
        state = services.store(table).current()
        shards = [shard for shard in self.shards if shard in state.unreferenced]
        return candidates(table, state, shards) if state.generation == self.generation else []

    def ends(self, look: Look) -> Iterator[End]:
        """Yield the outcome or progress of each batch of shards."""
        for shards in together(self.shards):
            job_id = garbage_job_id(shards)
            if look.state.generation != self.generation:
                yield End(self.kind, job_id, "failed", EMPTIED)
            elif any(shard in look.state.shards for shard in shards):
                yield look.pending(self.kind, job_id, look.record(job_id))
            else:
                yield End(self.kind, job_id, counts=Counts(finished=1, shards=len(shards)))


def collect_garbage(services: Services, request: CollectGarbage) -> Begun:
    """Request the deletion of the shards whose delay is over, of a table online or offline.

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
    work = GarbageWork(state.generation, tuple(due))
    return Begun(candidates(table, state, due), work, Counts(size_bytes=size_bytes))
