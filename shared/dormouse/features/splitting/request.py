"""split_partitions: split leaves on request, not because the table changed.

If a message is lost, the next planning requests the split of a leaf with too many rows again. The
message of a forced split is sent again when the request is redelivered.
"""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.planning.plan_table import splits
from dormouse.features.planning.splitting import FEWEST_ROWS, fewest_rows, splits_due
from dormouse.features.requests.outcomes import TABLE_RESET, JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.jobs.retry_policy import backoff_ms
from dormouse.jobs.tracking import OUTCOME_UNKNOWN
from dormouse.messages.replies import Counts
from dormouse.messages.requests import SplitPartitions
from dormouse.messages.stages import OutboundMessage
from dormouse.model.state import TableState
from dormouse.ports.services import Services
from dormouse.stored.paths import split_job_id
from dormouse.tables.table import Table


class SplitWork(StoredWork, frozen=True, tag="split"):
    """Leaf partitions that are to be split, in this generation of the table."""

    generation: int
    partitions: tuple[str, ...]
    forced: bool = False

    @property
    def job_ids(self) -> list[str]:
        """Return the id of the job of each leaf."""
        return [split_job_id(partition) for partition in self.partitions]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the splits of those that are still leaves."""
        state = services.store(table).current()
        if state.generation != self.generation:
            return []
        tree = state.partitions
        leaves = [p for p in self.partitions if p in tree and tree.get(p).is_leaf]
        return list(splits(table, state, leaves, forced=self.forced))

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each split."""
        for partition in self.partitions:
            yield self._outcome(check, partition)

    def _outcome(self, check: JobCheck, partition: str) -> JobOutcome:
        job_id, tree = split_job_id(partition), check.state.partitions
        if check.state.generation != self.generation:
            return JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
        if partition not in tree or not tree.get(partition).is_leaf:
            return JobOutcome(self.kind, job_id, counts=Counts(finished=1, partitions=1))
        if check.state.rows_in(partition) < fewest_rows(check.table.properties, forced=self.forced):
            return JobOutcome(self.kind, job_id, "failed", "not split: it has too few rows by now")
        known = check.record(job_id)
        if (
            known is not None
            and known.state == "finished"
            and known.reason not in ("", OUTCOME_UNKNOWN)
        ):
            rests = not self.forced and check.now_ms - known.updated_ms < backoff_ms(known.attempts)
            if rests or known.updated_ms >= check.requested_ms:
                return JobOutcome(self.kind, job_id, "failed", known.reason)
        since = known if known is not None and known.updated_ms >= check.requested_ms else None
        return check.unfinished(self.kind, job_id, since)


def split_partitions(services: Services, request: SplitPartitions) -> RequestResult:
    """Request the splits of a partition, or of all that are due, of a table online or offline.

    Raises:
        NotFoundError: no such table or partition exists, or the table is being deleted.
        InvalidRequestError: the partition is split already, or has too few rows.
    """
    table = resolve_live_table(services, request)
    state = services.store(table).current()
    fewest = fewest_rows(table.properties, forced=request.forced)
    if request.partition:
        _check_leaf(state, request.partition, fewest)
        wanted = [request.partition]
    else:
        wanted = splits_due(state, fewest)
    messages = list(splits(table, state, wanted, forced=request.forced))
    if not messages:
        return RequestResult()
    return RequestResult(messages, SplitWork(state.generation, tuple(wanted), request.forced))


def _check_leaf(state: TableState, partition: str, fewest: int) -> None:
    if partition not in state.partitions:
        raise NotFoundError(
            f"there is no partition {partition!r}", hint="a report of the table shows its leaves"
        )
    if not state.partitions.get(partition).is_leaf:
        raise InvalidRequestError(f"partition {partition!r} is split already")
    rows = state.rows_in(partition)
    if rows < fewest:
        enough = fewest == FEWEST_ROWS
        raise InvalidRequestError(
            f"partition {partition!r} has {rows:,} rows, and is split from {fewest:,} on",
            hint="" if enough else "a forced split ignores the number of rows",
        )
