"""A table of an instance, with the services to reach it, and what it consists of.

`table` adds the operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dormouse.errors import NotFoundError
from dormouse.ports.services import Services
from dormouse.schema.schema import Schema
from dormouse.showing import HtmlText, Listing, Shown, show_table
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.client.contents import TableFile, TablePartition, TableShard
    from dormouse.client.ports import IngestBucket, Queues
    from dormouse.client.waiting import Polling
    from dormouse.model.state import TableState
    from dormouse.model.versions.as_of import AsOf


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
        from dormouse.client.reading.versions import table_as_of

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

    def partitions(
        self, *, everything: bool = False, as_of: AsOf | None = None
    ) -> Listing[TablePartition]:
        """Return the leaf partitions in key order, and split ones that still hold rows.

        With `everything`, all split ones are listed, too. Raises as `query` with `as_of`.
        """
        from dormouse.client.contents import partitions_of
        from dormouse.client.reading.versions import table_as_of

        table, state = table_as_of(self.services, self.current(), as_of)
        return partitions_of(table.schema, state, everything=everything)

    def shards(self, *, as_of: AsOf | None = None) -> Listing[TableShard]:
        """Return the shards with rows that count, by their first key. Raises as `query`."""
        from dormouse.client.contents import shards_of
        from dormouse.client.reading.versions import table_as_of

        table, state = table_as_of(self.services, self.current(), as_of)
        return shards_of(table.schema, state)

    def files(self, *, as_of: AsOf | None = None) -> Listing[TableFile]:
        """Return the table's Parquet files, by their first key, as URIs. Raises as `query`.

        They are there for as long as the version is kept.
        """
        from dormouse.client.contents import files_of
        from dormouse.client.reading.versions import table_as_of

        table, state = table_as_of(self.services, self.current(), as_of)
        return files_of(self.services.storage, table.id, table.schema, state)

    def _shown(self) -> tuple[str, HtmlText]:
        """Show the keys in one line, or all columns in a notebook; the instance is not asked."""
        keys = [f"row keys {', '.join(field.name for field in self.schema.row_keys)}"]
        if self.schema.sort_keys:
            keys.append(f"sort keys {', '.join(field.name for field in self.schema.sort_keys)}")
        columns = f"{len(self.schema.fields):,} columns"
        title = f"table {self.name!r} ({'; '.join([*keys, columns])})"
        described = self.schema.described()
        return title, show_table(title, ("column", "type", "role"), described)[1]
