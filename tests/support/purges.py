"""Purges as a request would begin them."""

from __future__ import annotations

from dormouse.access import EVERYTHING
from dormouse.features.purge import PurgeRequest
from dormouse.messages.stages import SelectionMessage
from dormouse.query.selection import decode_selection, store_selection
from dormouse.schema.schema import Schema


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
    return PurgeRequest(store_selection(selection, schema), purge_id)
