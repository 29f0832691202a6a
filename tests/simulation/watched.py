"""Backends that remember what was done to them, for what looks at an instance from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from dormouse.model.tables import Table
from dormouse.ports import Clock, JobRecord
from dormouse.storage import MemoryStorage
from tests.support.adapters import MemoryTables, MemoryTracker


class WatchedStorage(MemoryStorage):
    """Storage that tells which objects were put and deleted.

    With a `folder` each object is a file there, too: the engine reads those, as in production.
    """

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        """Begin empty."""
        super().__init__(clock)
        self.folder = folder
        self.changes: list[tuple[Literal["put", "delete"], str]] = []

    @property
    def uri(self) -> str:
        """The folder, or a name that nothing can read."""
        return super().uri if self.folder is None else str(self.folder)

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none of that path."""
        done = super().put(path, body)
        if done:
            self.changes.append(("put", path))
            self._write(path, body)
        return done

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects."""
        self.changes += [("delete", path) for path in paths if path in self._objects]
        super().delete(paths)
        if self.folder is not None:
            for path in paths:
                (self.folder / path).unlink(missing_ok=True)

    def fill(self, other: WatchedStorage) -> None:
        """Take over all objects of another storage, as old as they are."""
        self._objects.update(other._objects)
        for path, (body, _) in other._objects.items():
            self._write(path, body)

    def _write(self, path: str, body: bytes) -> None:
        if self.folder is not None:
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)


class WatchedTables(MemoryTables):
    """The registry, with all tables it ever had, and what each request made of one."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.created: set[str] = set()
        self.became: dict[str, Table] = {}

    def create(self, table: Table) -> None:
        """Add a table."""
        super().create(table)
        self.created.add(table.id)

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table; what a request makes of it first is what it did."""
        became = super().change(table_id, change, request_id=request_id)
        if request_id:
            self.became.setdefault(request_id, became)
        return became


class WatchedTracker(MemoryTracker):
    """The tracker, with what it was told last of each job, though a newer record be kept."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.told: dict[tuple[str, str], JobRecord] = {}

    def record(self, record: JobRecord) -> None:
        """Keep a record, if it is the newest."""
        super().record(record)
        self.told[record.table_id, record.job_id] = record
