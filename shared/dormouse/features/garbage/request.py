"""collect_garbage: delete the unreferenced shards whose delay is over, on request."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.garbage.collect_garbage import candidates, garbage_job_id, together
from dormouse.features.garbage.garbage import collectable, unpinned, unpublished
from dormouse.features.requests.outcomes import TABLE_RESET, JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.messages.replies import Counts
from dormouse.messages.requests import CollectGarbage
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import Services
from dormouse.tables.table import Table


class GarbageWork(StoredWork, frozen=True, tag="garbage"):
    """Shards that are to be deleted."""

    generation: int
    shards: tuple[str, ...]

    @property
    def job_ids(self) -> list[str]:
        """Return the id of the job of each batch of shards."""
        return [garbage_job_id(shards) for shards in together(self.shards)]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of shards that are not deleted yet."""
        state = services.store(table).current()
        shards = [shard for shard in self.shards if shard in state.unreferenced]
        return candidates(table, state, shards) if state.generation == self.generation else []

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each batch of shards."""
        for shards in together(self.shards):
            job_id = garbage_job_id(shards)
            if check.state.generation != self.generation:
                yield JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
            elif any(shard in check.state.shards for shard in shards):
                yield check.unfinished(self.kind, job_id, check.record(job_id))
            else:
                yield JobOutcome(self.kind, job_id, counts=Counts(finished=1, shards=len(shards)))


def collect_garbage(services: Services, request: CollectGarbage) -> RequestResult:
    """Request the deletion of the shards whose delay is over, of a table online or offline.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = resolve_live_table(services, request)
    store = services.store(table)
    state = store.current()
    due, _ = collectable(
        state, state.unreferenced, services.clock.now_ms(), table.properties.gc_delay_seconds
    )
    due = unpublished(services, table, state, unpinned(store, state, due))
    if not due:
        return RequestResult()
    size_bytes = sum(state.shards[shard].size_bytes for shard in due)
    work = GarbageWork(state.generation, tuple(due))
    return RequestResult(candidates(table, state, due), work, Counts(size_bytes=size_bytes))
