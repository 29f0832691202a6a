"""The tags of a table, and what must remove the rows that they hold."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.model.versions.pins import OwnerKind, Pin
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def tags_of(services: Services, table: Table) -> list[Pin]:
    """Return the tags of a table, by version.

    Raises:
        CorruptDataError: a pin is damaged.
    """
    pins = services.store(table).pins.all()
    return sorted((p for p in pins if p.owner.kind is OwnerKind.TAG), key=lambda pin: pin.version)


def refuse_tagged(services: Services, table: Table, removed: str) -> None:
    """Refuse to remove rows, described by `removed`, while tags hold versions with them.

    Raises:
        InvalidRequestError: the table has tags; the message names them.
        CorruptDataError: a pin is damaged.
    """
    names = [pin.owner.name for pin in tags_of(services, table)]
    if names:
        raise InvalidRequestError(
            f"{removed} of table {table.name!r} cannot be removed: tags hold them: "
            f"{', '.join(names)}",
            hint="release the tags with it: --release-tags, or release_tags in Python and requests",
        )


def release_tags(services: Services, table: Table) -> None:
    """Remove all tags of a table."""
    for pin in tags_of(services, table):
        services.store(table).pins.remove(pin.owner)
