"""The versions of one table as a client sees them: list, tag, untag, restore."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dormouse.client.access import TableAccess
from dormouse.showing import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dormouse.client.reading.iceberg import IcebergTable
    from dormouse.client.reading.versions import Tag, Version
    from dormouse.model.versions.as_of import AsOf
    from dormouse.query.result import QueryResult


@dataclass(frozen=True, slots=True, repr=False)
class VersionedTable(TableAccess):
    """A table, and its versions."""

    def versions(self) -> Listing[Version]:
        """Return the versions that can be read, the newest first, each with its tags.

        Raises:
            NotFoundError: the table was deleted.
            CorruptDataError: a tag is damaged.
        """
        from dormouse.client.reading.versions import versions_of

        return versions_of(self.services, self.current())

    def changes(
        self,
        since: AsOf,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> QueryResult:
        """Return the rows that were ingested after a version, given by number, tag or time.

        They are read from the shards as ingest wrote them, in no particular order: rows that
        compactions rewrote come once, and the table's filters and aggregations are not applied
        again. The result's version is the one to ask for the next changes since.

        Raises:
            InvalidRequestError: it is neither a version nor a tag nor a time with a zone; or a
                column or the condition does not fit the schema.
            NotFoundError: the version is yet to come, or its changes are not kept any more; or the
                table was reset, restored or rebuilt since, or deleted.
        """
        from dormouse.client.reading.versions import changes_of

        return changes_of(self.services, self.current(), since, columns, where, limit)

    def tag(self, version: int | dt.datetime, name: str) -> Tag:
        """Name a version, by its number or a time; it is kept until `untag`.

        Raises:
            InvalidRequestError: it cannot be the name of a tag.
            AlreadyExistsError: the table has such a tag, of another version.
            NotFoundError: the version is not kept any more, or is yet to come.
            ContendedError: it took too long; nothing is tagged.
        """
        from dormouse.client.reading.versions import tag_version

        return tag_version(self, version, name)

    def untag(self, name: str) -> None:
        """Remove a tag; what only its version needs is deleted in time.

        Raises:
            NotFoundError: the table has no such tag, or was deleted.
        """
        from dormouse.client.reading.versions import untag_version

        untag_version(self, name)

    def restore(self, version: AsOf) -> int:
        """Make an earlier version the newest, by its number, a tag or a time; return the number of
        the newest version then.

        All rows and partitions are those of that version. Jobs are released, and files that were
        ingested since can be ingested again. What was newest before can be restored in turn for as
        long as it is kept.

        Raises:
            InvalidRequestError: it is neither a version nor a tag nor a time, or is the newest.
            NotFoundError: the version is not kept, or a shard of it is gone; or the table was
                deleted.
            ContendedError: the table was reset meanwhile; try again.
            CorruptDataError: what the version needs is damaged.
        """
        from dormouse.client.reading.versions import restore_version

        return restore_version(self, version)

    def tags(self) -> Listing[Tag]:
        """Return the tags of the table, by version. Raises CorruptDataError if one is damaged."""
        from dormouse.client.reading.versions import tags_of

        return tags_of(self.services, self.current())

    @property
    def iceberg(self) -> IcebergTable:
        """What the table publishes for readers of Iceberg."""
        from dormouse.client.reading.iceberg import IcebergTable

        return IcebergTable(self)
