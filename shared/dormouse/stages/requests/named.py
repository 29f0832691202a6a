"""The table a request is about."""

from __future__ import annotations

from dormouse.errors import NotFoundError
from dormouse.model.tables import Table
from dormouse.ports import Services


def named(services: Services, name: str) -> Table:
    """Give the table of that name, which may be in deletion.

    Raises:
        NotFoundError: there is none.
    """
    table = services.tables.named(name)
    if table is None:
        raise NotFoundError(f"there is no table {name!r}", hint="list the tables")
    return table
