"""The port of what is published of tables for readers of Iceberg."""

from __future__ import annotations

from typing import Protocol

from dormouse.model.publications import PublicationRecord

LOST_PUBLICATION = "`dormouse iceberg publish NAME --all` publishes all of it again, from the state"
"""What to do about a record of a publication that is damaged or lost."""


class Publications(Protocol):
    """The record of what is published of each table, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed. All can be repeated.
    """

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none.

        Raises:
            CorruptDataError: it is damaged.
        """

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; return False if that is not there."""

    def delete(self, table_id: str) -> None:
        """Delete the record of a table, damaged or not; none is no error."""
