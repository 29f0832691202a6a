"""The table a request is about."""

from __future__ import annotations

from dormouse.errors import NotFoundError
from dormouse.model.tables import Table, unknown_table
from dormouse.ports import Services


def named(services: Services, name: str) -> Table:
    """Give the table of that name, which may be in deletion.

    Raises:
        NotFoundError: there is none; the hint names the nearest.
    """
    table = services.tables.named(name)
    if table is None:
        raise unknown_table(name, services.tables.all())
    return table


def living(services: Services, name: str) -> Table:
    """Give the table of that name, if it is not in deletion.

    Raises:
        NotFoundError: there is none, or it is.
    """
    table = named(services, name)
    if table.deleting:
        raise NotFoundError(f"table {name!r} is being deleted")
    return table
