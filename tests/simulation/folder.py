"""The state of a simulated instance in a folder: registry, job records and log pages in SQLite.

They show what looks at an instance from outside what the backends in memory show (`watched`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path

from dormouse.folder.sqlite import Database, SqliteItems
from dormouse.items.records import REQUESTS, ItemTracker
from dormouse.items.store import Change, Delete, put
from dormouse.items.tables import ItemTables, copy_key, id_key, name_key, table_body
from dormouse.state.jobs import JobEvent, JobRecord, Tracked, fold_event
from dormouse.tables.table import Table, Tombstone


class FolderDatabase(Database):
    """A database that is not flushed to the disk: processes die here, and no power fails."""

    synchronous = "OFF"

    def __init__(self, folder: Path) -> None:
        """Make the file in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "dormouse.sqlite")
        self.create()

    def copy_from(self, other: Database) -> None:
        """Hold what another database does."""
        with other.reading() as source, self._opened() as target:
            source.backup(target)
        self.close()


class _ById(MutableMapping[str, Table]):
    """The entries of the registry, which can be taken away by hand."""

    def __init__(self, tables: FolderTables) -> None:
        self._tables = tables

    def __getitem__(self, table_id: str) -> Table:
        found = self._tables.get(table_id)
        if found is None:
            raise KeyError(table_id)
        return found

    def __setitem__(self, table_id: str, table: Table) -> None:
        key, body = id_key(table_id), table_body(table)
        changes: list[Change] = [put(key, body), put(copy_key(key), body)]
        self._tables._items.write(*changes, put(name_key(table.name), table_id))

    def __delitem__(self, table_id: str) -> None:
        key, name = id_key(table_id), name_key(self[table_id].name)
        self._tables._items.write(Delete(key), Delete(copy_key(key)), Delete(name))

    def __iter__(self) -> Iterator[str]:
        return iter([table.id for table in self._tables.all()])

    def __len__(self) -> int:
        return len(self._tables.all())


class FolderTables(ItemTables):
    """The registry, with all tables it ever had, and what each request made of one."""

    def __init__(self, database: Database) -> None:
        """Begin empty."""
        super().__init__(SqliteItems(database))
        self.created: set[str] = set()
        self.became: dict[str, Table] = {}

    @property
    def by_id(self) -> MutableMapping[str, Table]:
        """All tables."""
        return _ById(self)

    @property
    def buried(self) -> dict[str, Tombstone]:
        """All tombstones."""
        return {each.table_id: each for each in self.tombstones(0)[0]}

    @property
    def settings(self) -> dict[str, int | str]:
        """The properties of the instance."""
        return self.defaults()

    @settings.setter
    def settings(self, settings: dict[str, int | str]) -> None:
        self.change_defaults(lambda _: settings)

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


class FolderTracker(ItemTracker):
    """The tracker, with the last event of each job, even if a newer record is kept."""

    def __init__(self, database: Database) -> None:
        """Begin empty."""
        super().__init__(SqliteItems(database))
        self.latest: dict[tuple[str, str], JobRecord] = {}

    @property
    def bound(self) -> dict[str, str]:
        """The table that each request is about."""
        return {item.key.name: item.text() for item in self._items.query("jobs", REQUESTS)}

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Keep the record of a job, if the event is the newest."""
        super().record(job, event, at_ms)
        said = fold_event(None, job, event, at_ms)
        assert said is not None
        self.latest[job.table_id, job.id] = said
