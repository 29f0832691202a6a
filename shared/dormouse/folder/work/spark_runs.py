"""The runs of Spark that jobs of a folder asked for: `ports.Spark`, and their other end.

A run is a record in SQLite until some days after its end. A process that can run Spark takes it
and does it, one at a time in a folder: Spark uses all processors. A run whose process died is
taken by another; the third time, it has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from dormouse.errors import CorruptDataError
from dormouse.folder.queues import insert_message
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.items import SqliteItems, TransactionItems
from dormouse.items.store import ABSENT, ANY, Item, ItemStore, Key, Put, put
from dormouse.messages.stages import SparkRunChanged, encode
from dormouse.ports.services import Clock, SparkRun, SparkRunState
from dormouse.stored.decoding import decode_json

MAX_STARTS = 3
KEPT_SECONDS = 7 * 24 * 60 * 60
"""How long an ended run can be described; its job looks at it once."""
_OWNER = "(spark-runs)"
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
    def _items(self) -> SqliteItems:
        return SqliteItems(self.database)

    @property
    def package(self) -> None:
        """None: runs use the library of the process that starts them."""

    def start(self, run: SparkRun) -> str:
        """Store a run, unless it was before; return its id."""
        wanted = StoredRun(run.table_id, run.job_id, run.kind, run.generation, run.attempt)
        self._items.write(_put(run.token, wanted, is_new=True))
        self.sent()
        return run.token

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if there is none, or if its record is damaged."""
        (found,) = self._items.get(_key(run_id))
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
        if not _open_runs(self._items):  # mostly there is none
            return None
        with self._items.transaction() as items:
            runs = _open_runs(items)
            others = {run.process for _, run in runs} - {"", self.process}
            if any(map(self.is_alive, others)):
                return None
            for run_id, run in runs:
                if run.starts < MAX_STARTS:
                    taken = replace(run, process=self.process, starts=run.starts + 1)
                    items.write(_put(run_id, taken))
                    return run_id, taken
                reason = f"the processes that ran it died, {run.starts} of them"
                self._end(items, run_id, run, "failed", reason)
        return None

    def give_back(self, run_id: str, run: StoredRun) -> None:
        """Leave a run to others, as if this process had not taken it."""
        self._items.write(_put(run_id, replace(run, process="", starts=run.starts - 1)))

    def end(self, run_id: str, run: StoredRun, outcome: str, reason: str) -> None:
        """Keep how a run ended, and announce it."""
        with self._items.transaction() as items:
            self._end(items, run_id, run, outcome, reason)
        self.sent()

    def _end(
        self, items: TransactionItems, run_id: str, run: StoredRun, outcome: str, reason: str
    ) -> None:
        now_ms = self.clock.now_ms()
        ended = replace(run, process="", outcome=outcome, reason=reason)
        items.write(_put(run_id, ended, expires_s=now_ms // 1000 + KEPT_SECONDS))
        insert_message(items.connection, _QUEUE, encode(SparkRunChanged(run_id)), now_ms)


def _key(run_id: str) -> Key:
    return Key("jobs", _OWNER, run_id)


def _put(run_id: str, run: StoredRun, *, is_new: bool = False, expires_s: int | None = None) -> Put:
    when = ABSENT if is_new else ANY
    return put(_key(run_id), msgspec.json.encode(run).decode(), when, expires_s=expires_s)


def _open_runs(items: ItemStore) -> list[tuple[str, StoredRun]]:
    """Return the runs that have not ended. The job of a damaged one asks for another."""
    found = [item for item in items.query("jobs", _OWNER) if item.expires_s is None]
    return [(item.key.name, run) for item in found if (run := _read(item)) is not None]


def _read(item: Item) -> StoredRun | None:
    try:
        return decode_json(item.text(), StoredRun)
    except (CorruptDataError, ValueError):
        return None
