"""Find and read the row groups of shards that can hold the rows of key ranges.

A look-up needs one read of the footer, which is cached, and one read of the row groups whose
statistics allow keys of the range. The size of a shard is known from the state, so no request is
needed to find the footer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolution import rename_columns, stored_names
from dormouse.arrow.order import rows_in_ranges
from dormouse.arrow.ranges import fit_range
from dormouse.arrow.types import arrow_schema, conform
from dormouse.cache import Cache
from dormouse.errors import DamagedShardError
from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import Shard
from dormouse.ports import Objects
from dormouse.readers.engine_reads import engine_may_read
from dormouse.readers.ranged_reads import FetchedFile, fetch_sections
from dormouse.schema.schema import Field, Schema
from dormouse.shards.crcs import Section, chunk_sections
from dormouse.shards.index import ShardIndex, read_index
from dormouse.stored.paths import shard_path

READ_THREADS = 8
"""How many shards a query looks up at once."""
READS_AT_ONCE = 64
"""How many storage reads are in flight at once, at most: the inputs of a compaction are opened in
the time of one read.
"""


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a shard whose keys are in a range."""

    shard: Shard
    range: KeyRange

    @property
    def is_whole(self) -> bool:
        """Return whether the slice contains all rows of the shard."""
        return self.range.contains_span(self.shard.min_key, self.shard.max_key)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a shard that can hold the rows of a slice."""

    slice: Slice
    index: ShardIndex
    numbers: Sequence[int]

    @property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet footer of the shard."""
        return self.index.metadata


def narrow(groups: RowGroups, span: KeyRange, schema: Schema) -> RowGroups:
    """Return the row groups of the part of a slice within `span`, without reading anything."""
    part = replace(groups.slice, range=groups.slice.range.intersection(span))
    return _row_groups(part, groups.index, schema)


def narrow_for_engine(groups: RowGroups, span: KeyRange, schema: Schema) -> RowGroups:
    """Return the part of a slice within `span`, with all row groups
    that DataFusion may read for it.
    """
    part = replace(groups.slice, range=groups.slice.range.intersection(span))
    return RowGroups(part, groups.index, _read_by_engine(part, groups.index, schema))


def _read_by_engine(slice: Slice, index: ShardIndex, schema: Schema) -> range:
    """Return the row groups that DataFusion may read for a slice: a contiguous range.

    These are the row groups in which keys of the slice can be, and neighbours that agree with an
    end of the slice in the first key column (see `engine_reads`). The others are skipped because of
    that column.
    """
    if slice.is_whole:
        return range(len(index.spans))
    wanted = fit_range(slice.range, schema)
    among = index.row_groups_in(wanted)
    first, end = among.start, among.stop
    if wanted.is_empty():
        return among
    for number in reversed(range(first)):
        high = index.spans[number][1]
        if high is not None and high[:1] < wanted.min[:1]:
            break
        if engine_may_read(index.metadata.row_group(number), wanted, schema.keys):
            first = number
    for number in range(end, len(index.spans)):
        if wanted.max is not None and index.spans[number][0][:1] > wanted.max[:1]:
            break
        if engine_may_read(index.metadata.row_group(number), wanted, schema.keys):
            end = number + 1
    return range(first, end)


def _row_groups(slice: Slice, index: ShardIndex, schema: Schema) -> RowGroups:
    return RowGroups(slice, index, index.row_groups_to_read(fit_range(slice.range, schema)))


def find_row_groups(
    objects: Objects,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    cache: Cache | None = None,
) -> list[RowGroups]:
    """Return the row groups that can hold rows of each slice; several footers are read at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    shards = {slice.shard.id: slice.shard for slice in slices}
    held = Cache(0) if cache is None else cache
    indexes = read_indexes(objects, table_id, list(shards.values()), schema, held)
    found = dict(zip(shards, indexes, strict=True))
    return [_row_groups(slice, found[slice.shard.id], schema) for slice in slices]


def read_indexes(
    objects: Objects, table_id: str, shards: Sequence[Shard], schema: Schema, cache: Cache
) -> list[ShardIndex]:
    """Return the index of each shard, from the cache or by reading its footer; many at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """

    def read(shard: Shard) -> ShardIndex:
        return read_index(objects, table_id, shard, schema, cache)

    with ThreadPoolExecutor(READS_AT_ONCE) as threads:
        return list(threads.map(read, shards))


def read_row_groups(
    objects: Objects,
    table_id: str,
    found: Sequence[RowGroups],
    schema: Schema,
    columns: Sequence[str],
) -> list[list[pa.RecordBatch]]:
    """Read the row groups found for disjoint slices; return the rows of each shard, in its order.

    Each row group is read once, even if several slices need it, and neighbours are read together.
    All bytes are verified by CRCs, or by the checksums of pages in a shard without CRCs.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    by_shard = sorted((g for g in found if g.numbers), key=_place)
    wanted = [list(groups) for _, groups in groupby(by_shard, key=lambda g: g.slice.shard.id)]
    asked = [schema.field_named(name) for name in columns]
    needed = list(dict.fromkeys([*_keys_to_read(found, schema), *asked]))
    with ThreadPoolExecutor(READS_AT_ONCE) as threads:
        fetched = [
            fetch_sections(
                threads,
                objects,
                shard_path(table_id, groups[0].slice.shard.id),
                groups[0].slice.shard.size_bytes,
                sections_of(groups[0], _numbers(groups), needed, table_id),
            )
            for groups in wanted
        ]
        return [
            list(_rows(file, groups, schema, needed, columns))
            for file, groups in zip(fetched, wanted, strict=True)
        ]


def _keys_to_read(found: Sequence[RowGroups], schema: Schema) -> Sequence[Field]:
    """Return the row keys, and as many sort keys as the longest end of a range has."""
    ranges = [groups.slice.range for groups in found]
    parts = max((max(len(r.min), len(r.max or ())) for r in ranges), default=0)
    return schema.keys[: max(parts, len(schema.row_keys))]


def sections_of(
    groups: RowGroups, numbers: Iterable[int], fields: Iterable[Field], table_id: str
) -> Iterator[Section]:
    """Yield the column chunks of `fields` in some row groups of a shard."""
    names = stored_names(groups.index.names, fields).values()
    path = shard_path(table_id, groups.slice.shard.id)
    return chunk_sections(groups.metadata, groups.index.crcs, path, numbers, names)


def _place(groups: RowGroups) -> tuple[object, ...]:
    shard = groups.slice.shard
    return shard.min_key, shard.id, groups.slice.range.min


def _numbers(found: Sequence[RowGroups]) -> list[int]:
    return sorted({number for groups in found for number in groups.numbers})


def _rows(
    file: FetchedFile,
    found: Sequence[RowGroups],
    schema: Schema,
    needed: Sequence[Field],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some slices of one shard."""
    metadata = found[0].metadata
    wanted = arrow_schema(schema)
    result_schema = pa.schema([wanted.field(name) for name in columns])
    present = stored_names(found[0].index.names, needed)
    source = pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        metadata=metadata,
        # with CRCs, all bytes were verified when they were fetched
        page_checksum_verification=found[0].index.crcs is None,
    )
    batches = source.iter_batches(
        row_groups=_numbers(found),
        columns=list(present.values()),
        use_threads=False,
    )
    ranges = [fit_range(groups.slice.range, schema) for groups in found]
    for batch in _undamaged(batches, file.path):
        for part in rows_in_ranges(rename_columns(batch, present), ranges, schema):
            yield conform(part, result_schema)


def _undamaged(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error
