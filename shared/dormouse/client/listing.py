"""Lists of the client that show themselves, and what an instance shows of itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from dormouse.client.access import TableAccess
from dormouse.client.ports import IngestBucket
from dormouse.ports.services import JobRecord
from dormouse.showing import HtmlText, Listing, Shown

if TYPE_CHECKING:
    from dormouse.folder.wiring import OpenFolder

_Access = TypeVar("_Access", bound=TableAccess)


def listed_jobs(records: Iterable[JobRecord]) -> Listing[JobRecord]:
    """Return records as a list that shows itself."""
    columns = ("state", "kind", "subject", "rows", "seconds", "attempts", "reason")
    return Listing(
        records, "jobs", columns, lambda record: [getattr(record, name) for name in columns]
    )


def listed_tables(tables: Iterable[_Access]) -> Listing[_Access]:
    """Return tables as a list that shows itself."""
    return Listing(tables, "tables", ("name", "row keys", "columns", "created"), _table_row)


def _table_row(access: TableAccess) -> Sequence[object]:
    created = datetime.fromtimestamp(access.table.created_ms // 1000, UTC)
    return (
        access.name,
        ", ".join(field.name for field in access.schema.row_keys),
        len(access.schema.fields),
        created.isoformat(sep=" ", timespec="minutes").removesuffix("+00:00"),
    )


class ShownInstance(Shown):
    """An instance that shows its name; in a notebook its tables, too."""

    __slots__ = ()
    bucket: IngestBucket
    folder: OpenFolder | None

    @abstractmethod
    def tables(self) -> Shown:
        """Return all tables that can be read."""

    def _shown(self) -> tuple[str, HtmlText]:
        if self.folder is not None:
            return f"instance in the folder {self.folder.layout.root}", ""
        return f"instance whose files are dropped into {self.bucket.name!r}", ""

    def _repr_html_(self) -> HtmlText:
        """Show the tables, for which the instance is asked."""
        return self.tables()._repr_html_()
