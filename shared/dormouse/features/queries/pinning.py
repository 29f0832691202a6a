"""Open the version that a query reads, and hold it by a pin; find and remove its pins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dormouse.access.doors import allowed_table
from dormouse.access.visible import VisibleTable
from dormouse.features.queries.query import Query
from dormouse.features.tables.versions import read_version
from dormouse.features.versions.as_of import read_as_of
from dormouse.model.state import DAY_MS, TableState
from dormouse.model.versions.as_of import AsOf, parse_as_of
from dormouse.model.versions.pins import OwnerKind, Pin, PinOwner
from dormouse.ports import Services
from dormouse.query_messages import AnswerQuery
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.statements.scans import Tables

Opening: TypeAlias = Callable[
    [Services, AnswerQuery, str, AsOf | None], tuple[VisibleTable, TableState]
]
"""Opens a table at a version for who asks."""


def open_readable(
    services: Services, asked: AnswerQuery, name: str, as_of: AsOf | None
) -> tuple[VisibleTable, TableState]:
    """Return a table as who asks may see it, and its state at a version, which nothing holds.

    Raises:
        NotFoundError: there is no such table for who asks, or no such version any more.
        ForbiddenError: who asks may not read the table.
    """
    visible = allowed_table(services, asked.who, name, "read")
    table, state = read_as_of(services, visible.table, as_of)
    return VisibleTable.of(table, visible.permission), state


def open_pinned(
    services: Services, asked: AnswerQuery, name: str, as_of: AsOf | None
) -> tuple[VisibleTable, TableState]:
    """Return a table as who asks may see it, and its state at the version to read, which is pinned.

    A query that runs for a second time reads the version that it pinned first. The pin ends a day
    after the time of the query, if nobody removes it.

    Raises:
        NotFoundError: there is no such table for who asks; or no such version any more, or it is
            about to expire.
        ForbiddenError: who asks may not read the table.
        ContendedError: it took too long; nothing is pinned.
    """
    visible, state = open_readable(services, asked, name, as_of)
    table, permission = visible.table, visible.permission
    if state.reference_count:
        seconds = asked.limits.seconds or table.properties.query_limit_seconds
        expires_ms = services.clock.now_ms() + seconds * 1000 + DAY_MS
        pins = services.store(table).pins
        pin = pins.add(owner(asked.query_id, as_of), state, expires_ms=expires_ms)
        if pin.version != state.version:
            table, state = read_version(services, table, version=pin.version)
    return VisibleTable.of(table, permission), state


def statement_tables(
    services: Services,
    query: Query,
    read: dict[str, set[str]] | None = None,
    *,
    opening: Opening = open_pinned,
) -> Tables:
    """Return the tables of a statement as who asks may see them, each at one version.

    The columns that are read of those that are opened are added to `read`, by the ids of tables.
    """
    from dormouse.statements.scans import Tables

    def opened(name: str, as_of: str) -> tuple[VisibleTable, TableState]:
        at = parse_as_of(as_of) if as_of else None
        return opening(services, query.asked, name, at)

    return Tables(services, opened, query.begun_ms, {} if read is None else read)


def owner(query_id: str, as_of: AsOf | None = None) -> PinOwner:
    """Return the owner of the pin of a table that a query reads as of some version.

    A statement may read several versions of one table, each held by a pin of its own.
    """
    return PinOwner(OwnerKind.QUERY, f"{query_id}@{'' if as_of is None else as_of}")


def query_of(pin: Pin) -> str | None:
    """Return the query that a pin is of; None if it is of something else."""
    if pin.owner.kind is not OwnerKind.QUERY:
        return None
    return pin.owner.name.partition("@")[0]


def unpin(services: Services, table: Table, query_id: str) -> None:
    """Remove all pins of a query on a table."""
    pins = services.store(table).pins
    for pin in pins.all():
        if query_of(pin) == query_id:
            pins.remove(pin.owner)
