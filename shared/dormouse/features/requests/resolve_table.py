"""Resolve the table that a request names.

A name can be reused, so at a late redelivery it may belong to another table. So the first delivery
binds the request to the table that has the name then, before anything is done, and all later
deliveries use that table.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from dormouse.errors import NotFoundError
from dormouse.ports import NO_TABLE, Services
from dormouse.tables.table import Table, table_not_found


class Naming(Protocol):
    """A request that names a table."""

    @property
    def request_id(self) -> str:
        """The unique id of the request, which is the same in each delivery."""

    @property
    def name(self) -> str:
        """The name of the table when the request was made."""


def bound(services: Services, request: Naming) -> Table | None:
    """Return the table of a request, which may be in deletion; None if it was deleted since.

    Raises:
        NotFoundError: no table had that name; the hint has the nearest name.
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
    """Return the id of the table of a request, which may be deleted; `NO_TABLE` for none."""
    return _bind(services, request)[0]


def _bind(services: Services, request: Naming) -> tuple[str, Table | None]:
    found = services.tables.named(request.name)
    table_id = found.id if found is not None else NO_TABLE
    now_ms = services.clock.now_ms()
    return services.tracker.bind(binding_key(request), table_id, now_ms), found


def named(services: Services, request: Naming) -> Table:
    """Return the table of a request, which may be in deletion.

    Raises:
        NotFoundError: no table had that name, or it was deleted.
    """
    table = bound(services, request)
    if table is None:
        raise NotFoundError(f"the table {request.name!r} that this is about was deleted")
    return table


def living(services: Services, request: Naming) -> Table:
    """Return the table of a request, if it is not in deletion.

    Raises:
        NotFoundError: no table had that name, or it was deleted, or is in deletion.
    """
    table = named(services, request)
    if table.deleting:
        raise NotFoundError(f"table {request.name!r} is being deleted")
    return table


def binding_key(request: Naming) -> str:
    """Return the key of a request's binding; the same id with another name is another request."""
    text = f"{request.request_id}\n{request.name}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
