"""Read the rows that come first by the values of a column, which is no key, by statistics.

The statistics of a row group bound its values. Row groups are read with the best bound first, a few
and then twice as many. The worst of the best values so far is a threshold: what is left can be left
out if its bounds are worse. For example, for the three greatest values, with row groups whose
greatest values are 9, 8, 8, 4 and 2: if the first has 9, 8 and 5, the threshold is 5, the second
and the third are read, and the last two are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import COUNTS, arrow_schema, conform, frame_schema
from dormouse.engine.predicates import Predicate
from dormouse.engine.pruning import ValueBounds
from dormouse.key_forms.arrow import statistics_part
from dormouse.keys.ranges import Key
from dormouse.model.state import TableState
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.rows import LOOK_UP_BYTES, QueryResources, reading_version
from dormouse.query.selection import Selection
from dormouse.readers.read_counters import CountedObjects, ReadCounters
from dormouse.readers.reading import RowGroups, find_row_groups
from dormouse.readers.row_reads import read_row_groups
from dormouse.schema.schema import Field, Primitive
from dormouse.schema.types import TIMESTAMPS
from dormouse.shards.writing.floats import columns_without_nan
from dormouse.stored.paths import shard_path
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

MOST_SHARE = 8
"""At most one of so many row groups is read in this way: reading more, others are quicker."""
FEW_ROW_GROUPS = 4
"""So many are read, however few there are."""
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_ORDERED = (Primitive.INT, Primitive.LONG, Primitive.DATE, Primitive.STRING, *TIMESTAMPS, *_FLOATS)
"""The types whose statistics bound their values in DataFusion's order; floats without NaN only."""


@dataclass(frozen=True, slots=True)
class Top:
    """The first `rows` rows in the order of a column; with `ties`, also those that equal the last
    of them in it, which another column orders.
    """

    column: str
    rows: int
    descending: bool
    nulls_first: bool
    ties: bool


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row group, and what its statistics say of the column: its best value, None if it may have
    any; whether it may have values, and nulls. All `slices` with rows in it are read at once:
    what is read of a shard has the rows of its row groups in any of the slices that are read.
    """

    slices: tuple[RowGroups, ...]
    number: int
    bound: Any
    may_have_values: bool
    may_have_nulls: bool


def top_rows(
    resources: QueryResources,
    table: Table,
    state: TableState,
    selection: Selection,
    top: Top,
    reads: ReadCounters,
) -> pa.Table | None:
    """Return some rows of a selection, at least the first by a column, in no order; None if that
    reads much, or the column has no such statistics. What is read is added to `reads`.

    Raises:
        DormouseError: a shard is gone or damaged.
    """
    column = next((f for f in table.schema.fields if f.name == top.column), None)
    if column is None or column.type not in _ORDERED or top.rows <= 0:
        return None
    if not row_rules(table.schema, table.properties).is_empty:
        return None
    objects = CountedObjects(resources.storage, reads)
    with reading_version(resources, table, state.version):
        slices = [s for p in slices_to_read(state, selected_ranges(table, selection)) for s in p]
        found = find_row_groups(
            objects, table.id, slices, table.schema, resources.cache, footers=True
        )
        if column.type in _FLOATS and not _without_nan(found, table, column):
            return None
        search = _Search(objects, table, selection, column, top, reads)
        reads.shards.update(slice.shard.id for slice in slices)
        return search.found(found)


def _without_nan(found: Iterable[RowGroups], table: Table, column: Field) -> bool:
    """Return whether all shards say that a column holds no NaN, under the name that it has now."""
    return all(
        column.id not in groups.index.names
        or groups.index.names[column.id]
        in columns_without_nan(groups.metadata, shard_path(table.id, groups.slice.shard.id))
        for groups in found
    )


@dataclass(slots=True)
class _Search:
    """One search; `_best` are the best values so far, `_nulls` counts nulls."""

    objects: CountedObjects
    table: Table
    selection: Selection
    column: Field
    top: Top
    reads: ReadCounters
    _best: pa.Array[Any] | None = None
    _nulls: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)

    def found(self, groups: Iterable[RowGroups]) -> pa.Table | None:
        """Return the rows; None if too much would be read."""
        schema, condition = self.table.schema, self.selection.condition
        where = None if condition is None else Predicate(condition, schema)
        pruned = ValueBounds.of(where, schema).pruned(groups)
        left = sorted(_candidates(pruned, self.column, self.top), key=self._rank)
        most_groups = max(FEW_ROW_GROUPS, len(left) // MOST_SHARE)
        columns = [f.name for f in schema.fields if f.name in self._used]
        fields = [f for f in schema.fields if f.name in self._used]
        groups_read = bytes_read = 0
        step = 1
        while left:
            taken, left = left[:step], left[step:]
            groups_read += len(taken)
            bytes_read += sum(c.slices[0].index.column_bytes(c.number, fields) for c in taken)
            if groups_read > most_groups or bytes_read > LOOK_UP_BYTES:
                return None
            self.reads.row_groups += len(taken)
            rows = read_row_groups(self.objects, self.table.id, _together(taken), schema, columns)
            batches = (batch for of_shard in rows for batch in of_shard)
            for batch in batches if where is None else where.apply(batches):
                self._see(batch)
            worst = _ordinal(self._threshold())
            left = [c for c in left if self._may_be_among_first(c, worst)]
            step *= 2
        stored = arrow_schema(schema)
        kept = frame_schema(pa.schema([stored.field(name) for name in columns]))
        return pa.Table.from_batches([conform(batch, kept) for batch in self._batches], kept)

    @property
    def _used(self) -> frozenset[str]:
        condition = self.selection.condition
        used = {*self.selection.columns, self.column.name}
        return frozenset(used | (condition.columns if condition else set()))

    def _rank(self, candidate: _Candidate) -> tuple[Any, ...]:
        """Return what sorts row groups, the best first."""
        if candidate.may_have_nulls and self.top.nulls_first:
            return (0,)
        if not candidate.may_have_values:
            return (3,)
        if candidate.bound is None:
            return (1,)
        return (2, _Reversed(candidate.bound) if self.top.descending else candidate.bound)

    def _see(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch, and the best values."""
        import pyarrow.compute as pc  # which takes long to import

        self._batches.append(batch)
        column = batch.column(batch.schema.get_field_index(self.column.name))
        self._nulls += column.null_count
        values = column.drop_null()
        if self.column.type in COUNTS:
            values = values.cast(COUNTS[self.column.type])
        if self._best is not None:
            values = pa.concat_arrays([self._best, values])
        order: Literal["ascending", "descending"]
        order = "descending" if self.top.descending else "ascending"
        first = pc.select_k_unstable(values, self.top.rows, [("", order)])
        self._best = values.take(first)

    def _threshold(self) -> Any:
        """Return the worst value that is needed so far; None if there is none yet."""
        missing = self.top.rows - (self._nulls if self.top.nulls_first else 0)
        if self._best is None or not 0 < missing <= len(self._best):
            return None
        value = self._best[missing - 1].as_py()
        # one zero of both, which compare as equal, is the better one
        if value == 0 and isinstance(value, float):
            return math.copysign(value, -1 if self.top.descending else 1)
        return value

    def _may_be_among_first(self, candidate: _Candidate, worst: Any) -> bool:
        """Return whether a row group may have a row that is among the first; `worst` is the
        threshold.
        """
        top = self.top
        if top.nulls_first:
            if candidate.may_have_nulls and (self._nulls < top.rows or top.ties):
                return True
            if self._nulls >= top.rows:
                return False
        if worst is None:
            return True
        if not candidate.may_have_values:
            return False
        if candidate.bound is None:
            return True
        bound = _ordinal(candidate.bound)
        return top.ties if bound == worst else bool(bound > worst) == top.descending


