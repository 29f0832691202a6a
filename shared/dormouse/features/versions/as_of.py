"""The version that is asked for: by its number, a tag, or a time."""

from __future__ import annotations

import datetime as dt

from dormouse.features.tables.versions import RangesOf, read_version
from dormouse.features.versions.tags import tagged
from dormouse.model.state import TableState
from dormouse.model.versions.as_of import AsOf, checked_as_of, milliseconds_of
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def read_as_of(
    services: Services, table: Table, as_of: AsOf | None, *, ranges_of: RangesOf | None = None
) -> tuple[Table, TableState]:
    """Return a table as it is now, and its state at a version, tag or time; the newest for None.

    With `ranges_of`, the newest state may have only what readers of these keys need.

    Raises:
        InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
        NotFoundError: the table was deleted, or has no such tag; or that version is not kept any
            more, is yet to come, or has rows of an earlier schema.
    """
    if as_of is None:
        return read_version(services, table, ranges_of=ranges_of)
    as_of = checked_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        return read_version(services, table, time_ms=milliseconds_of(as_of))
    if isinstance(as_of, str):
        as_of = tagged(services, table, as_of).version
    return read_version(services, table, version=as_of)
