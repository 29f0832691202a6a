"""Open the tables that a query reads, each at one version, which a pin holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dormouse.access.doors import allowed_table
from dormouse.access.visible import VisibleTable
from dormouse.features.queries.pinning import owner
from dormouse.features.queries.query import Query
from dormouse.features.tables.versions import read_version
from dormouse.features.versions.as_of import read_as_of
from dormouse.messages.queries import AnswerQuery
from dormouse.model.state import DAY_MS, TableState
from dormouse.model.versions.as_of import AsOf, parse_as_of
from dormouse.ports.services import Services

if TYPE_CHECKING:
    from dormouse.statements.tables import Tables


def open_readable(
    services: Services, asked: AnswerQuery, name: str, as_of: AsOf | None
) -> tuple[VisibleTable, TableState]:
    """Return a table as who asks may see it, and its state at a version, which nothing holds.

    Raises:
        NotFoundError: there is no such table for the one who asks, or no such version any more.
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
        NotFoundError: there is no such table for the one who asks; or no such version any more, or
            it is about to expire.
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


def statement_tables(services: Services, query: Query, read: dict[str, set[str]]) -> Tables:
    """Return the tables of a statement as who asks may see them, each at one version, which is
    pinned.

    The columns that are read of those that are opened are added to `read`, by the ids of tables.
    """
    from dormouse.statements.tables import Tables

    def opened(name: str, as_of: str) -> tuple[VisibleTable, TableState]:
        at = parse_as_of(as_of) if as_of else None
        return open_pinned(services, query.asked, name, at)

    return Tables(services, opened, query.begun_ms, columns=read)
