"""Which row groups the engine may read of a sorted file when it is asked for a range of keys.

The engine leaves out a row group if the term it is given cannot be true by the statistics of each
column, looked at for itself. It does not know that the rows of one row group end where those of the
next begin, so it may read more row groups than can hold such a key. For example, of row groups from
(MQ, 3367) to (UA, 44), from (UA, 45) to (UA, 443) and from (UA, 444) on, the keys from (UA, 1690)
on lie in the third; but the first has an MQ below UA and a number above 1690, so it is read, too.
What is fetched for the engine must be all that it reads. Used by `reading`.
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
    """What a row group leaves possible: the least and greatest value of a term, or its truth.

    A term whose values are not known has None for both: whatever it is compared with can hold.
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
    """Return whether the engine may read a row group for the rows in `wanted`, by its statistics.

    `fields` are the first columns, by which the rows are sorted; `wanted` is fitted to them and not
    empty.
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
