"""The pins of queries: each holds a version of a table that a query reads."""

from __future__ import annotations

from dormouse.model.versions.as_of import AsOf
from dormouse.model.versions.pins import OwnerKind, Pin, PinOwner
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def owner(query_id: str, as_of: AsOf | None = None) -> PinOwner:
    """Return the owner of the pin of a table that a query reads as of some version.

    A statement may read several versions of one table, each held by a pin of its own.
    """
    return PinOwner(OwnerKind.QUERY, f"{query_id}@{'' if as_of is None else as_of}")


def query_of(pin: Pin) -> str | None:
    """Return the query that a pin is of; None if it is of something else."""
    if pin.owner.kind is not OwnerKind.QUERY:
        return None
    return pin.owner.name.partition("@")[0]


def unpin(services: Services, table: Table, query_id: str) -> None:
    """Remove all pins of a query on a table."""
    pins = services.store(table).pins
    for pin in pins.all():
        if query_of(pin) == query_id:
            pins.remove(pin.owner)
