"""Purges as a request would begin them."""

from __future__ import annotations

from msgspec import structs

from dormouse.access import EVERYTHING
from dormouse.features.delete_rows import build_deletions, hide_rows
from dormouse.features.purge import REQUEST, PurgeRequest
from dormouse.messages.stages import SelectionMessage
from dormouse.ports import Services
from dormouse.query.selection import decode_selection, store_selection
from dormouse.schema.schema import Schema
from dormouse.stored.paths import PURGES
from dormouse.tables.table import Table


def purge_request(
    schema: Schema,
    where: str = "",
    *,
    keys: tuple[tuple[object, ...], ...] = (),
    purge_id: str = "p",
    time_ms: int = 0,
) -> PurgeRequest:
    """Return a purge of generation 0."""
    asked = SelectionMessage(keys=keys, where=where)
    selection = decode_selection(asked, schema, permission=EVERYTHING, version=1, time_ms=time_ms)
    return PurgeRequest(store_selection(selection, schema), purge_id, ())


def begin_purge(services: Services, table: Table, where: str, purge_id: str) -> None:
    """Begin a purge of this id: hide its rows, and put its request."""
    now_ms = services.clock.now_ms()
    deletions = build_deletions(table, purge_id, SelectionMessage(where=where), now_ms)
    hidden = hide_rows(services, table, services.store(table).current(), list(deletions))
    request = purge_request(table.schema, where, purge_id=purge_id, time_ms=now_ms)
    path = PURGES.path(table.id, purge_id)
    REQUEST.put(services.storage, path, structs.replace(request, deletions=hidden))
