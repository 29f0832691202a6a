"""Read the rows of a key range from one shard, and little else of it: the way of look-ups.

A look-up costs a read of the footer and one of the row groups whose statistics let them hold the
range; the size of a shard is known from the state, so nothing has to be asked beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.model.keys import KeyRange
from dormouse.model.names import shard_path
from dormouse.model.schema import Schema
from dormouse.model.shards import Shard
from dormouse.ports import Storage
from dormouse.shards.arrow import Scalar, arrow_schema, conform
from dormouse.shards.footer import read_metadata
from dormouse.shards.prefetch import Prefetched, chunks
from dormouse.shards.ranges import fitted, predicate
from dormouse.shards.statistics import may_hold

READ_THREADS = 8
"""How many footers, or slices of a look-up, are read at once."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a shard whose keys lie in a range."""

    shard: Shard
    range: KeyRange

    @property
    def is_whole(self) -> bool:
        """Tell whether all rows of the shard are meant."""
        return self.range.contains_span(self.shard.min_key, self.shard.max_key)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a shard that can hold a slice, and their size in memory."""

    slice: Slice
    metadata: pq.FileMetaData
    numbers: tuple[int, ...]
    size_bytes: int


def read_range(
    storage: Storage,
    table_id: str,
    slice: Slice,
    schema: Schema,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a slice in the shard's order; all columns, or those named.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged.
    """
    groups = find_row_groups(storage, table_id, slice, schema)
    yield from read_row_groups(storage, table_id, groups, schema, columns)


def find_row_groups(storage: Storage, table_id: str, slice: Slice, schema: Schema) -> RowGroups:
    """Read a shard's footer and give the row groups that can hold rows of the slice.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged, or not the shard of the state.
    """
    shard = slice.shard
    path = shard_path(table_id, shard.id)
    metadata = read_metadata(storage, path, shard.size_bytes)
    if metadata.num_rows != shard.rows:
        raise CorruptDataError(f"{path} holds {metadata.num_rows} rows, not {shard.rows}")
    return _row_groups(slice, metadata, schema)


def narrowed(groups: RowGroups, step: KeyRange, schema: Schema) -> RowGroups:
    """Give what of a slice lies in `step` too, without reading anything."""
    part = replace(groups.slice, range=groups.slice.range.intersection(step))
    return _row_groups(part, groups.metadata, schema)


def _row_groups(slice: Slice, metadata: pq.FileMetaData, schema: Schema) -> RowGroups:
    wanted = fitted(slice.range, schema)
    numbers = [
        i
        for i in range(metadata.num_row_groups)
        if not wanted.is_empty() and may_hold(metadata.row_group(i), wanted, schema)
    ]
    size_bytes = sum(metadata.row_group(i).total_byte_size for i in numbers)
    return RowGroups(slice, metadata, tuple(numbers), size_bytes)


def find_all(
    storage: Storage, table_id: str, slices: Sequence[Slice], schema: Schema
) -> list[RowGroups]:
    """Find the row groups of many slices at once, as `find_row_groups` does for one."""

    def find(slice: Slice) -> RowGroups:
        return find_row_groups(storage, table_id, slice, schema)

    with ThreadPoolExecutor(READ_THREADS) as threads:
        return list(threads.map(find, slices))


def read_row_groups(
    storage: Storage,
    table_id: str,
    groups: RowGroups,
    schema: Schema,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a slice from the row groups found for it.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged.
    """
    if not groups.numbers:
        return
    names = [f.name for f in schema.fields] if columns is None else list(dict.fromkeys(columns))
    wanted = arrow_schema(schema)
    result_schema = pa.schema([wanted.field(name) for name in names])
    needed = dict.fromkeys([f.name for f in schema.row_keys] + names)
    term = predicate(fitted(groups.slice.range, schema), schema, pc.field, _literal)
    shard = groups.slice.shard
    path = shard_path(table_id, shard.id)
    stored = groups.metadata.schema.to_arrow_schema().names
    present = [name for name in needed if name in stored]
    with storage.open(path, shard.size_bytes) as file:
        fetched = Prefetched(file, chunks(groups.metadata, groups.numbers, present))
        source = pq.ParquetFile(pa.PythonFile(fetched, mode="r"), metadata=groups.metadata)
        batches = source.iter_batches(
            row_groups=list(groups.numbers), columns=present, use_threads=False
        )
        for batch in _undamaged(batches, path):
            rows = batch if term is None else batch.filter(term)
            if rows.num_rows:
                yield conform(rows, result_schema)


def _undamaged(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataError(f"{path} is damaged: {error}") from error


def _literal(value: Scalar) -> pc.Expression:
    return pc.scalar(value)  # type: ignore[arg-type]  # takes scalars of all types
