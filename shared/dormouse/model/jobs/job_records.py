"""The tracker's record of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

JobKind = Literal[
    "ingest",
    "compaction",
    "split",
    "purge",
    "export",
    "garbage",
    "sweep",
    "dispute",
    "sealing",
    "query",
]
"""The kinds of jobs. A request's record has the name of its verb instead."""

JobState = Literal[
    "",
    "waiting",
    "accepted",
    "assigned",
    "running",
    "finished",
    "failed",
    "refused",
    "cancelled",
    "damaged",
]
"""The states of a record; empty for a job of which only a later state was recorded.

A file that no job has taken up yet is ``waiting``; that is never stored."""

ENDED: Final = ("finished", "failed", "refused", "cancelled")
"""The states in which a job has ended."""

DAMAGED: Final = "damaged"
"""The state of a record that cannot be read; its reason says why. It is shown and never
stored."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the tracker shows of a job, a request or a refused source.

    `state` is ``assigned``, ``running``, ``finished``, ``failed``, ``refused`` or, of a query,
    ``cancelled``; or ``accepted``, for a request whose jobs have begun. `subject` is what the job
    is about: a source's key, a partition, a table. `files` and `size_bytes` describe its input; it
    reads `rows_read` and writes `rows`. `purge_id` names the purge that it removes rows for, if
    any. Of a query, `who` is who asked, `parts` are its sub-queries, of which `parts_done` are
    done, and `requests` counts the reads of shards, of `size_bytes` together.

    The tracker derives the other fields from the sequence of records: `started_ms` is the start of
    the newest attempt and `finished_ms` its end, `attempts` counts the attempts, and
    `crashed_attempts` those since the last recorded end that began and did not record an outcome. 0
    means unknown, or not yet.
    """

    table_id: str
    job_id: str
    kind: JobKind | str
    state: JobState
    subject: str = ""
    reason: str = ""
    rows: int = 0
    updated_ms: int = 0
    files: int = 0
    size_bytes: int = 0
    rows_read: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    attempts: int = 0
    crashed_attempts: int = 0
    purge_id: str = ""
    who: str = ""
    parts: int = 0
    parts_done: int = 0
    requests: int = 0

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended, unless it is started again."""
        return self.state in ENDED

    @property
    def seconds(self) -> float | None:
        """Return the duration of the newest attempt in seconds; None if not known."""
        if not (self.started_ms and self.finished_ms):
            return None
        return (self.finished_ms - self.started_ms) / 1000
