"""How far what is published of a table is behind the table."""

from __future__ import annotations

from dormouse.model.state import TableState
from dormouse.ports.services import Services
from dormouse.tables.published import is_mirrored, is_published
from dormouse.tables.table import Table

_SEEN = frozenset({"add shards", "replace shards", "reset table", "restore version"})
"""The changes of a table that its readers can see, or that its garbage waits for."""


def lag_ms(services: Services, table: Table, state: TableState) -> int:
    """Return for how long a change has waited to be published, in Glue too if it is to be there; 0
    if none waits.
    """
    if not is_published(table.properties):
        return 0
    record = services.publications.get(table.id)
    newest = record.newest if record is not None and record.metadata else None
    if record is not None and newest is not None and newest.covers(table.state_id, state):
        is_behind = is_mirrored(table.properties) and record.mirrored != record.metadata
        return max(0, services.clock.now_ms() - newest.published_ms) if is_behind else 0
    is_same = newest is not None and newest.state_id == table.state_id
    published = newest.version if newest is not None and is_same else 0
    for version in services.store(table).history():
        if version.version > published and (not version.changes or _SEEN & {*version.changes}):
            return max(0, services.clock.now_ms() - version.time_ms)
    return 0
