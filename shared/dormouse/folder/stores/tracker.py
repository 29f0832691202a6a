"""The records of jobs: `ports.Tracker`. What they keep, and for how long, says `jobs.records`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.records import Record, fetch, select, store
from dormouse.jobs.records import BOUND_KEPT_SECONDS, seconds_kept
from dormouse.model.jobs.job_events import JobEvent, Tracked, fold_event
from dormouse.ports.services import DAMAGED, JobRecord
from dormouse.stored.decoding import raise_corrupt

_JOB, _BINDING = "job", "request"
_HINT = "the job's next record takes its place; without one it is gone in days"


class SqliteTracker:
    """`Tracker` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database) -> None:
        """Use `database`."""
        self._database = database

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Record what happened to a job. A damaged record counts as none, and is replaced."""
        with self._database.writing() as connection:
            place = (_JOB, job.table_id, job.id)
            found = fetch(connection, *place)
            wanted = fold_event(_record_of(found) if found else None, job, event, at_ms)
            if wanted is not None:
                expires_ms = wanted.updated_ms + seconds_kept(wanted) * 1000
                store(connection, *place, asdict(wanted), expires_ms=expires_ms)

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or if it is damaged."""
        if not _can_be_stored(table_id + job_id):  # dead letters may name anything
            return None
        with self._database.reading() as connection:
            found = fetch(connection, _JOB, table_id, job_id)
        record = _record_of(found) if found else None
        return record if record is not None and record.state != DAMAGED else None

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield all records of a table in job id order, including `DAMAGED` ones."""
        with self._database.reading() as connection:
            found = list(select(connection, "kind = ? AND owner = ?", _JOB, table_id))
        yield from map(_record_of, found)

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Return the table that a request is about: `table_id`, unless an earlier call named
        another. Raises CorruptDataError.
        """
        with self._database.writing() as connection:
            found = fetch(connection, _BINDING, "", request)
            about = _bound_to(found) if found else table_id
            expires_ms = now_ms + BOUND_KEPT_SECONDS * 1000
            store(connection, _BINDING, "", request, about, expires_ms=expires_ms)
            return about


def _record_of(record: Record) -> JobRecord:
    """Return the record of a job; where it is damaged, one that says so."""
    table_id, job_id = record.owner, record.key
    try:
        with raise_corrupt(f"the record of job {job_id!r} is damaged", hint=_HINT):
            values: dict[str, Any] = record.read(dict[str, Any])
            return JobRecord(**values)
    except CorruptDataError as error:
        return JobRecord(table_id, job_id, "", DAMAGED, reason=error.explanation)


def _bound_to(record: Record) -> str:
    problem = f"what is kept of request {record.key!r} is damaged"
    with raise_corrupt(problem, hint="ask again under another request_id"):
        about: str = record.read(str)
        return about


def _can_be_stored(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
