"""What the tracker keeps of a job."""

from __future__ import annotations

from dataclasses import dataclass

DAMAGED = "damaged"
"""The state of a record that cannot be read; its reason says why. It is only shown."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the tracker shows of a job, a request or a refused source.

    `state` is one of ``assigned``, ``running``, ``finished``, ``failed``, ``refused``; or
    ``accepted``, of a request whose jobs have begun. `subject` is what it is about: a source's key,
    a partition, a table. `files` and `size_bytes` are those
    of its input; `rows_read` came in, `rows` came out. `started_ms` is when its newest attempt
    began, `finished_ms` when that ended, `attempts` how many there were, `crashed_attempts` how
    many of them began since one told how it ended; 0 is not known, or not yet. The tracker knows
    these four by itself, from the records a job has over time.
    """

    table_id: str
    job_id: str
    kind: str
    state: str
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

    @property
    def is_finished(self) -> bool:
        """Return whether nothing more is to come of it, unless it is begun again."""
        return self.state in ("finished", "failed", "refused")

    @property
    def seconds(self) -> float | None:
        """Return how long the newest attempt took; None if that is not known."""
        if not (self.started_ms and self.finished_ms):
            return None
        return (self.finished_ms - self.started_ms) / 1000
