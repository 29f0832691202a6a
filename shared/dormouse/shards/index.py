"""The index of a shard: its Parquet footer, read once and cached, and
the key ranges of its row groups.

A footer in memory takes about eight times its stored size. Row groups are found by bisection, so
looking up a thousand keys of one shard costs little more than looking up one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, overload

import pyarrow.parquet as pq

from dormouse.arrow.evolution import names_by_id, stored_names
from dormouse.arrow.statistics import key_span, may_contain
from dormouse.cache import Cache
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.shards import Shard
from dormouse.ports import Objects
from dormouse.schema.schema import Field, Schema
from dormouse.shards.crcs import Crcs, belongs_to, read_crcs
from dormouse.shards.footer import check_identity, read_metadata
from dormouse.stored.paths import shard_path

_MEMORY_PER_FOOTER_BYTE = 8
"""Measured: 413 KB for a footer of 57 KB."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
"""The size in memory of a value, in bytes, by Parquet's physical type;
other types have no fixed size.
"""
_OFFSET_BYTES = 4


Span = tuple[Key, Key | None]
"""Prefixes of a row group's least and greatest key; the greatest is None if nothing is known."""


class KeySpans(Sequence[Span]):
    """The key spans of a shard's row groups, each of which is found when it is asked for.

    A look-up bisects them, so it needs a few. To find all of them takes most of the time in which a
    footer is read.
    """

    def __init__(self, metadata: pq.FileMetaData, keys: Sequence[Field]) -> None:
        """Find spans of rows sorted by `keys`, which are the first columns."""
        self._metadata, self._keys = metadata, keys
        self._found: list[Span | None] = [None] * metadata.num_row_groups

    def __len__(self) -> int:
        """Return the number of row groups."""
        return len(self._found)

    @overload
    def __getitem__(self, number: int) -> Span: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Span]: ...

    def __getitem__(self, number: int | slice) -> Span | Sequence[Span]:
        """Return the span of one row group, or of some."""
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        found = self._found[number]
        if found is None:
            found = key_span(self._metadata.row_group(number % len(self)), self._keys)
            self._found[number] = found
        return found


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The Parquet footer of a shard, with prefixes of each row group's least and greatest key.

    `spans` are the prefixes, `names` the names of its columns by field id, `keys` the fields by
    which it is sorted.
    `flat` are the places of the columns that are not nested. `crcs` are None if it was written
    without CRCs.
    """

    metadata: pq.FileMetaData
    names: Mapping[int, str]
    spans: Sequence[Span]
    keys: tuple[Field, ...]
    flat: Mapping[str, int]
    crcs: Crcs | None = None

    def row_groups_in(self, wanted: KeyRange) -> range:
        """Return the row groups that can contain keys in `wanted`, by their first and last keys.

        Rows are sorted, so the row groups are contiguous. For example, if the spans of three row
        groups are a … c, c … f and g … k, keys in [c, g) can be in the row groups 0 and 1; keys in
        [d, h) in the row groups 1 and 2.
        """
        if wanted.is_empty():
            return range(0)
        first = bisect_left(self.spans, True, key=lambda span: _reaches(span[1], wanted.min))
        if wanted.max is None:
            return range(first, len(self.spans))
        return range(first, bisect_left(self.spans, wanted.max, lo=first, key=lambda span: span[0]))

    def row_groups_to_read(self, wanted: KeyRange) -> range:
        """Return the row groups whose statistics allow a key in `wanted`; they are contiguous, too.

        The spans of `row_groups_in` are prefixes of keys, so more columns are compared here. Only
        the two outermost row groups need that: in the others, all rows agree in the parts of which
        the range has a single value.
        """
        among = self.row_groups_in(wanted)
        first, last = among.start, among.stop
        while first < last and not self._may_hold(first, wanted):
            first += 1
        while first < last and not self._may_hold(last - 1, wanted):
            last -= 1
        return range(first, last)

    def _may_hold(self, number: int, wanted: KeyRange) -> bool:
        return may_contain(self.metadata.row_group(number), wanted, self.keys)

    def row_groups_within(self, wanted: KeyRange) -> range:
        """Return the row groups that certainly contain no key outside
        `wanted`; they are contiguous, too.
        """
        among = self.row_groups_in(wanted)
        first, last = among.start, among.stop
        while first < last and not wanted.min <= self.spans[first][0]:
            first += 1
        while first < last and not _ends_before(self.spans[last - 1][1], wanted.max):
            last -= 1
        return range(first, last)

    def column_bytes(self, group: int, fields: Iterable[Field]) -> int:
        """Return the approximate size in memory of some columns of a row group."""
        columns = stored_names(self.names, fields).values()
        chunks = self.metadata.row_group(group)
        return sum(
            _memory_bytes(chunk)
            for chunk in (chunks.column(i) for i in range(chunks.num_columns))
            if belongs_to(chunk.path_in_schema, columns)
        )


def _memory_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the approximate size of a column chunk when decoded;
    encodings may store it in far less.
    """
    width = _WIDTHS.get(chunk.physical_type, 0)
    statistics = chunk.statistics if chunk.has_dictionary_page else None
    if not width and statistics is not None and statistics.has_min_max:
        ends = cast(bytes, statistics.min_raw), cast(bytes, statistics.max_raw)
        width = _OFFSET_BYTES + sum(map(len, ends)) // 2
    return max(chunk.total_uncompressed_size, width * chunk.num_values)


def _reaches(high: Key | None, least: Key) -> bool:
    """Return whether a key that begins with `high`, or one before
    it, may be at or above `least`.
    """
    return high is None or least[: len(high)] <= high


def _ends_before(high: Key | None, end: Key | None) -> bool:
    """Return whether all keys up to those that begin with `high` are below `end`."""
    return end is None or (high is not None and high < end[: len(high)])


def _flat_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    """Return the places of flat columns among Parquet's, by name.

    Parquet's columns are the leaves of nested ones, with paths like ``a.list.element``. What could
    also be the name of a flat column is left out.
    """
    paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    times = Counter(paths)
    return {path: i for i, path in enumerate(paths) if times[path] == 1}


def cached_index(table_id: str, shard_id: str, cache: Cache) -> ShardIndex | None:
    """Return the index of a shard if it is in the cache."""
    return cache.get(shard_path(table_id, shard_id), ShardIndex)


def read_index(
    objects: Objects, table_id: str, shard: Shard, schema: Schema, cache: Cache
) -> ShardIndex:
    """Return the index of a shard, from the cache or by reading its footer.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged, or is not the shard that the state names.
    """
    path = shard_path(table_id, shard.id)
    kept = cache.get(path, ShardIndex)
    if kept is not None:
        return kept
    metadata = read_metadata(objects, path, shard.size_bytes, schema.leaf_columns)
    check_identity(metadata, path, table_id, shard)
    index = ShardIndex(
        metadata,
        names_by_id(metadata),
        KeySpans(metadata, schema.keys),
        schema.keys,
        _flat_columns(metadata),
        read_crcs(metadata, path),
    )
    cache.put(path, index, _MEMORY_PER_FOOTER_BYTE * metadata.serialized_size)
    return index
