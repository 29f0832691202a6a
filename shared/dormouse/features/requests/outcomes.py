"""The outcomes of a request's jobs: which have ended, and how.

The state of the table decides. A tracker record may be lost, or be that of an earlier run, so it is
used only for what the state does not say. An unknown outcome is never reported as success. A job
that failed and will be retried has not ended. A job that is no longer retried is unfinished, not
failed, since a person may redrive it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dormouse.jobs.retry_policy import MAX_RECEIVES
from dormouse.jobs.tracking import OUTCOME_UNKNOWN
from dormouse.messages.replies import Counts, JobState
from dormouse.model.state import TableState
from dormouse.ports.services import JobRecord, Services
from dormouse.tables.table import Table

MAX_RUN_MS = 12 * 60 * 60 * 1000
"""No run takes longer, even on Spark. A run without a newer record after this time crashed."""
RECORDING_MS = 20 * 60 * 1000
"""After this time, a run that committed has recorded its outcome, or crashed before it could."""
REDELIVERY_MS = 2 * 60 * 60 * 1000
"""After this time, the message of a crashed run was redelivered, and its work finished."""
TABLE_RESET = "the table was reset meanwhile"
UNKNOWN_OUTCOME = "the job has ended, and its outcome is unknown"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a job, or of one of its files. `state` is None if all of it was done.

    While `is_pending`, the outcome may still change, so it is worth waiting for.
    """

    kind: str
    id: str
    state: JobState | None = None
    reason: str = ""
    is_pending: bool = False
    counts: Counts = Counts()

    @property
    def total(self) -> Counts:
        """Its share of the counts of its request; a file of a job is not counted as a job."""
        if self.kind == "file":
            return self.counts
        failed, unfinished = int(self.state == "failed"), int(self.state == "unfinished")
        return self.counts + Counts(failed=failed, unfinished=unfinished)


@dataclass(frozen=True)
class JobCheck:
    """One check of the jobs of the request stored under `key`; it reads the state once."""

    services: Services
    table: Table
    key: str
    requested_ms: int
    now_ms: int

    @cached_property
    def state(self) -> TableState:
        """The state of the table, read at its first use."""
        return self.services.store(self.table).current()

    def record(self, job_id: str) -> JobRecord | None:
        """Return the newest record of a job."""
        return self.services.tracker.get(self.table.id, job_id)

    def record_since_request(self, job_id: str) -> JobRecord | None:
        """Return the newest record of a job if it is newer than the request.

        An earlier job may have had the same id.
        """
        found = self.record(job_id)
        return found if found is not None and found.updated_ms >= self.requested_ms else None

    def unfinished(self, kind: str, job_id: str, known: JobRecord | None) -> JobOutcome:
        """Return that a job is not done; it is pending while its message may be redelivered."""
        is_pending = known is None or not self._is_dead_letter(known)
        return JobOutcome(kind, job_id, "unfinished", _not_yet(known), is_pending)

    def _is_dead_letter(self, known: JobRecord) -> bool:
        """Return whether the job's message has probably been received for the last time."""
        if known.attempts < MAX_RECEIVES:
            return False
        silent_ms = self.now_ms - known.updated_ms
        return known.state == "failed" or (known.state == "running" and silent_ms > MAX_RUN_MS)

    def ended(
        self, kind: str, job_id: str, known: JobRecord | None, done: Callable[[], JobOutcome]
    ) -> JobOutcome:
        """Return the outcome of a job that the state no longer has, as its record says.

        `done` makes the outcome of a job that was done. Without a final record, the job may still
        be finished by a redelivery; after `REDELIVERY_MS`, its outcome remains unknown.
        """
        if known is not None and known.state == "finished" and known.reason != OUTCOME_UNKNOWN:
            return done()
        if known is not None and known.state == "failed":
            return JobOutcome(kind, job_id, "failed", known.reason)
        since_ms = known.updated_ms if known is not None else self.requested_ms
        if self.now_ms - since_ms < REDELIVERY_MS:
            return self.unrecorded(kind, job_id, known)
        return JobOutcome(kind, job_id, "failed", UNKNOWN_OUTCOME)

    def may_record(self, known: JobRecord | None) -> bool:
        """Return whether the run that committed may still record its outcome."""
        is_running = known is not None and known.state == "running"
        return is_running and known is not None and self.now_ms - known.updated_ms < RECORDING_MS

    def unrecorded(self, kind: str, job_id: str, known: JobRecord | None) -> JobOutcome:
        """Return that a job may be done, but that its outcome is not recorded yet."""
        return JobOutcome(kind, job_id, "unfinished", _not_yet(known), is_pending=True)


def _not_yet(known: JobRecord | None) -> str:
    """Return the reason why a job is not done."""
    if known is None or not known.attempts:
        return "not finished yet; it has not started, and may still be done"
    times = f"not finished yet after {known.attempts} attempts, and may still be done"
    return f"{times}: {known.reason}" if known.reason else times
