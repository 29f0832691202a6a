"""The outcome of a request's jobs: which have ended, and how.

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
from dormouse.model.state import TableState
from dormouse.ports import JobRecord, Services
from dormouse.replies import Counts, JobState
from dormouse.tables.table import Table

SILENT_MS = 12 * 60 * 60 * 1000
"""No run takes longer, not even on Spark: one without a later record has crashed."""
TELLING_MS = 20 * 60 * 1000
"""After this time, a run that committed has recorded it, or crashed before it could."""
LOST_MS = 2 * 60 * 60 * 1000
"""After this time, the message of a crashed run was delivered again, and finished its work."""
EMPTIED = "the table was emptied since"
UNKNOWN = "it is over, and nothing tells how it ended"


@dataclass(frozen=True, slots=True)
class End:
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
class Look:
    """One check of the jobs of a request; it reads the state once."""

    services: Services
    table: Table
    key: str
    asked_ms: int
    now_ms: int

    @cached_property
    def state(self) -> TableState:
        """The state of the table, read once."""
        return self.services.store(self.table).current()

    def record(self, job_id: str) -> JobRecord | None:
        """Return the last record of a job."""
        return self.services.tracker.get(self.table.id, job_id)

    def record_since(self, job_id: str) -> JobRecord | None:
        """Return the last record of a job if it is newer than the request.

        A job before the request may have had the same id.
        """
        found = self.record(job_id)
        return found if found is not None and found.updated_ms >= self.asked_ms else None

    def pending(self, kind: str, job_id: str, known: JobRecord | None) -> End:
        """Return that a job is not done, and whether its message may be delivered again."""
        is_pending = known is None or not self._was_given_up(known)
        return End(kind, job_id, "unfinished", _not_yet(known), is_pending)

    def _was_given_up(self, known: JobRecord) -> bool:
        """Return whether the job's message seems to have been delivered for the last time."""
        if known.attempts < MAX_RECEIVES:
            return False
        silent_ms = self.now_ms - known.updated_ms
        return known.state == "failed" or (known.state == "running" and silent_ms > SILENT_MS)

    def over(self, kind: str, job_id: str, known: JobRecord | None, done: Callable[[], End]) -> End:
        """Return the outcome of a job that the state no longer has, by its record."""
        if known is not None and known.state == "finished" and known.reason != OUTCOME_UNKNOWN:
            return done()
        if known is not None and known.state == "failed":
            return End(kind, job_id, "failed", known.reason)
        since_ms = known.updated_ms if known is not None else self.asked_ms
        if self.now_ms - since_ms < LOST_MS:
            return self.telling(kind, job_id, known)
        return End(kind, job_id, "failed", UNKNOWN)

    def is_telling(self, known: JobRecord | None) -> bool:
        """Return whether the run that committed may still record its outcome."""
        is_running = known is not None and known.state == "running"
        return is_running and known is not None and self.now_ms - known.updated_ms < TELLING_MS

    def telling(self, kind: str, job_id: str, known: JobRecord | None) -> End:
        """Return that a job may be done, but its outcome is not recorded yet."""
        return End(kind, job_id, "unfinished", _not_yet(known), is_pending=True)


def _not_yet(known: JobRecord | None) -> str:
    """Return the reason why a job is not done, with what is known of it."""
    if known is None or not known.attempts:
        return "not finished yet; it has not begun, and may still be done"
    times = f"not finished yet after {known.attempts} attempts, and may still be done"
    return f"{times}: {known.reason}" if known.reason else times
