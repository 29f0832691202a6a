"""The stored pins of a table's versions, by owner: a port of `statestore.pinning`.

They are implemented beside the pages of logs, by `items.pins`.
"""

from __future__ import annotations

from typing import Protocol

from dormouse.errors import CorruptDataError
from dormouse.model.versions.pins import Pin, PinOwner


def damaged_pin(owner: str, table_id: str) -> CorruptDataError:
    """Return the error of a stored pin that cannot be read."""
    return CorruptDataError(
        f"the pin {owner} of table {table_id} is damaged, so no shard of it can be deleted",
        hint="remove a tag by `dormouse untag NAME TAG`, and tag the version again",
    )


class Pins(Protocol):
    """The pins of many tables, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be later. All can be
    repeated.
    """

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner.

        Raises:
            CorruptDataError: one is damaged.
        """

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete the pin of an owner, whatever it holds; return whether there was one.

        With `only`, delete it if it is this pin, unchanged.
        """

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
