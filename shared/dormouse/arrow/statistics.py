"""Bounds on the keys of a row group, from its Parquet statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow.parquet as pq

from dormouse.key_forms.arrow import statistics_part
from dormouse.keys.ranges import Key, KeyRange, prefix_successor
from dormouse.schema.schema import Field


def may_contain(group: pq.RowGroupMetaData, wanted: KeyRange, fields: Sequence[Field]) -> bool:
    """Return whether the statistics of a row group allow a key in `wanted`.

    `fields` are the first columns, by which the rows are sorted. A column after the first is
    compared only if the range has a single value in all columns before it; this holds even if the
    row group has many values there.
    """
    rest: KeyRange | None = wanted
    for i, field in enumerate(fields):
        span = column_span(group, i, field)
        if rest is None or span is None:
            return True
        if not rest.overlaps_span(*span):
            return False
        rest = _after_first(rest)
    return True


def _after_first(wanted: KeyRange) -> KeyRange | None:
    """Return the range without the first part of its keys; None
    unless that part has a single value.

    For example, [(a, 3), (a, 7)) becomes [(3), (7)), and [(a, 3), (successor of a)) becomes [(3),
    ∞). [(a, 3), (c)) contains several values of the first part.
    """
    first = wanted.min[:1]
    if not first or wanted.max is None:
        return None
    if wanted.max[:1] == first:
        return KeyRange(wanted.min[1:], wanted.max[1:])
    return KeyRange(wanted.min[1:]) if wanted.max == prefix_successor(first) else None


def key_span(group: pq.RowGroupMetaData, fields: Sequence[Field]) -> tuple[Key, Key | None]:
    """Return prefixes of a row group's least and greatest key; ``()`` and None if nothing is known.

    `fields` are the first columns, by which the rows are sorted. The statistics of a column bound
    the keys only while all columns before it are constant. For example, for the keys (a, 1) … (a,
    9) the prefixes are (a, 1) and (a, 9); for (a, 1) … (b, 2) they are (a) and (b).
    """
    low: Key = ()
    high: Key = ()
    for i, field in enumerate(fields):
        span = column_span(group, i, field)
        if span is None:
            break
        low, high = low + span[0], high + span[1]
        if span[0] != span[1]:
            break
    return low, high or None


def column_span(group: pq.RowGroupMetaData, i: int, field: Field) -> tuple[Key, Key] | None:
    """Return the least and greatest value of column `i`, as keys of one
    part; None if they are unknown.
    """
    statistics = group.column(i).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    least, most = (cast(int | bytes, raw) for raw in (statistics.min_raw, statistics.max_raw))
    return (statistics_part(least, field),), (statistics_part(most, field),)


_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 4
"""What a text or binary value takes in memory beside its bytes."""


def row_bytes(file: pq.FileMetaData) -> float:
    """Return at most how many bytes a row takes in memory, on the average of the row group with the
    widest rows; values in dictionaries count as little as they take in the file.

    Numbers may be packed in the file, so they count as the file has them and as memory has them.
    """
    columns = [file.schema.column(i) for i in range(len(file.schema))]
    lengths = [_VALUE_BYTES.get(c.physical_type, c.length or _OFFSET_BYTES) for c in columns]
    repeated = [i for i, c in enumerate(columns) if c.max_repetition_level]
    widest = 0.0
    for group in (file.row_group(i) for i in range(file.num_row_groups)):
        values = {i: group.column(i).num_values for i in repeated}
        in_memory = sum(n * values.get(i, group.num_rows) for i, n in enumerate(lengths))
        widest = max(widest, (group.total_byte_size + in_memory) / max(1, group.num_rows))
    return widest


def compressed_bytes(group: pq.RowGroupMetaData) -> int:
    """Return the compressed size of a row group in its file."""
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))
