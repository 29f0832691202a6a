"""A table of an instance, with the services to reach it; `table` adds the operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dormouse.errors import NotFoundError
from dormouse.ports import Services
from dormouse.schema.schema import Schema
from dormouse.showing import HtmlText, Shown, show_table
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.client.ports import IngestBucket, Queues
    from dormouse.client.waiting import Polling
    from dormouse.model.state import TableState


@dataclass(frozen=True, slots=True, repr=False)
class TableAccess(Shown):
    """A table as it was when it was opened, and the instance that has it."""

    table: Table
    services: Services
    queues: Queues
    bucket: IngestBucket
    polling: Polling

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.table.schema

    def state(self) -> TableState:
        """Return the table's newest state.

        Raises:
            NotFoundError: the table was deleted.
        """
        from dormouse.client.versions import table_as_of

        return table_as_of(self.services, self.current(), None)[1]

    def current(self) -> Table:
        """Return the table as the registry has it now: its state may be in another log since.

        Raises:
            NotFoundError: the table was deleted.
        """
        table = self.services.table(self.table.id)
        if table is None:
            raise NotFoundError(f"table {self.name!r} was deleted")
        return table

    def _shown(self) -> tuple[str, HtmlText]:
        """Show the keys in one line, or all columns in a notebook; the instance is not asked."""
        keys = [f"row keys {', '.join(field.name for field in self.schema.row_keys)}"]
        if self.schema.sort_keys:
            keys.append(f"sort keys {', '.join(field.name for field in self.schema.sort_keys)}")
        columns = f"{len(self.schema.fields):,} columns"
        title = f"table {self.name!r} ({'; '.join([*keys, columns])})"
        described = self.schema.described()
        return title, show_table(title, ("column", "type", "role"), described)[1]
