"""Tables that nobody changes: what a process knows of them spares it to load their states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dormouse.log.engine import StateStore
    from dormouse.state.state import TableState
    from dormouse.tables.table import Table


LOOK_MS = 15 * 60 * 1000
"""Whether a quiet table has changed is looked at so often."""


@dataclass(frozen=True, slots=True)
class QuietTable:
    """A table with which nothing was to be done: its entry, its version and the time of that.

    `looked_ms` is when it was last seen to be as it was.
    """

    table: Table
    version: int
    time_ms: int
    looked_ms: int


@dataclass(slots=True)
class QuietTables:
    """The quiet tables that a process knows, for each work that is done with all tables in turn.

    An entry holds while the table's own entry and its version are what they were. To see that takes
    one read of the end of its log, without its state; and none within `LOOK_MS` of the last look.
    """

    _known: dict[tuple[str, str], QuietTable] = field(default_factory=dict)
    _resting: dict[str, int] = field(default_factory=dict)

    def note(self, work: str, table: Table, state: TableState, now_ms: int) -> QuietTable:
        """Note that for a work nothing was to be done with a table in this state."""
        quiet = QuietTable(table, state.version, state.time_ms, now_ms)
        self._known[work, table.id] = quiet
        return quiet

    def get(self, work: str, table: Table, store: StateStore, now_ms: int) -> QuietTable | None:
        """Return what was noted of a table that is still the same; None if it has to be read."""
        quiet = self._known.pop((work, table.id), None)
        if quiet is None or quiet.table != table:
            return None
        if now_ms - quiet.looked_ms >= LOOK_MS:
            if not store.is_newest(quiet.version):
                return None
            quiet = replace(quiet, looked_ms=now_ms)
        self._known[work, table.id] = quiet
        return quiet

    def rest(self, work: str, tables: Iterable[Table], now_ms: int) -> None:
        """Note that a work has been done with all tables: if all are quiet, it may rest."""
        if all((work, table.id) in self._known for table in tables):
            self._resting[work] = now_ms + LOOK_MS

    def rests(self, work: str, now_ms: int) -> bool:
        """Return whether a work may rest: all tables were quiet at the last look."""
        return now_ms < self._resting.get(work, 0)
