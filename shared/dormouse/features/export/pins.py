"""The pin of an export: it holds the version that is exported for as long as the export runs.

The request pins the version before it saves the export. An export runs as long as its stored object
is there, so the sweep removes the pin of one that has none: tasks need no right to the state. A pin
that was put a moment ago may be of a request that is about to save its export.
"""

from __future__ import annotations

from dormouse.features.tables.versions import read_version
from dormouse.model.state import DAY_MS, TableState
from dormouse.model.versions.pins import OwnerKind, Pin, PinOwner
from dormouse.ports.services import Services
from dormouse.stored.paths import export_path
from dormouse.tables.table import Table

REQUEST_MS = 15 * 60 * 1000
"""How long a request may take between its pin and its export; no function runs for longer."""
LONGEST_MS = 14 * DAY_MS
"""For how long the pin of an export that never ends holds its version: as long as messages live."""


def pin_export(services: Services, table: Table, state: TableState, export_id: str) -> TableState:
    """Pin the version that an export is about to read; return the version to read.

    That is the one of another delivery of the request, if that was quicker.

    Raises:
        NotFoundError: shards of that version are deleted, or may be at any moment; or the other
            delivery's version has rows of an earlier schema.
        ContendedError: it took too long; nothing is pinned.
    """
    if not state.reference_count:
        return state
    expires_ms = services.clock.now_ms() + LONGEST_MS
    owner = PinOwner(OwnerKind.EXPORT, export_id)
    pin = services.store(table).pins.add(owner, state, expires_ms=expires_ms)
    if pin.version == state.version:
        return state
    return read_version(services, table, version=pin.version)[1]


def unpin_ended(services: Services, table: Table) -> None:
    """Remove the pins of exports that have ended, or were never saved."""
    pins = services.store(table).pins
    for pin in pins.all():
        if pin.owner.kind is OwnerKind.EXPORT and _has_ended(services, table, pin):
            pins.remove(pin.owner)


def _has_ended(services: Services, table: Table, pin: Pin) -> bool:
    """Return whether no export is stored, and none is about to be; a damaged one is stored."""
    path = export_path(table.id, pin.owner.name)
    if any(stored.path == path for stored in services.storage.list(path)):
        return False
    record = services.tracker.get(table.id, pin.owner.name)
    is_recorded = record is not None and record.is_finished
    return is_recorded or pin.pinned_ms < services.clock.now_ms() - REQUEST_MS