@dataclass(frozen=True, slots=True)
class _Reversed:
    """A value that is less if it is greater."""

    value: Any

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)


def _ordinal(value: Any) -> Any:
    """Return what compares as DataFusion sorts: it takes -0.0 for less than 0.0."""
    return (value, math.copysign(1, value)) if isinstance(value, float) else value


def _candidates(found: Iterable[RowGroups], column: Field, top: Top) -> Iterator[_Candidate]:
    """Yield each row group once, however many leaves have rows in it."""
    slices: dict[tuple[str, int], list[RowGroups]] = {}
    for groups in found:
        for number in groups.numbers:
            slices.setdefault((groups.slice.shard.id, number), []).append(groups)
    for (_, number), of_group in slices.items():
        place = of_group[0].index.stored.columns.get(column.id)
        if place is None:  # the shard is older than the column
            yield _Candidate(tuple(of_group), number, None, False, True)
            continue
        row_group = of_group[0].metadata.row_group(number)
        yield _candidate(of_group, number, row_group.column(place[1]).statistics, column, top)


def _candidate(
    slices: Sequence[RowGroups],
    number: int,
    statistics: pq.Statistics | None,
    column: Field,
    top: Top,
) -> _Candidate:
    nulls = None if statistics is None else statistics.null_count
    if statistics is None or nulls is None:
        return _Candidate(tuple(slices), number, None, True, True)
    bound = None
    if statistics.has_min_max:
        raw = statistics.max_raw if top.descending else statistics.min_raw
        bound = statistics_part(cast(int | bytes, raw), column)
    has_values = nulls < slices[0].index.rows(number)
    return _Candidate(tuple(slices), number, bound, has_values, nulls > 0)


def _together(taken: Iterable[_Candidate]) -> list[RowGroups]:
    """Return row groups by their slices, each of which is there once."""
    numbers: dict[tuple[str, Key], tuple[RowGroups, list[int]]] = {}
    for each in taken:
        for groups in each.slices:
            place = groups.slice.shard.id, groups.slice.range.min
            numbers.setdefault(place, (groups, []))[1].append(each.number)
    return [replace(groups, numbers=tuple(sorted(of))) for groups, of in numbers.values()]
