"""Predict which row groups DataFusion reads of a sorted file for a
range of keys; used by `reading`.

DataFusion skips a row group if its filter cannot be true by the statistics of each column,
evaluated separately. It does not know that rows are sorted across row groups, so it can read more
row groups than can hold a key of the range. All row groups that it reads must have been fetched.

For example, with the keys (carrier, number):

    row group 0   (MQ, 3367) … (UA, 44)     carrier MQ … UA, number 1 … 9999
    row group 1   (UA, 45)   … (UA, 443)    carrier UA … UA, number 45 … 443
    row group 2   (UA, 444)  … (UA, 2000)   carrier UA … UA, number 444 … 2000

The keys from (UA, 1690) on are in row group 2 alone. But by its statistics, row group 0 could have
a row with carrier UA and number 1690 or greater, so DataFusion reads it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.ranges import range_predicate
from dormouse.arrow.statistics import column_span
from dormouse.arrow.types import Scalar
from dormouse.keys.ranges import KeyRange
from dormouse.schema.schema import Field


@dataclass(frozen=True, slots=True)
class _Possible:
    """What the statistics of a row group allow: the least and greatest value of a
    term, or whether it can be true.

    A term whose values are unknown has None for both: any comparison with it can be true.
    """

    least: Any = None
    most: Any = None
    can_hold: bool = True

    def __and__(self, other: _Possible) -> _Possible:
        return _Possible(can_hold=self.can_hold and other.can_hold)

    def __or__(self, other: _Possible) -> _Possible:
        return _Possible(can_hold=self.can_hold or other.can_hold)

    def __lt__(self, value: _Possible) -> _Possible:
        return _Possible(can_hold=self.least is None or self.least < value.least)

    def __le__(self, value: _Possible) -> _Possible:
        return _Possible(can_hold=self.least is None or self.least <= value.least)

    def __gt__(self, value: _Possible) -> _Possible:
        return _Possible(can_hold=self.most is None or self.most > value.least)

    def __ge__(self, value: _Possible) -> _Possible:
        return _Possible(can_hold=self.most is None or self.most >= value.least)


def engine_may_read(group: pq.RowGroupMetaData, wanted: KeyRange, fields: Sequence[Field]) -> bool:
    """Return whether DataFusion may read a row group for the rows in `wanted`, by its statistics.

    `fields` are the first columns, by which the rows are sorted. Requires: `wanted` fits them and
    is not empty.
    """
    places = {field.name: i for i, field in enumerate(fields)}

    def column(name: str) -> _Possible:
        span = column_span(group, places[name], fields[places[name]])
        return _Possible() if span is None else _Possible(span[0][0], span[1][0])

    term = range_predicate(wanted, fields, column, _literal)
    return term is None or term.can_hold


def _literal(scalar: Scalar) -> _Possible:
    numbered = pa.types.is_temporal(scalar.type)
    value = scalar.value if numbered else scalar.as_py()  # type: ignore[attr-defined]
    return _Possible(value, value)
