"""Row groups skipped by a condition on value columns, so that they are not even fetched.

A condition bounds single columns, and the statistics of a row group show whether any of its values
is within the bounds. DataFusion gets the same bounds as filters, and skips the same row groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from dormouse.arrow.ranges import fit_range_to_fields, range_predicate
from dormouse.arrow.statistics import column_span
from dormouse.engine.predicates import Predicate
from dormouse.keys.ranges import KeyRange, encode_key
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.schema.types import TIMESTAMPS
from dormouse.sql.key_bounds import column_bounds

if TYPE_CHECKING:
    from datafusion import DataFrame


_BOUNDED = (
    Primitive.INT,
    Primitive.LONG,
    Primitive.DATE,
    Primitive.TIME,
    Primitive.STRING,
    *TIMESTAMPS,
)
"""The column types whose statistics have the same meaning in DataFusion and here."""


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """The range of values of each bounded column in any row that matches a condition."""

    ranges: Mapping[Field, KeyRange]

    @staticmethod
    def of(where: Predicate | None, schema: Schema) -> ValueBounds:
        """Return the bounds that a condition sets for columns; none if there is no condition."""
        ranges = {}
        for field in schema.fields:
            if where is not None and field.name in where.columns and field.type in _BOUNDED:
                found = column_bounds(where.condition, field)
                if found is not None:
                    ranges[field] = fit_range_to_fields(found, [field])
        return ValueBounds(ranges)

    def pruned(self, found: Iterable[RowGroups]) -> Iterator[RowGroups]:
        """Yield `found` without the row groups whose statistics exclude a matching row."""
        for groups in found:
            if not self.ranges:
                yield groups
                continue
            places = _places(groups, self.ranges)
            numbers = [
                number
                for number in groups.numbers
                if self._may_match(groups.metadata.row_group(number), places)
            ]
            yield replace(groups, numbers=numbers)

    def applied(self, frame: DataFrame) -> DataFrame:
        """Return `frame`, filtered by the bounds."""
        from dormouse.engine import datafusion as engine

        for field, wanted in self.ranges.items():
            if wanted.is_empty():
                return frame.filter(engine.FALSE)
            term = range_predicate(wanted, [field], engine.column, engine.literal)
            frame = frame if term is None else frame.filter(term)
        return frame

    def _may_match(self, group: pq.RowGroupMetaData, places: Mapping[Field, int]) -> bool:
        for field, at in places.items():
            span = column_span(group, at, field)
            if span is not None and not self.ranges[field].overlaps_span(*map(encode_key, span)):
                return False
        return True


def _places(groups: RowGroups, fields: Iterable[Field]) -> dict[Field, int]:
    """Return the Parquet column of each field in a shard, none of which is nested; fields that the
    shard lacks are left out.
    """
    columns = groups.index.stored.columns
    return {field: columns[field.id][1] for field in fields if field.id in columns}
