"""What the rows of a table must be at any moment, as far as is known from outside; pure.

A row that was dropped may be there; once its file is known to be ingested, it must be; once its
purge is known to have ended, it must not be. No row is there twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.tables import DroppedFile, Row

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be among the rows of a query that begins now, and what must not, by files."""

    must: frozenset[int]
    must_not: frozenset[int]


class RowLedger:
    """The ledger of one table; safe for many threads."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._rows: dict[int, tuple[Row, ...]] = {}
        self._known: set[Row] = set()
        self._ingested: set[int] = set()
        self._purging: set[int] = set()
        self._purged: set[int] = set()
        self._versions: dict[int, int] = {}

    def dropped(self, file: DroppedFile) -> None:
        """Record that a file is about to be dropped."""
        rows = () if file.is_broken else file.rows
        with self._lock:
            self._rows[file.number] = rows
            self._known.update(rows)

    def ingested(self, files: Iterable[int]) -> None:
        """Record that files were seen to be ingested."""
        with self._lock:
            self._ingested.update(files)

    def purge_begins(self, files: Iterable[int]) -> None:
        """Record that the purge of files' rows is about to be asked for."""
        with self._lock:
            self._purging.update(files)

    def purge_ended(self, files: Iterable[int]) -> None:
        """Record that a purge was seen to be over."""
        with self._lock:
            self._purged.update(files)

    @property
    def files(self) -> frozenset[int]:
        """The files that were dropped."""
        with self._lock:
            return frozenset(self._rows)

    @property
    def to_purge(self) -> frozenset[int]:
        """The ingested files that nobody has asked to be purged."""
        with self._lock:
            return frozenset(self._ingested - self._purging)

    def expected(self) -> Expected:
        """Return what is known before a query begins."""
        with self._lock:
            return Expected(frozenset(self._ingested - self._purging), frozenset(self._purged))

    def final_rows(self) -> Counter[Row]:
        """Return the rows that must be there at the end, just these."""
        with self._lock:
            return Counter(
                row
                for number, rows in self._rows.items()
                if number not in self._purging
                for row in rows
            )

    def differences(self, before: Expected, rows: Sequence[Row]) -> list[str]:
        """Return what is wrong with the rows a query gave, `before` which that was expected."""
        counts = Counter(rows)
        with self._lock:
            must = [row for n in before.must - self._purging for row in self._rows[n]]
            must_not = [row for n in before.must_not for row in self._rows[n] if row in counts]
            unknown = [row for row in counts if row not in self._known]
        doubled = [row for row, count in counts.items() if count > 1]
        lost = [row for row in must if row not in counts]
        found = {
            "doubled": doubled,
            "lost": lost,
            "never dropped": unknown,
            "purged and there": must_not,
        }
        return [_sentence(self.table, what, wrong) for what, wrong in found.items() if wrong]

    def same_version(self, version: int, rows: Iterable[Row]) -> str | None:
        """Return what is wrong if a version gave other rows the last time it was read."""
        now = hash(frozenset(Counter(rows).items()))
        with self._lock:
            if self._versions.setdefault(version, now) != now:
                return f"table {self.table}: version {version} was read twice with other rows"
        return None


def final_differences(ledger: RowLedger, rows: Sequence[Row]) -> list[str]:
    """Return how the rows of a table differ from those it must have at the end."""
    must, found = ledger.final_rows(), Counter(rows)
    both = {"lost at the end": must - found, "too many at the end": found - must}
    return [
        _sentence(ledger.table, what, list(wrong.elements()))
        for what, wrong in both.items()
        if wrong
    ]


def _sentence(table: str, what: str, rows: Sequence[Row]) -> str:
    files = ", ".join(sorted({str(row[-1]) for row in rows})[:20])
    shown = ", ".join(str(row) for row in rows[:SHOWN])
    return f"table {table}: {len(rows)} rows {what}, of files {files}: {shown}"
