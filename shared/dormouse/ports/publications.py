"""The ports of what is published of tables for readers of Iceberg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dormouse.model.versions.publications import PublicationRecord

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


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table as Glue has it: the URIs of its metadata and of all that is published of it, and its
    columns as pairs of a name and a type of Hive. `table_id` says whose entry it is.
    """

    table_id: str
    metadata: str
    location: str
    columns: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What of an entry of Glue decides how it is replaced. `table_id` is empty if it is not ours;
    `version` changes with each change.
    """

    table_id: str
    metadata: str
    version: str


class Mirror(Protocol):
    """A database of Glue, in which AWS's engines find tables, by names in lower case.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead. All can be repeated.
    """

    @property
    def database(self) -> str:
        """The name of the database; empty if the instance has none."""

    def get(self, name: str) -> MirrorEntry | None:
        """Return an entry; None if there is none."""

    def put(self, name: str, table: MirroredTable, old: MirrorEntry | None) -> bool:
        """Put an entry in the place of another, or of none; return False if that is not there."""

    def delete(self, name: str) -> None:
        """Delete an entry; none is no error."""
