"""The table a request is about.

A request names its table, and names can be given anew: by a late redelivery, that of one may be
another table's. So the first delivery binds a request to the table that has the name then, before
anything is done, and all later ones are about that one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from dormouse.errors import NotFoundError
from dormouse.ports import NO_TABLE, Services
from dormouse.tables.table import Table, table_not_found


class Naming(Protocol):
    """A request about a table."""

    @property
    def request_id(self) -> str:
        """What tells the request from all others, and is the same in each delivery."""

    @property
    def name(self) -> str:
        """What the table was called when it was asked for."""


def bound(services: Services, request: Naming) -> Table | None:
    """Return the table a request is about, which may be in deletion; None if it is gone since.

    Raises:
        NotFoundError: there was none of that name; the hint names the nearest.
    """
    table_id, found = _bind(services, request)
    if table_id != NO_TABLE:
        return services.tables.get(table_id)
    if found is None:
        raise table_not_found(request.name, services.tables.list_readable()[0])
    raise NotFoundError(
        f"there was no table {request.name!r} when this was asked for first",
        hint="ask again under another request_id",
    )


def bound_id(services: Services, request: Naming) -> str:
    """Return the id of the table a request is about, which may be gone; `NO_TABLE` if of none."""
    return _bind(services, request)[0]


def _bind(services: Services, request: Naming) -> tuple[str, Table | None]:
    found = services.tables.named(request.name)
    table_id = found.id if found is not None else NO_TABLE
    now_ms = services.clock.now_ms()
    return services.tracker.bind(binding_key(request), table_id, now_ms), found


def named(services: Services, request: Naming) -> Table:
    """Return the table a request is about, which may be in deletion.

    Raises:
        NotFoundError: there was none of that name, or it is gone.
    """
    table = bound(services, request)
    if table is None:
        raise NotFoundError(f"the table {request.name!r} that this is about was deleted")
    return table


def living(services: Services, request: Naming) -> Table:
    """Return the table a request is about, if it is not in deletion.

    Raises:
        NotFoundError: there was none of that name, or it is gone, or in deletion.
    """
    table = named(services, request)
    if table.deleting:
        raise NotFoundError(f"table {request.name!r} is being deleted")
    return table


def binding_key(request: Naming) -> str:
    """Return what a request is bound under: who uses an id again for another name means that
    one."""
    text = f"{request.request_id}\n{request.name}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
