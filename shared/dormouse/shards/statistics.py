"""What the statistics of a row group tell about the keys in it."""

from __future__ import annotations

from typing import cast

import pyarrow.parquet as pq

from dormouse.model.keys import Key, KeyPart, KeyRange
from dormouse.model.schema import Field, Primitive, Schema


def may_hold(group: pq.RowGroupMetaData, wanted: KeyRange, schema: Schema) -> bool:
    """Tell whether the statistics of a row group leave room for a key in `wanted`."""
    low, high = key_span(group, schema)
    if wanted.max is not None and not low < wanted.max:
        return False
    return high is None or wanted.min[: len(high)] <= high


def key_span(group: pq.RowGroupMetaData, schema: Schema) -> tuple[Key, Key | None]:
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


def row_bytes(file: pq.FileMetaData) -> float:
    """Give what a row takes in memory, on average."""
    groups = range(file.num_row_groups)
    return sum(file.row_group(i).total_byte_size for i in groups) / max(1, file.num_rows)


def stored_bytes(group: pq.RowGroupMetaData) -> int:
    """Give the size of a row group in its file, compressed."""
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def _part(raw: int | bytes, field: Field) -> KeyPart:
    if field.type is Primitive.STRING and isinstance(raw, bytes):
        return raw.decode()
    return raw
