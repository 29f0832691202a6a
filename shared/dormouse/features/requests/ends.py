"""How the jobs of a request stand: which have ended, and how.

What is stored decides: a record of the tracker may be lost, or be that of an earlier run, so it is
only asked for what the state of the table does not say. What cannot be told is no success. A job
that failed and will be tried again has not ended; one that nobody seems to try any more is called
unfinished, never failed, for a person may send it back.
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
"""No run takes so long, not Spark's either: one that began earlier and told no more has died."""
TELLING_MS = 20 * 60 * 1000
"""After so long, a run that committed has told so, or died before it could."""
LOST_MS = 2 * 60 * 60 * 1000
"""After so long, the message of a run that died has come again and found what was left of it."""
EMPTIED = "the table was emptied since"
UNKNOWN = "it is over, and nothing tells how it ended"


@dataclass(frozen=True, slots=True)
class End:
    """How a job stands, or a file of one. `state` is empty if all of it was done.

    While `is_pending`, it is worth while to wait.
    """

    kind: str
    id: str
    state: JobState | None = None
    reason: str = ""
    is_pending: bool = False
    counts: Counts = Counts()

    @property
    def total(self) -> Counts:
        """What it adds to the counts of its request; a file of a job is no job."""
        if self.kind == "file":
            return self.counts
        failed, unfinished = int(self.state == "failed"), int(self.state == "unfinished")
        return self.counts + Counts(failed=failed, unfinished=unfinished)


@dataclass(frozen=True)
class Look:
    """One look at the work of a request."""

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
        """Return what was told of a job last."""
        return self.services.tracker.get(self.table.id, job_id)

    def record_since(self, job_id: str) -> JobRecord | None:
        """Return what was told since the request of a job whose id an earlier one may have had."""
        found = self.record(job_id)
        return found if found is not None and found.updated_ms >= self.asked_ms else None

    def pending(self, kind: str, job_id: str, told: JobRecord | None) -> End:
        """Return that a job is not done; it is no use to wait where it was tried so often."""
        is_pending = told is None or not self._was_given_up(told)
        return End(kind, job_id, "unfinished", _not_yet(told), is_pending)

    def _was_given_up(self, told: JobRecord) -> bool:
        """Return whether the job's message came for the last time, as far as can be told."""
        if told.attempts < MAX_RECEIVES:
            return False
        silent_ms = self.now_ms - told.updated_ms
        return told.state == "failed" or (told.state == "running" and silent_ms > SILENT_MS)

    def over(self, kind: str, job_id: str, told: JobRecord | None, done: Callable[[], End]) -> End:
        """Return how a job ended of which nothing is left to do, if its record says so."""
        if told is not None and told.state == "finished" and told.reason != OUTCOME_UNKNOWN:
            return done()
        if told is not None and told.state == "failed":
            return End(kind, job_id, "failed", told.reason)
        since_ms = told.updated_ms if told is not None else self.asked_ms
        if self.now_ms - since_ms < LOST_MS:
            return self.telling(kind, job_id, told)
        return End(kind, job_id, "failed", UNKNOWN)

    def is_telling(self, told: JobRecord | None) -> bool:
        """Return whether the run that committed may live, and is about to say what came of it."""
        is_running = told is not None and told.state == "running"
        return is_running and told is not None and self.now_ms - told.updated_ms < TELLING_MS

    def telling(self, kind: str, job_id: str, told: JobRecord | None) -> End:
        """Return that a job may be done, and nothing says so yet."""
        return End(kind, job_id, "unfinished", _not_yet(told), is_pending=True)


def _not_yet(told: JobRecord | None) -> str:
    """Say that a job is not done, and what is known of it."""
    if told is None or not told.attempts:
        return "not finished yet; it has not begun, and may still be done"
    times = f"not finished yet after {told.attempts} attempts, and may still be done"
    return f"{times}: {told.reason}" if told.reason else times
