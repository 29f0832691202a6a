"""The runs of Spark that jobs of a folder asked for: `ports.Spark`, and their other end.

A run is a record in SQLite until some days after its end. A process that can run Spark takes it
and does it, one at a time in a folder: Spark uses all processors. A run whose process died is
taken by another; the third time, it has failed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from dormouse.errors import CorruptDataError
from dormouse.folder.queues import insert_message
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.records import Record, fetch, select, store
from dormouse.messages.stages import SparkRunChanged, encode
from dormouse.ports.services import Clock, SparkRun, SparkRunState

MAX_STARTS = 3
KEPT_SECONDS = 7 * 24 * 60 * 60
"""How long an ended run can be described; its job looks at it once."""
_KIND = "spark-run"
_QUEUE = "spark-runs"


class StoredRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run. `process` has it, `starts` counts who had it; `outcome` is empty until it ended."""

    table_id: str
    job_id: str
    kind: str
    generation: int
    attempt: int
    process: str = ""
    starts: int = 0
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SparkRuns:
    """The runs of an instance. `process` is the name of this one among those of the folder."""

    database: Database
    clock: Clock
    process: str
    is_alive: Callable[[str], bool]
    sent: Callable[[], None] = lambda: None

    @property
    def package(self) -> None:
        """None: runs use the library of the process that starts them."""

    def start(self, run: SparkRun) -> str:
        """Store a run, unless it was before; return its id."""
        wanted = StoredRun(run.table_id, run.job_id, run.kind, run.generation, run.attempt)
        with self.database.writing() as connection:
            if fetch(connection, _KIND, "", run.token) is None:
                store(connection, _KIND, "", run.token, wanted)
        self.sent()
        return run.token

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if there is none, or if its record is damaged."""
        with self.database.reading() as connection:
            found = fetch(connection, _KIND, "", run_id)
        if found is None:
            return None
        run = _read(found)
        if run is None:
            return None
        return SparkRunState(run.table_id, run.job_id, run.attempt, run.outcome, run.reason)

    def take(self) -> tuple[str, StoredRun] | None:
        """Take a run that nobody does, if no other process does one; return it and its id.

        Requires: no thread of this process does one. A run whose process died too often ends here.
        """
        with self.database.reading() as connection:  # mostly there is none
            if not _open_runs(connection):
                return None
        with self.database.writing() as connection:
            runs = _open_runs(connection)
            others = {run.process for _, run in runs} - {"", self.process}
            if any(map(self.is_alive, others)):
                return None
            for run_id, run in runs:
                if run.starts < MAX_STARTS:
                    taken = replace(run, process=self.process, starts=run.starts + 1)
                    store(connection, _KIND, "", run_id, taken)
                    return run_id, taken
                reason = f"the processes that ran it died, {run.starts} of them"
                self._end(connection, run_id, run, "failed", reason)
        return None

    def give_back(self, run_id: str, run: StoredRun) -> None:
        """Leave a run to others, as if this process had not taken it."""
        with self.database.writing() as connection:
            left = replace(run, process="", starts=run.starts - 1)
            store(connection, _KIND, "", run_id, left)

    def end(self, run_id: str, run: StoredRun, outcome: str, reason: str) -> None:
        """Keep how a run ended, and announce it."""
        with self.database.writing() as connection:
            self._end(connection, run_id, run, outcome, reason)
        self.sent()

    def _end(
        self, connection: sqlite3.Connection, run_id: str, run: StoredRun, outcome: str, reason: str
    ) -> None:
        now_ms = self.clock.now_ms()
        ended = replace(run, process="", outcome=outcome, reason=reason)
        expires_ms = now_ms + KEPT_SECONDS * 1000
        store(connection, _KIND, "", run_id, ended, expires_ms=expires_ms)
        insert_message(connection, _QUEUE, encode(SparkRunChanged(run_id)), now_ms)


def _open_runs(connection: sqlite3.Connection) -> list[tuple[str, StoredRun]]:
    """Return the runs that have not ended. The job of a damaged one asks for another."""
    records = select(connection, "kind = ? AND expires_ms IS NULL", _KIND)
    return [(record.key, run) for record in records if (run := _read(record)) is not None]


def _read(record: Record) -> StoredRun | None:
    try:
        run: StoredRun = record.read(StoredRun)
    except (CorruptDataError, ValueError):
        return None
    return run
