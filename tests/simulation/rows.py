"""The rows of simulated tables, and what their rules make of them, said in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Row = tuple[str, int, str, int, int]
"""Letter, at, note, n, marks. Each row that is ever dropped has a note of its own; marks show which
files it comes from, also where rows were summed."""
LETTERS = "abcdefgh"
AGE_MS = 6 * 3600 * 1000


def entombed(row: Row) -> Row:
    """Return what is left of a row that is deleted, in a table that keeps the latest."""
    return (*row[:3], 0, 0)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table: the properties that are its rules."""

    name: str
    properties: Mapping[str, object]

    @property
    def ages(self) -> bool:
        """Return whether its rows age off."""
        return self.name == "ages"

    @property
    def joins(self) -> bool:
        """Return whether several rows become one."""
        return self.name in ("sum", "last", "latest")

    @property
    def keeps_latest(self) -> bool:
        """Return whether deleted rows hide others: it can have rows that are `entombed`."""
        return self.name == "latest"

    def answer(self, rows: Iterable[Row]) -> Counter[Row]:
        """Return what a query gives of these rows, or of parts of them made before; age aside."""
        if self.name == "sum":
            groups: dict[tuple[str, int], list[Row]] = {}
            for row in rows:
                groups.setdefault(row[:2], []).append(row)
            return Counter(
                (
                    *keys,
                    max(r[2] for r in found),
                    sum(r[3] for r in found),
                    sum(r[4] for r in found),
                )
                for keys, found in groups.items()
            )
        if self.joins:
            first = 2 if self.keeps_latest else 1
            newest = {row[0]: row for row in sorted(rows, key=lambda row: row[first:])}
            return Counter(row for row in newest.values() if row[4])
        return Counter(rows)


LATEST = tuple(
    Kind("latest", {"keep": "latest", "latest_by": "note", "tombstone_age_seconds": seconds})
    for seconds in (60, 24 * 3600)
)
"""Tables that keep the latest rows: tombstones go at once, or when much has come since."""


def kinds_of(values: Sequence[str], *, joins: bool, sums: bool) -> tuple[Kind, ...]:
    """Return the kinds of tables there can be with these value columns."""
    added = ", ".join(f"sum({name})" for name in values if name != "note")
    kept = ", ".join(f"last({name})" for name in values)
    kinds = [Kind("plain", {}), Kind("ages", {"filters": f"ageOff(at, {AGE_MS})"})]
    if joins and sums:
        kinds.append(Kind("sum", {"aggregations": f"max(note), {added}"}))
    if joins:
        kinds.append(Kind("last", {"aggregations": kept}))
    return tuple(kinds)
