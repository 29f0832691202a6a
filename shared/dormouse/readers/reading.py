"""Read the rows of key ranges from shards, and little else of them: the way of look-ups.

A look-up costs a read of the footer, which is kept, and one of the row groups whose statistics let
them hold the range; the size of a shard is known from the state, so nothing has to be asked
beforehand.
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
from dormouse.stored.names import shard_path

READ_THREADS = 8
"""How many reads of storage a query or a merge has under way at once."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a shard whose keys lie in a range."""

    shard: Shard
    range: KeyRange

    @property
    def is_whole(self) -> bool:
        """Return whether all rows of the shard are meant."""
        return self.range.contains_span(self.shard.min_key, self.shard.max_key)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a shard that can hold a slice."""

    slice: Slice
    index: ShardIndex
    numbers: Sequence[int]

    @property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet footer of the shard."""
        return self.index.metadata


def narrow(groups: RowGroups, step: KeyRange, schema: Schema) -> RowGroups:
    """Return what of a slice lies in `step` too, without reading anything."""
    part = replace(groups.slice, range=groups.slice.range.intersection(step))
    return _row_groups(part, groups.index, schema)


def narrow_for_engine(groups: RowGroups, step: KeyRange, schema: Schema) -> RowGroups:
    """Return what of a slice lies in `step` too, with all row groups that the engine may read."""
    part = replace(groups.slice, range=groups.slice.range.intersection(step))
    return RowGroups(part, groups.index, _read_by_engine(part, groups.index, schema))


def _read_by_engine(slice: Slice, index: ShardIndex, schema: Schema) -> range:
    """Return the row groups in which the keys of a slice can lie, and those beside them that have
    the first key of one of its ends: of others, that one column says that they are not needed.
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
    """Return the row groups that can hold rows of slices; reads several footers at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged, or not the shard of the state.
    """
    held = Cache(0) if cache is None else cache

    def find(shard: Shard) -> ShardIndex:
        return read_index(objects, table_id, shard, schema, held)

    shards = {slice.shard.id: slice.shard for slice in slices}
    with ThreadPoolExecutor(READ_THREADS) as threads:
        found = dict(zip(shards, threads.map(find, shards.values()), strict=True))
    return [_row_groups(slice, found[slice.shard.id], schema) for slice in slices]


def read_row_groups(
    objects: Objects,
    table_id: str,
    found: Sequence[RowGroups],
    schema: Schema,
    columns: Sequence[str],
) -> list[list[pa.RecordBatch]]:
    """Read the row groups found for disjoint slices: the rows of each shard, in its order.

    Each row group is read once however many slices are in it, and neighbours in one read. What is
    read is proven by its CRCs, or by the checksums of pages in a shard that has no others.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    by_shard = sorted((g for g in found if g.numbers), key=_place)
    wanted = [list(groups) for _, groups in groupby(by_shard, key=lambda g: g.slice.shard.id)]
    asked = [schema.field_named(name) for name in columns]
    needed = list(dict.fromkeys([*_keys_to_read(found, schema), *asked]))
    with ThreadPoolExecutor(READ_THREADS) as threads:
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
    """Return the row keys, and the sort keys that ends of the ranges go on with."""
    ranges = [groups.slice.range for groups in found]
    parts = max((max(len(r.min), len(r.max or ())) for r in ranges), default=0)
    return schema.keys[: max(parts, len(schema.row_keys))]


def sections_of(
    groups: RowGroups, numbers: Iterable[int], fields: Iterable[Field], table_id: str
) -> Iterator[Section]:
    """Yield the column chunks that some row groups of a shard have of some fields."""
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
    """Return the rows of some slices of one shard."""
    metadata = found[0].metadata
    wanted = arrow_schema(schema)
    result_schema = pa.schema([wanted.field(name) for name in columns])
    present = stored_names(found[0].index.names, needed)
    source = pq.ParquetFile(
        pa.PythonFile(file, mode="r"),
        metadata=metadata,
        page_checksum_verification=found[0].index.crcs is None,  # else all bytes are proven
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
