"""Scans of most of a table: DuckDB reads the files themselves, once they are verified.

Where shards are files of this machine, and no rule of the table changes their rows, they are linked
into the folder that DuckDB may read and verified, as for a merge. It reads them in parallel, which
costs half or a third of reading the same rows from Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from dormouse.arrow.evolution import stored_names
from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.rows import reading_version
from dormouse.readers.local_copies import LocalCopies, MergeWindow
from dormouse.readers.read_counters import CountedObjects
from dormouse.readers.reading import RowGroups, Slice, find_row_groups
from dormouse.schema.schema import Field
from dormouse.sql.expressions import quoted, text_literal
from dormouse.statements.streams import needed_row_groups
from dormouse.statements.tables import Scan, Tables
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

LEAST_BYTES = 1024 * 1024
"""Less is streamed: to verify and open files takes longer than to read so little."""
LEAST_SHARE = 2
"""At least one of so many row groups must be needed: each file is read whole."""


def linked_files(
    tables: Tables, name: str, scan: Scan, folder: Path, held: ExitStack
) -> str | None:
    """Return what reads the verified files of all shards that a scan needs, as SQL in the place of
    a table; None if its rows are to be streamed. The files are there until `held` is closed.

    Raises:
        DormouseError: a shard is gone or damaged.
    """
    visible, state = tables.references[name]
    # few rows need few row groups, and files hold all columns
    if tables.first is not None or not visible.is_whole:
        return None
    with reading_version(tables.resources, visible.table, state.version):
        return _linked(tables, name, scan, folder, held)


def _linked(tables: Tables, name: str, scan: Scan, folder: Path, held: ExitStack) -> str | None:
    visible, state = tables.references[name]
    table, resources = visible.table, tables.resources
    if resources.storage.is_remote or not _can_be_read_as_it_is(table):
        return None
    selection = tables.selection(name, scan)
    selected = _slices(state, selected_ranges(table, selection))
    shards = {slice.shard.id for slice in selected}
    if sum(slice.shard.size_bytes for slice in selected) < LEAST_BYTES:
        return None
    held_by_leaves = (s for s in _slices(state, [KeyRange()]) if s.shard.id in shards)
    slices = list(whole_shards(held_by_leaves))
    if not slices:
        return None
    storage = CountedObjects(resources.storage, tables.reads)
    every = find_row_groups(storage, table.id, slices, table.schema, resources.cache, footers=True)
    found = needed_row_groups(storage, resources.cache, table, selected, selection.condition)
    used = {*scan.columns, *scan.tested}
    fields = [field for field in table.schema.fields if field.name in used]
    needed = len({(g.slice.shard.id, number) for g in found for number in g.numbers})
    whole = [replace(g, numbers=range(g.metadata.num_row_groups)) for g in every]
    if needed * LEAST_SHARE < sum(len(groups.numbers) for groups in whole):
        return None
    if not all(_has_names(groups, table.schema.fields) for groups in whole):
        return None
    copies = LocalCopies(storage, table.id, fields, folder, resources.memory_bytes)
    windows = held.enter_context(closing(copies.windows(iter([(KeyRange(), whole)]))))
    tables.count_shards(slices, needed)
    return _reading(next(windows), table)


def _reading(window: MergeWindow, table: Table) -> str:
    """Return a query of verified files, with the columns of a table.

    The least and greatest values in a file leave out NaN, which is greater than all other numbers:
    DuckDB is told that there may be some.
    """
    files = ", ".join(text_literal(str(each.path)) for each in window.files)
    columns = ", ".join(quoted(field.name) for field in table.schema.fields)
    return f"SELECT {columns} FROM read_parquet([{files}], can_have_nan = true)"


def _can_be_read_as_it_is(table: Table) -> bool:
    """Return whether the rows of shards are those of the table, in the types of programs."""
    stored = arrow_schema(table.schema)
    rules = row_rules(table.schema, table.properties)
    return rules.is_empty and frame_schema(stored).equals(stored)


def _slices(state: TableState, ranges: Sequence[KeyRange]) -> list[Slice]:
    return [slice for part in slices_to_read(state, ranges) for slice in part]


def whole_shards(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Yield each shard once; none if one of them has rows that do not count, or count twice.

    A shard that was ingested before its leaf was split, or with rows for several leaves, has a
    slice in each of them. Its file has the rows of all, if these leave no key out between them.
    """
    ranges: dict[str, list[Slice]] = {}
    for slice in slices:
        ranges.setdefault(slice.shard.id, []).append(slice)
    joined = [_joined(of_shard) for of_shard in ranges.values()]
    if all(slice is not None for slice in joined):
        yield from (slice for slice in joined if slice is not None)


def _joined(of_shard: Sequence[Slice]) -> Slice | None:
    """Return disjoint slices of a shard as the one that is all of it; None if they are not."""
    ordered = sorted((slice.range for slice in of_shard), key=lambda range: range.min)
    if any(a.max != b.min for a, b in pairwise(ordered)):
        return None
    whole = Slice(of_shard[0].shard, KeyRange(ordered[0].min, ordered[-1].max))
    return whole if whole.is_whole else None


def _has_names(groups: RowGroups, fields: tuple[Field, ...]) -> bool:
    """Return whether a shard has all columns under the names that they have now."""
    names = stored_names(groups.index.names, fields)
    return all(names.get(f.name) == f.name for f in fields)
