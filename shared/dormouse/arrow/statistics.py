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


def column_span(group: pq.RowGroupMetaData, i: int, field: Field) -> tuple[Key, Key] | None:
    """Return the least and greatest value of column `i`, as keys of one
    part; None if they are unknown.
    """
    statistics = group.column(i).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    least, most = (cast(int | bytes, raw) for raw in (statistics.min_raw, statistics.max_raw))
    return (statistics_part(least, field),), (statistics_part(most, field),)
