"""Read the rows of a key range from one shard, and little else of it: the way of look-ups.

A look-up costs a read of the footer and one of the row groups whose statistics let them hold the
range; the size of a shard is known from the state, so nothing has to be asked beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.model.keys import Key, KeyPart, KeyRange
from dormouse.model.names import shard_path
from dormouse.model.schema import Field, Primitive, Schema
from dormouse.model.shards import Shard
from dormouse.ports import Storage
from dormouse.shards.arrow import Scalar, arrow_schema, conform
from dormouse.shards.footer import read_metadata
from dormouse.shards.ranges import fitted, predicate

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

    @property
    def row_bytes(self) -> float:
        """Give what a row of the shard takes in memory, on average."""
        groups = range(self.metadata.num_row_groups)
        total = sum(self.metadata.row_group(i).total_byte_size for i in groups)
        return total / max(1, self.metadata.num_rows)


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
    wanted = fitted(slice.range, schema)
    numbers = [
        i
        for i in range(metadata.num_row_groups)
        if not wanted.is_empty() and _may_hold(metadata.row_group(i), wanted, schema)
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
    with storage.open(path, shard.size_bytes) as file:
        source = pq.ParquetFile(
            pa.PythonFile(file, mode="r"),  # type: ignore[arg-type]  # any binary file will do
            metadata=groups.metadata,
            pre_buffer=True,
        )
        present = [name for name in needed if name in source.schema_arrow.names]
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


def _may_hold(group: pq.RowGroupMetaData, wanted: KeyRange, schema: Schema) -> bool:
    """Tell whether the statistics of a row group leave room for a key in `wanted`."""
    low, high = _span(group, schema)
    if wanted.max is not None and not low < wanted.max:
        return False
    return high is None or wanted.min[: len(high)] <= high


def _span(group: pq.RowGroupMetaData, schema: Schema) -> tuple[Key, Key | None]:
    """Give prefixes of a row group's least and greatest key; ``()`` and None if nothing is known.

    The keys of a column are in order only where all columns before it are constant.
    """
    low: list[KeyPart] = []
    high: list[KeyPart] = []
    for i, field in enumerate(schema.row_keys):
        statistics = group.column(i).statistics
        if statistics is None or not statistics.has_min_max:
            break
        low.append(_part(cast(int | bytes, statistics.min_raw), field))
        high.append(_part(cast(int | bytes, statistics.max_raw), field))
        if low[-1] != high[-1]:
            break
    return tuple(low), tuple(high) or None


def _literal(value: Scalar) -> pc.Expression:
    return pc.scalar(value)  # type: ignore[arg-type]  # takes scalars of all types


def _part(raw: int | bytes, field: Field) -> KeyPart:
    if field.type is Primitive.STRING and isinstance(raw, bytes):
        return raw.decode()
    return raw
