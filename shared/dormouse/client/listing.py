"""Lists of the client that show themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from dormouse.client.table import TableHandle
from dormouse.ports.services import JobRecord
from dormouse.showing import Listing


def listed_jobs(records: Iterable[JobRecord]) -> Listing[JobRecord]:
    """Return records as a list that shows itself."""
    columns = ("state", "kind", "subject", "rows", "seconds", "attempts", "reason")
    return Listing(
        records, "jobs", columns, lambda record: [getattr(record, name) for name in columns]
    )


def listed_tables(tables: Iterable[TableHandle]) -> Listing[TableHandle]:
    """Return tables as a list that shows itself."""
    return Listing(tables, "tables", ("name", "row keys", "columns", "created"), _table_row)


def _table_row(handle: TableHandle) -> Sequence[object]:
    created = datetime.fromtimestamp(handle.table.created_ms // 1000, UTC)
    return (
        handle.name,
        ", ".join(field.name for field in handle.schema.row_keys),
        len(handle.schema.fields),
        created.isoformat(sep=" ", timespec="minutes").removesuffix("+00:00"),
    )
