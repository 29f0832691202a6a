"""Find the row groups of shards that can hold the rows of key ranges.

A look-up needs one read of the index at the end of the shard, which is cached, and one read of the
row groups that may have keys of the range. The size of a shard is known from the state, so no
request is needed to find its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow.parquet as pq

from dormouse.arrow.ranges import fit_range
from dormouse.cache import Cache
from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import Shard
from dormouse.ports.services import Objects
from dormouse.readers.threads import reading_threads
from dormouse.schema.schema import Schema
from dormouse.shards.format.footer import ShardFooter
from dormouse.shards.format.index import (
    ShardIndex,
    cached_index,
    read_index,
    read_own_footer,
)


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a shard whose keys are in a range."""

    shard: Shard
    range: KeyRange

    @property
    def is_whole(self) -> bool:
        """Return whether the slice contains all rows of the shard."""
        return self.range.contains_span(self.shard.low, self.shard.high)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a shard that can hold the rows of a slice.

    Those `excluded` hold no row that a query wants, and are not among `numbers`.
    """

    slice: Slice
    index: ShardIndex
    numbers: Sequence[int]
    excluded: frozenset[int] = frozenset()

    def without(self, excluded: frozenset[int]) -> RowGroups:
        """Return these row groups without some."""
        left = tuple(number for number in self.numbers if number not in excluded)
        return replace(self, numbers=left, excluded=self.excluded | excluded)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet footer of the shard. Requires: it was asked for when the index was read."""
        return self.index.metadata

    @property
    def first_bytes(self) -> range:
        """The first bytes of its row groups are in this range, and of no others beyond them.

        Requires: there are row groups.
        """
        first, last = (self.index.span(self.numbers[at], 0)[0] for at in (0, -1))
        return range(first, last + 1)

    def within(self, span: KeyRange, schema: Schema) -> RowGroups:
        """Return it with the row groups that can hold rows in `span`, too, of the same slice."""
        return replace(self, numbers=narrow(self, span, schema).numbers)


def narrow(groups: RowGroups, span: KeyRange, schema: Schema) -> RowGroups:
    """Return the row groups of the part of a slice within `span`, without reading anything."""
    part = replace(groups.slice, range=groups.slice.range.intersection(span))
    found = _row_groups(part, groups.index, schema)
    return found.without(groups.excluded) if groups.excluded else found


def _row_groups(slice: Slice, index: ShardIndex, schema: Schema) -> RowGroups:
    return RowGroups(slice, index, index.row_groups_to_read(fit_range(slice.range, schema)))


def find_row_groups(
    objects: Objects,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    cache: Cache | None = None,
    *,
    footers: bool = False,
) -> list[RowGroups]:
    """Return the row groups that can hold rows of each slice, with the whole `footers` of the
    shards if they are needed; several are read at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    shards = {slice.shard.id: slice.shard for slice in slices}
    held = Cache(0) if cache is None else cache
    indexes = read_indexes(objects, table_id, list(shards.values()), schema, held, footers=footers)
    found = dict(zip(shards, indexes, strict=True))
    return [_row_groups(slice, found[slice.shard.id], schema) for slice in slices]


def with_footers(
    objects: Objects, table_id: str, found: Sequence[RowGroups], schema: Schema, cache: Cache
) -> list[RowGroups]:
    """Return row groups that were found without the footers of their shards with these.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    shards = {g.slice.shard.id: g.slice.shard for g in found if g.index.footer is None}
    indexes = read_indexes(objects, table_id, list(shards.values()), schema, cache, footers=True)
    read = dict(zip(shards, indexes, strict=True))
    return [replace(g, index=read.get(g.slice.shard.id, g.index)) for g in found]


def read_indexes(
    objects: Objects,
    table_id: str,
    shards: Sequence[Shard],
    schema: Schema,
    cache: Cache,
    *,
    footers: bool = False,
) -> list[ShardIndex]:
    """Return the index of each shard, from the cache or by reading the end of the shard, and its
    whole footer if that is needed; many at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    found = [cached_index(table_id, shard.id, cache, footer=footers) for shard in shards]
    with reading_threads(objects, found.count(None)) as start:
        reads = [
            start(partial(read_index, objects, table_id, shard, schema, cache, footer=footers))
            for shard, index in zip(shards, found, strict=True)
            if index is None
        ]
        unread = iter(reads)
        return [next(unread)() if index is None else index for index in found]


def read_own_footers(
    objects: Objects, table_id: str, shards: Sequence[Shard], schema: Schema, cache: Cache
) -> list[ShardFooter]:
    """Return what each shard says about itself, many read at once. Their indexes are in the cache
    then, if it has room for them.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    with reading_threads(objects, len(shards)) as start:
        reads = [
            start(partial(read_own_footer, objects, table_id, shard, schema, cache))
            for shard in shards
        ]
        return [found() for found in reads]
