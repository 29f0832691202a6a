"""Open the version that a query reads, and hold it by a pin."""

from __future__ import annotations

from dormouse.access.doors import allowed_table
from dormouse.access.visible import VisibleTable
from dormouse.features.queries.ending import owner
from dormouse.features.tables.versions import read_version
from dormouse.features.versions.as_of import read_as_of
from dormouse.model.state import DAY_MS, TableState
from dormouse.model.versions.as_of import AsOf
from dormouse.ports import Services
from dormouse.query_messages import AnswerQuery


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
