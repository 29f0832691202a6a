"""Select a version of a table: the newest, one by its number, or the one of a time."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, TypeAlias

from dormouse.errors import InvalidRequestError
from dormouse.ports import Services
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.model.state import TableState


AsOf: TypeAlias = int | dt.datetime
"""A version, or an aware time."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def table_as_of(services: Services, table: Table, as_of: AsOf | None) -> tuple[Table, TableState]:
    """Return a table as it is now, and its state at a version or a time; the newest for None.

    Raises:
        InvalidRequestError: it is not a version, or a time without a zone.
        NotFoundError: the table was deleted, or that version is not kept any more, is yet to come,
            or has rows of an earlier schema.
    """
    from dormouse.features.tables.versions import read_version

    if as_of is None:
        return read_version(services, table)
    check_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        return read_version(services, table, time_ms=(as_of - _EPOCH) // _MILLISECOND)
    return read_version(services, table, version=as_of)


def check_as_of(as_of: object) -> None:
    """Refuse what cannot be a version of any table.

    Raises:
        InvalidRequestError: it is not a version, or a time without a zone.
    """
    if isinstance(as_of, dt.datetime):
        if as_of.tzinfo is None:
            raise InvalidRequestError(
                f"the time {as_of} has no time zone", hint="give it one, as UTC"
            )
    elif isinstance(as_of, bool) or not isinstance(as_of, int) or as_of < 0:
        raise InvalidRequestError(
            f"{as_of!r} is not a version of a table",
            hint="give its number, or a time with its zone",
        )


def parse_as_of(text: str) -> AsOf:
    """Parse the number of a version, or a time; a time without a zone is UTC.

    Raises:
        InvalidRequestError: it is neither.
    """
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is neither a version nor a time",
            hint="a version is a whole number, a time is as 2026-01-31T12:00:00Z",
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
