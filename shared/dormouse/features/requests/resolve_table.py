"""Resolve the table that a request names.

A name can be reused, so at a late redelivery it may belong to another table. So the first delivery
binds the request to the table that has the name then, before anything is done, and all later
deliveries use that table.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from dormouse.errors import NotFoundError
from dormouse.ports.services import NO_TABLE, Services
from dormouse.tables.table import Table, table_not_found


class NamesTable(Protocol):
    """A request that names a table."""

    @property
    def request_id(self) -> str:
        """The unique id of the request, which is the same in each delivery."""

    @property
    def name(self) -> str:
        """The name of the table when the request was made."""


def request_key(request: NamesTable) -> str:
    """Return the key under which a request is bound and stored.

    It is made from the request's id and table name: the same id with another name is another
    request.
    """
    return key_of_request(request.request_id, request.name)


def key_of_request(request_id: str, name: str) -> str:
    """Return the `request_key` of the request of this id about the table of this name."""
    text = f"{request_id}\n{name}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def resolve_live_table(services: Services, request: NamesTable) -> Table:
    """Return the table of a request, if it is not in deletion.

    Raises:
        NotFoundError: no table had that name, or it is deleted or in deletion.
    """
    table = resolve_table(services, request)
    if table.deleting:
        raise NotFoundError(f"table {request.name!r} is being deleted")
    return table


def resolve_table(services: Services, request: NamesTable) -> Table:
    """Return the table of a request, which may be in deletion.

    Raises:
        NotFoundError: no table had that name, or it is deleted.
    """
    table = find_table(services, request)
    if table is None:
        raise NotFoundError(f"table {request.name!r} was deleted after the request was first made")
    return table


def find_table(services: Services, request: NamesTable) -> Table | None:
    """Return the table of a request, which may be in deletion; None if it is deleted.

    Raises:
        NotFoundError: no table had that name; the hint has the nearest name.
    """
    table_id, found = _bind(services, request)
    if table_id != NO_TABLE:
        return services.tables.get(table_id)
    if found is None:
        raise table_not_found(request.name, services.tables.list_readable()[0])
    raise NotFoundError(
        f"no table was named {request.name!r} when this request was first made",
        hint="send the request with another request_id",
    )


def resolve_table_id(services: Services, request: NamesTable) -> str:
    """Return the id of the table of a request, which may be deleted; `NO_TABLE` for none."""
    return _bind(services, request)[0]


def _bind(services: Services, request: NamesTable) -> tuple[str, Table | None]:
    """Bind a request; return the id of its table, and the table that has the name now."""
    found = services.tables.named(request.name)
    table_id = found.id if found is not None else NO_TABLE
    now_ms = services.clock.now_ms()
    return services.tracker.bind(request_key(request), table_id, now_ms), found
