"""Readers hold every answer against the ledger, while everything else goes wrong."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import DormouseError, NotFoundError, UnavailableError
from tests.chaos.row_ledger import RowLedger
from tests.chaos.tables import GC_DELAY_SECONDS, Plan, Row
from tests.chaos.tally import Tally

AS_OF_SHARE = 0.3
PAUSE_SECONDS = 0.25
RESTS = 9
"""How many times as long as it reads a reader rests when the stack is to come to rest itself."""


class Reader:
    """A thread that queries tables one after the other: the newest version, or one read before.

    `seconds` is how long each answer took.
    """

    def __init__(
        self,
        instance: Instance,
        plans: Mapping[str, Plan],
        ledgers: Mapping[str, RowLedger],
        tally: Tally,
        seed: str,
    ) -> None:
        self._handles = {name: instance.table(name) for name in plans}
        self._plans, self._ledgers, self._tally = plans, ledgers, tally
        self._random = random.Random(seed)
        self._current: dict[str, tuple[int, float]] = {}
        self.seconds: list[float] = []
        self._rests = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop_faults(self) -> None:
        """Read more rarely from now on."""
        self._rests = RESTS

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        pause_seconds = PAUSE_SECONDS
        while not self._stopping.wait(pause_seconds):
            name = self._random.choice(list(self._handles))
            began = time.monotonic()
            try:
                if self._random.random() < AS_OF_SHARE and name in self._current:
                    self._read_again(name)
                else:
                    self._read_newest(name)
            except UnavailableError:
                self._tally.count("queries", "not answered: to be tried again")
            except NotFoundError as error:
                self._judge_gone(name, began, error)
            except Exception as error:  # whatever else it is, a person would see it
                kind = "refused" if isinstance(error, DormouseError) else "broke"
                self._tally.wrong(f"table {name}: a query {kind}: {type(error).__name__}: {error}")
            pause_seconds = PAUSE_SECONDS + self._rests * (time.monotonic() - began)

    def _judge_gone(self, name: str, began: float, error: NotFoundError) -> None:
        """Excuse what took nearly as long as shards are kept; a query may not.

        They are kept from the time of the commit that replaced them. With these faults that can be
        some seconds before the commit landed, and others knew of it.
        """
        since = min(began, self._current.get(name, (0, began))[1])
        if time.monotonic() - since < GC_DELAY_SECONDS / 2:
            self._tally.wrong(f"table {name}: what a query needs is gone: {error.explanation}")
        self._tally.count("queries", "too late: the version is gone")
        self._current.pop(name, None)

    def _read_newest(self, name: str) -> None:
        ledger, began = self._ledgers[name], time.monotonic()
        expected = ledger.expected()
        version, rows = self._read(name)
        for sentence in ledger.differences(expected, rows):
            self._tally.wrong(f"{sentence}; at version {version}")
        self._remember(name, version, rows, began)
        self._tally.count("queries", "newest version")

    def _read_again(self, name: str) -> None:
        version, since = self._current[name]
        if time.monotonic() - since > GC_DELAY_SECONDS / 4:
            del self._current[name]
            return
        _, rows = self._read(name, version)
        self._remember(name, version, rows, since)
        self._tally.count("queries", "earlier version")

    def _read(self, name: str, version: int | None = None) -> tuple[int, list[Row]]:
        began = time.monotonic()
        found = self._handles[name].query(as_of=version)
        rows = found.reader.read_all()
        self.seconds.append(time.monotonic() - began)
        return found.version, self._plans[name].rows_of(rows)

    def _remember(self, name: str, version: int, rows: list[Row], since: float) -> None:
        if wrong := self._ledgers[name].same_version(version, rows):
            self._tally.wrong(wrong)
        self._current[name] = version, since


def rows_now(handle: TableHandle, plan: Plan) -> list[Row]:
    """Return all rows of a table."""
    return plan.rows_of(handle.query().read_all())
