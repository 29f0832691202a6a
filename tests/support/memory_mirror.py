"""A database of Glue in memory, which refuses what is not as it was read, unlike moto's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from dormouse.errors import UnavailableError
from dormouse.ports import MirroredTable, MirrorEntry


class MemoryMirror:
    """`Mirror` in memory. `before` is called before each call, with its name; it may raise."""

    def __init__(self, database: str = "lake") -> None:
        self.database = database
        self.tables: dict[str, MirroredTable] = {}
        self.entries: dict[str, MirrorEntry] = {}
        self.before: Callable[[str], object] = lambda call: None
        self.calls: list[str] = []
        self._versions = count(1)

    def get(self, name: str) -> MirrorEntry | None:
        self._begin("get")
        return self.entries.get(name)

    def put(self, name: str, table: MirroredTable, old: MirrorEntry | None) -> bool:
        self._begin("put")
        if self.entries.get(name) != old:
            return False
        self.tables[name] = table
        version = str(next(self._versions))
        self.entries[name] = MirrorEntry(table.table_id, table.metadata, version)
        return True

    def delete(self, name: str) -> None:
        self._begin("delete")
        self.entries.pop(name, None)
        self.tables.pop(name, None)

    def _begin(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)


def refuse(call: str) -> None:
    """A hook: Glue refuses every change."""
    if call != "get":
        raise UnavailableError("Glue refused a write")
