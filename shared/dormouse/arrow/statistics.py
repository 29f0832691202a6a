"""Bounds on the keys of a row group, from its Parquet statistics."""

from __future__ import annotations

from typing import cast

import pyarrow.parquet as pq

from dormouse.key_forms.arrow import statistics_part
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Field


def column_span(group: pq.RowGroupMetaData, i: int, field: Field) -> tuple[Key, Key] | None:
    """Return the least and greatest value of column `i`, as keys of one
    part; None if they are unknown.
    """
    statistics = group.column(i).statistics
    if statistics is None or not statistics.has_min_max:
        return None
    least, most = (cast(int | bytes, raw) for raw in (statistics.min_raw, statistics.max_raw))
    return (statistics_part(least, field),), (statistics_part(most, field),)
