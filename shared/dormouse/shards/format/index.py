"""The index of a shard in memory: read once, and cached.

A look-up reads no more of the footer than the index in it (`stored_index`), and a merge decodes no
more. What asks statistics or Bloom filters needs the whole Parquet footer, which takes about eight
times its stored size in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow.parquet as pq

from dormouse.arrow.evolution import present_fields
from dormouse.cache import Cache
from dormouse.errors import DamagedShardError, InvariantError
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.shards import Shard
from dormouse.ports.services import Objects
from dormouse.schema.schema import Field, Schema
from dormouse.shards.format.crcs import Section, decode_entry, index_of
from dormouse.shards.format.footer import (
    ShardFooter,
    check_identity,
    check_names,
    footer_of,
    raise_damaged,
    read_index_entry,
    read_metadata,
    verified_footer,
)
from dormouse.shards.format.stored_index import StoredIndex, find_entry
from dormouse.stored.paths import shard_path

_MEMORY_PER_FOOTER_BYTE = 8
"""Measured: 413 KB for a footer of 57 KB."""
VALUE_BYTES = 4
"""What a value takes beside its bytes: the end of a text, or whether it is null."""


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The index of a shard, with the names of its columns by field id; and its whole Parquet footer
    if that was read, too.
    """

    stored: StoredIndex
    names: Mapping[int, str]
    footer: pq.FileMetaData | None = None

    @classmethod
    def of(cls, stored: StoredIndex, footer: pq.FileMetaData | None = None) -> Self:
        """Return the index that a footer has."""
        names = {field_id: column.name for field_id, (column, _) in stored.columns.items()}
        return cls(stored, names, footer)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet footer. Requires: it was asked for when the index was read."""
        if self.footer is None:
            raise InvariantError(f"the footer of shard {self.stored.shard_id} was not read")
        return self.footer

    @property
    def row_groups(self) -> int:
        """The number of row groups."""
        return len(self.stored.rows)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        footer_bytes = 0 if self.footer is None else self.footer.serialized_size
        return self.stored.size_bytes + _MEMORY_PER_FOOTER_BYTE * footer_bytes

    def rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        return self.stored.rows[group]

    def first_key(self, group: int) -> Key:
        """Return a key that no row of a row group is below, and no row before it above."""
        return self.stored.keys.first_key(group)

    def row_groups_to_read(self, wanted: KeyRange) -> range:
        """Return the row groups that can contain keys in `wanted`; they are contiguous."""
        return self.stored.keys.overlapping(wanted)

    def row_groups_within(self, wanted: KeyRange) -> range:
        """Return the row groups that certainly contain no key outside of `wanted`."""
        return self.stored.keys.within(wanted)

    def span(self, group: int, leaf: int) -> tuple[int, int]:
        """Return the offset of the first byte of a column chunk, and the offset after its last."""
        number = group * self.stored.leaves + leaf
        return self.stored.starts[number], self.stored.starts[number + 1]

    def has_dictionary(self, leaf: int) -> bool:
        """Return whether a chunk of a Parquet column may begin with a dictionary."""
        return self.stored.has_dictionary(leaf)

    def leaves(self, fields: Iterable[Field]) -> Iterator[tuple[str, int]]:
        """Yield the Parquet columns of some fields that the shard has, with the fields' names."""
        for field in present_fields(self.names, fields):
            column, first = self.stored.columns[field.id]
            for leaf in range(first, first + column.leaves):
                yield column.name, leaf

    def sections(self, groups: Iterable[int], fields: Iterable[Field]) -> Iterator[Section]:
        """Yield the chunks of some fields in some row groups."""
        wanted, stored = list(self.leaves(fields)), self.stored
        for group in groups:
            for name, leaf in wanted:
                at = group * stored.leaves + leaf
                start, end = stored.starts[at], stored.starts[at + 1]
                yield Section(start, end, stored.crc(at), group, name)

    def column_bytes(self, group: int, fields: Iterable[Field]) -> int:
        """Return the approximate size in memory of some columns of a row group."""
        first, ends_bytes = group * self.stored.leaves, VALUE_BYTES * self.rows(group)
        return sum(
            self.stored.memory_bytes(first + leaf) + ends_bytes for _, leaf in self.leaves(fields)
        )


def cached_index(
    table_id: str, shard_id: str, cache: Cache, *, footer: bool = False
) -> ShardIndex | None:
    """Return the index of a shard if it is in the cache, with the `footer` if that is needed."""
    kept = cache.get(shard_path(table_id, shard_id), ShardIndex)
    return None if kept is None or (footer and kept.footer is None) else kept


def read_index(
    objects: Objects,
    table_id: str,
    shard: Shard,
    schema: Schema,
    cache: Cache,
    *,
    footer: bool = False,
) -> ShardIndex:
    """Return the index of a shard, from the cache or by one or two reads at its end.

    With `footer`, all of the Parquet footer is read and verified.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged, or is not the shard that the state names.
    """
    kept = cached_index(table_id, shard.id, cache, footer=footer)
    if kept is not None:
        return kept
    path = shard_path(table_id, shard.id)
    if footer:
        metadata = read_metadata(objects, path, shard.size_bytes, schema.leaf_columns)
        check_identity(metadata, path, table_id, shard)
        index = ShardIndex.of(index_of(metadata, path), metadata)
    else:
        entry = read_index_entry(objects, path, shard.size_bytes, schema.leaf_columns)
        index = ShardIndex.of(decode_entry(entry, path))
        _check(index.stored, path, table_id, shard)
    cache.put(path, index, index.size_bytes)
    return index


def read_own_footer(
    objects: Objects, table_id: str, shard: Shard, schema: Schema, cache: Cache
) -> ShardFooter:
    """Return what a shard says about itself. Its index, which the same read brings, is in the cache
    then.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged, or is not the shard that the state names.
    """
    path = shard_path(table_id, shard.id)
    stored = verified_footer(objects, path, shard.size_bytes, schema.leaf_columns)
    index = ShardIndex.of(_index_in(stored, path))
    _check(index.stored, path, table_id, shard)
    cache.put(path, index, index.size_bytes)
    return footer_of(stored, path)


def check_footer(objects: Objects, table_id: str, shard: Shard, index: ShardIndex) -> None:
    """Check that the footer of a shard is as it was written, and has this index.

    Raises:
        NotFoundError: the shard is gone.
        DamagedShardError: it is damaged, or another one.
    """
    path = shard_path(table_id, shard.id)
    stored = verified_footer(objects, path, shard.size_bytes, index.stored.leaves)
    if _index_in(stored, path) != index.stored:
        raise DamagedShardError(f"{path} has another footer than it had before", path=path)


def _index_in(footer: bytes, path: str) -> StoredIndex:
    with raise_damaged(path):
        return decode_entry(find_entry(footer), path)


def _check(stored: StoredIndex, path: str, table_id: str, shard: Shard) -> None:
    """Check that an index is that of the shard that the state names."""
    check_names(path, (stored.table_id, stored.shard_id), (table_id, shard.id))
    rows = sum(stored.rows)
    if rows != shard.rows:
        raise DamagedShardError(
            f"{path} has {rows} rows, but the state says {shard.rows}", path=path
        )
    if stored.starts[-1] > shard.size_bytes:
        raise DamagedShardError(
            f"{path} is damaged: by its index, its rows end at byte {stored.starts[-1]:,} of "
            f"{shard.size_bytes:,}",
            path=path,
        )
