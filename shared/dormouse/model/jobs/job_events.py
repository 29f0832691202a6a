"""What happens to a job, as values, and the fold of these events to the record of the job.

A stage says what happened: ``Started(subject="t/a.csv")``, ``Failed("no space")``. The tracker
stores one record per job, and `fold_event` alone decides how an event changes it. A job that is
started, fails, and is started again has 2 attempts; its record has the start of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dormouse.model.jobs.job_records import JobKind, JobRecord, JobState

MAX_REASON_CHARACTERS = 10_000
"""Items of DynamoDB end at 400 KB, and nobody reads longer reasons."""
MAX_SUBJECT_CHARACTERS = 1024  # as many as a key of S3 has


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """Which job an event is about; `purge_id` names the purge that it removes rows for, if any."""

    table_id: str
    id: str
    kind: JobKind
    purge_id: str = ""


@dataclass(frozen=True, slots=True)
class TrackedRequest:
    """Which administrator's request an event is about; `kind` is the name of its verb."""

    table_id: str
    id: str
    kind: str
    purge_id: ClassVar[str] = ""


Tracked = TrackedJob | TrackedRequest
"""What an event can be about."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The base of all events: what they can say about a job.

    `subject` is what the job is about, `files` and `size_bytes` describe its input. `rows_read` are
    the rows that it read, `rows` those that it wrote. Of a query: `who` asked, how many `parts` it
    has, how many are done, and how many `requests` read shards.
    """

    state: ClassVar[JobState]
    reason: str = ""
    subject: str = ""
    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    rows_read: int = 0
    who: str = ""
    parts: int = 0
    parts_done: int = 0
    requests: int = 0


class Accepted(_Event):
    """A request is accepted: the jobs that it causes have begun."""

    __slots__ = ()
    state: ClassVar[JobState] = "accepted"


class Assigned(_Event):
    """The job waits for a run, or was handed on; `reason` says where to."""

    __slots__ = ()
    state: ClassVar[JobState] = "assigned"


class Started(_Event):
    """An attempt starts."""

    __slots__ = ()
    state: ClassVar[JobState] = "running"


class Finished(_Event):
    """The job is done; `reason` says what is remarkable about it."""

    __slots__ = ()
    state: ClassVar[JobState] = "finished"


class Failed(_Event):
    """The attempt failed, and perhaps another follows."""

    __slots__ = ()
    state: ClassVar[JobState] = "failed"


class Died(_Event):
    """The attempt ended by an error that no stage foresees, which counts as a crash."""

    __slots__ = ()
    state: ClassVar[JobState] = "failed"


class Refused(_Event):
    """The request or file is invalid, and is not tried again."""

    __slots__ = ()
    state: ClassVar[JobState] = "refused"


class Cancelled(_Event):
    """The job was ended by whoever asked for it."""

    __slots__ = ()
    state: ClassVar[JobState] = "cancelled"


class Progressed(_Event):
    """A part of the job is done."""

    __slots__ = ()
    state: ClassVar[JobState] = "running"


JobEvent = (
    Accepted | Assigned | Started | Progressed | Finished | Failed | Died | Refused | Cancelled
)


def fold_event(
    kept: JobRecord | None, job: Tracked, event: JobEvent, at_ms: int
) -> JobRecord | None:
    """Return the record of a job after an event at `at_ms`; None if the record `kept` stays.

    An event that is older than the record changes nothing. Nor do `Assigned` and `Progressed` if
    the job is finished: they may be recorded after that. An event without a subject, files, size,
    purge or what queries have leaves those of the record; a new attempt also leaves the rows of the
    one before. Long texts are cut off.
    """
    if kept is not None and kept.updated_ms > at_ms:
        return None
    if kept is not None and kept.state == "finished" and isinstance(event, Assigned):
        return None
    if kept is not None and kept.is_finished and isinstance(event, Progressed):
        return None
    before = kept or JobRecord(job.table_id, job.id, job.kind, "")
    starts = isinstance(event, Started)
    settles = isinstance(event, Finished | Failed | Refused | Cancelled)
    ends = settles or isinstance(event, Died)
    return JobRecord(
        job.table_id,
        job.id,
        job.kind,
        event.state,
        event.subject[:MAX_SUBJECT_CHARACTERS] or before.subject,
        event.reason[:MAX_REASON_CHARACTERS],
        rows=before.rows if starts else event.rows,
        updated_ms=at_ms,
        files=event.files or before.files,
        size_bytes=event.size_bytes or before.size_bytes,
        rows_read=before.rows_read if starts else event.rows_read,
        started_ms=at_ms if starts else before.started_ms,
        finished_ms=at_ms if ends else 0 if starts else before.finished_ms,
        attempts=before.attempts + starts,
        crashed_attempts=0 if settles else before.crashed_attempts + starts,
        purge_id=job.purge_id or before.purge_id,
        who=event.who or before.who,
        parts=event.parts or before.parts,
        parts_done=max(event.parts_done, before.parts_done),
        requests=max(event.requests, before.requests),
    )
