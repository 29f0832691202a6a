"""Count rows, reading only those that the state and the footers of shards do not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dormouse.arrow.ranges import fit_range, requested_ranges
from dormouse.cache import Cache
from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.ports.services import Storage
from dormouse.query.rows import LOOK_UP_BYTES, QueryResources, query_rows, windows
from dormouse.query.selection import Selection
from dormouse.readers.read_plan import LeafRowGroups, plan_reads
from dormouse.readers.reading import RowGroups, Slice, find_row_groups
from dormouse.readers.row_reads import read_row_groups
from dormouse.readers.threads import READ_THREADS, READS_AT_ONCE
from dormouse.schema.schema import Schema
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table


def count_rows(
    resources: QueryResources, table: Table, state: TableState, selection: Selection
) -> int:
    """Return the number of rows that `query_rows` would return; the selection has no limit.

    If a condition, filters or aggregations decide about rows, they are read. Otherwise a shard that
    is wholly in a range is counted by the state, a row group by the footer, and only the row groups
    at the ends of ranges are read.

    Raises:
        NotFoundError: the version cannot be read any more.
    """
    schema = table.schema
    if selection.condition is not None or not row_rules(schema, table.properties).is_empty:
        keys = replace(selection, columns=(schema.row_keys[0].name,))
        found = query_rows(resources, table, state, keys)
        return sum(batch.num_rows for batch in found)
    known, rest = _by_state(state, requested_ranges(schema, selection.ranges))
    for part in _by_footer(resources.storage, table, rest, resources.cache):
        known += part
    return known


def count_slices(
    storage: Storage, table: Table, slices: Sequence[Slice], cache: Cache | None = None
) -> list[int]:
    """Return the number of rows of each slice, from the positions of its ends in its shard.

    A whole shard is counted by the state, a row group by the footer; of the row groups at an end,
    the keys are read. This does not use the code that merges slices, so it can verify the result of
    a merge.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    partial = [slice for slice in slices if not slice.is_whole]
    found = find_row_groups(storage, table.id, partial, table.schema, cache)
    split = [_split_at_ends(groups, table.schema) for groups in found]
    keys = [table.schema.row_keys[0].name]

    def count(border: RowGroups) -> int:
        (rows,) = read_row_groups(storage, table.id, [border], table.schema, keys) or ((),)
        return sum(batch.num_rows for batch in rows)

    borders = [[border] for _, border in split]
    steps = plan_reads([borders], table.schema, keys, look_up_bytes=LOOK_UP_BYTES, is_limited=False)
    with ThreadPoolExecutor(READS_AT_ONCE) as threads:
        at_ends = [rows for step in steps for rows in threads.map(count, step.found)]
    counted = (inner + rows for (inner, _), rows in zip(split, at_ends, strict=True))
    return [slice.shard.rows if slice.is_whole else next(counted) for slice in slices]


def _split_at_ends(groups: RowGroups, schema: Schema) -> tuple[int, RowGroups]:
    """Return the number of rows of the row groups wholly in a slice,
    and the row groups at its ends.
    """
    within = groups.index.row_groups_within(fit_range(groups.slice.range, schema))
    inner = sum(groups.index.rows(number) for number in within)
    border = tuple(number for number in groups.numbers if number not in within)
    return inner, replace(groups, numbers=border)


def _by_state(state: TableState, wanted: Sequence[KeyRange]) -> tuple[int, list[Slice]]:
    """Return the number of rows that the state knows, and the slices
    that must be counted otherwise.

    For example, of a range that covers the leaf A and half of the leaf B: a reference in A whose
    count is exact adds its rows; so does a shard that is wholly in the range. A shard in B with
    keys on both sides of the range's end becomes a slice.
    """
    known, rest = 0, []
    for item in wanted:
        for span, references in state.partitions_to_read(item):
            for reference in references:
                slice = Slice(state.shards[reference.shard], span)
                if slice.is_whole:
                    known += slice.shard.rows
                elif reference.exact and state.partitions.get(reference.partition).range == span:
                    known += reference.rows
                else:
                    rest.append(slice)
    return known, rest


def _by_footer(
    storage: Storage, table: Table, slices: Sequence[Slice], cache: Cache
) -> Iterator[int]:
    schema = table.schema
    keys = [field.name for field in schema.keys]
    for window in windows([[slice] for slice in slices], 2 * READ_THREADS):
        found = find_row_groups(
            storage, table.id, [s for part in window for s in part], schema, cache
        )
        borders: list[LeafRowGroups] = []
        for groups in found:
            inner, border = _split_at_ends(groups, schema)
            yield inner
            borders.append([border])
        for step in plan_reads(
            [borders], schema, keys, look_up_bytes=LOOK_UP_BYTES, is_limited=False
        ):
            rows = read_row_groups(storage, table.id, step.found, schema, keys[:1])
            yield sum(batch.num_rows for batches in rows for batch in batches)
