"""Read the last rows of a selection from the end of the table, so that the rest is not read.

Rows are merged upwards. The end is therefore cut into ranges of keys at the beginnings of row
groups, and these are read from the last one on, each twice as large as the one after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.state import TableState
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.rows import QueryResources, query_slices
from dormouse.query.selection import Selection
from dormouse.readers.read_counters import CountedObjects, ReadCounters
from dormouse.readers.reading import Slice, find_row_groups
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table


def last_rows(
    resources: QueryResources,
    table: Table,
    state: TableState,
    selection: Selection,
    rows: int,
    reads: ReadCounters,
) -> Iterator[pa.RecordBatch]:
    """Yield at least the last `rows` rows of a selection without a limit, or all if there are
    fewer. Those of later ranges come first; what is read is added to `reads`.
    """
    if rows <= 0:
        return
    ranges = selected_ranges(table, selection)
    objects = CountedObjects(resources.storage, reads)
    # a group of rows that become one must not be divided; it lies within a leaf
    divides = not row_rules(table.schema, table.properties).aggregates
    for part in reversed(list(slices_to_read(state, ranges))):
        found = find_row_groups(objects, table.id, part, table.schema, resources.cache)
        keys = {groups.index.first_key(n) for groups in found for n in groups.numbers}
        for piece in _from_the_end(part, sorted(keys) if divides else []):
            result = query_slices(resources, table, [piece], selection).for_programs()
            try:
                for batch in result:
                    rows -= batch.num_rows
                    yield batch
            finally:
                result.close()
                reads.add(result.reads)
            if rows <= 0:
                return


def _from_the_end(part: Sequence[Slice], keys: Sequence[Key]) -> Iterator[list[Slice]]:
    """Yield the slices of a part in ranges that meet at some of `keys`, which ascend, the last
    range first.

    With a key for each of seven row groups a to g, the ranges are [g, …), [e, g), [a, e) and what
    is before a.
    """
    end: Key | None = None
    at, step = len(keys), 1
    while at > 0:
        at = max(0, at - step)
        step *= 2
        yield _within(part, KeyRange(keys[at], end))
        end = keys[at]
    if end != ():
        yield _within(part, KeyRange((), end))


def _within(part: Sequence[Slice], span: KeyRange) -> list[Slice]:
    cut = [replace(slice, range=slice.range.intersection(span)) for slice in part]
    return [
        slice
        for slice in cut
        if not slice.range.is_empty()
        and slice.range.overlaps_span(slice.shard.min_key, slice.shard.max_key)
    ]
