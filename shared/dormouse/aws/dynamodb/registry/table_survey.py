"""All tables and damaged entries of one listing of the registry; used by `tables`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dormouse.aws.dynamodb.registry.table_items import ID, NAME, id_named, table_of
from dormouse.errors import DamagedEntryError
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.aws.dynamodb.stored_items import Item


@dataclass
class Survey:
    """The readable tables, the damaged entries, and names and entries that lack the other."""

    by_id: dict[str, Table] = field(default_factory=dict)
    damaged: list[DamagedEntryError] = field(default_factory=list)
    without_entry: list[str] = field(default_factory=list)
    without_name: list[Table] = field(default_factory=list)

    @staticmethod
    def of(items: Iterable[Item], defaults: Mapping[str, int | str]) -> Survey:
        """Return the survey of all names and entries, in whatever order they were listed."""
        survey = Survey()
        ids: dict[str, str] = {}
        names: list[Item] = []
        entries: dict[str, Item] = {}
        for item in items:
            pk = item["pk"]["S"]
            if pk.startswith(ID):
                entries[pk.removeprefix(ID)] = item
            else:
                names.append(item)
        for item in names:
            name = item["pk"]["S"].removeprefix(NAME)
            try:
                ids[name] = id_named(item)
            except DamagedEntryError as error:
                survey.damaged.append(error)
        called = {table_id: name for name, table_id in ids.items()}
        for table_id, item in entries.items():
            try:
                survey.by_id[table_id] = table_of(item, defaults, called.get(table_id, ""))
            except DamagedEntryError as error:
                survey.damaged.append(error)
        survey.without_entry = [name for name, table_id in ids.items() if table_id not in entries]
        damaged = {error.name for error in survey.damaged}
        survey.without_name = [
            table
            for table in survey.by_id.values()
            if ids.get(table.name) != table.id and table.name not in damaged
        ]
        return survey

    @property
    def tables(self) -> list[Table]:
        """The tables by name."""
        return sorted(self.by_id.values(), key=lambda table: table.name)

    def look(self, name: str, newest: Callable[[], Table | None]) -> None:
        """Add what a second read of the table `name` returns."""
        try:
            found = newest()
        except DamagedEntryError as error:
            self.damaged.append(error)
            return
        if found is not None:
            self.by_id[found.id] = found
