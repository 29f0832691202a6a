"""Look for the keys of removed rows in what is published for readers of Iceberg.

Manifests name the least and greatest key of each shard that they list. (Metadata and lists name no
keys, and files of dead rows only positions.) A shard whose object was checked for matching rows,
and has none, names no key of a removed row. Of one that is gone, the keys are looked for in the
table: one that no row has any more may be that of a removed row, if it is among those to remove.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.publishing.collect_iceberg import READERS_MS
from dormouse.features.purge.proof import RemainingObject
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.iceberg.files import avro
from dormouse.iceberg.files.entries import DATA
from dormouse.iceberg.types import named_keys
from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.ports.services import NoncurrentObject, Services, Storage, StoredObject
from dormouse.query.count import count_slices
from dormouse.readers.reading import Slice
from dormouse.stored.paths import MANIFEST_SUFFIX, iceberg_prefix, shard_id_of
from dormouse.tables.table import Table

Entry = Mapping[str, Any]


_PUBLISHED = "it names keys of removed rows, or may, and readers of Iceberg may have found it"
_KEPT = (
    "it names keys of removed rows, or may; it was deleted, and the bucket keeps earlier versions"
)
_BOUNDS = ("lower_bounds", "upper_bounds")


def list_published(services: Services, table: Table) -> list[StoredObject | NoncurrentObject]:
    """Return all that is published of a table, and the earlier versions that a bucket keeps."""
    prefix, storage = iceberg_prefix(table.id), services.storage
    return [*storage.list(prefix), *storage.list_noncurrent(prefix)]


@dataclass(frozen=True, slots=True)
class PublishedProof:
    """What a proof knows when it looks at what is published: the shards that it has checked and
    that hold no matching row are `clean`, those that hold some, or may, `holding`.
    """

    services: Services
    table: Table
    state: TableState
    matcher: RowMatcher
    clean: Collection[str]
    holding: Collection[str]

    def check(self, item: StoredObject | NoncurrentObject) -> RemainingObject | None:
        """Return what is wrong with an object; None if it names no key of a removed row."""
        if isinstance(item, NoncurrentObject):
            return self._check(item.stored, item.storage, _KEPT, item.until_ms)
        kept_ms = self.table.properties.gc_delay_seconds * 1000 + READERS_MS
        return self._check(item, self.services.storage, _PUBLISHED, item.modified_ms + kept_ms)

    def _check(
        self, stored: StoredObject, storage: Storage, reason: str, until_ms: int | None
    ) -> RemainingObject | None:
        if not stored.path.endswith(MANIFEST_SUFFIX):
            return None
        try:
            entries = avro.read_container(storage.get(stored.path))[1]
            if any(self._names_removed(file) for file in _files_of_rows(entries)):
                return RemainingObject(stored.path, 0, reason, until_ms)
        except NotFoundError:  # collected since it was listed
            pass
        except CorruptDataError as error:
            return RemainingObject(stored.path, None, f"it cannot be read: {error.explanation}")
        return None

    def _names_removed(self, file: Entry) -> bool:
        """Return whether an entry may name the key of a removed row."""
        shard = shard_id_of(file["file_path"])
        if shard in self.clean or shard in self.holding:
            return shard in self.holding
        keys = named_keys(
            self.table.schema,
            *({each["key"]: each["value"] for each in file.get(b) or ()} for b in _BOUNDS),
        )
        if keys is None:  # of another schema: what it names cannot be compared
            return True
        return any(self._is_removed(key) for key in keys)

    def _is_removed(self, key: KeyRange) -> bool:
        if not any(span.overlaps(key) for span in self.matcher.ranges):
            return False
        slices = [
            Slice(self.state.shards[reference.shard], part)
            for span, references in self.state.partitions_to_read(key)
            for reference in references
            if not (part := span.intersection(key)).is_empty()
        ]
        counts = count_slices(self.services.storage, self.table, slices, self.services.cache)
        return not any(counts)


def _files_of_rows(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the shards in a manifest. Those of a list have no file."""
    for entry in entries:
        if (file := entry.get("data_file")) and file.get("content") == DATA:
            yield file
