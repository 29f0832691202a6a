"""Answer the scans of a statement: read the selected rows of one version of each table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from msgspec import structs

from dormouse.access.visible import VisibleTable
from dormouse.arrow.ranges import requested_ranges
from dormouse.arrow.types import arrow_schema, conform, frame_schema
from dormouse.cache import Cache
from dormouse.errors import DormouseError
from dormouse.key_forms.arrow import key_column
from dormouse.keys.ranges import Key, KeyRange
from dormouse.messages.stages import SelectionMessage
from dormouse.model.state import TableState
from dormouse.ports.services import Storage
from dormouse.query.count import count_rows
from dormouse.query.pieces import bytes_to_read
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.query.rows import QueryResources, query_rows
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import decode_selection
from dormouse.readers.read_counters import ReadCounters
from dormouse.readers.reading import Slice
from dormouse.schema.schema import Schema
from dormouse.sql.key_bounds import exact_ranges
from dormouse.statements.limits import Limits, ReadLimitError
from dormouse.statements.protocol import Named, Scan, ScanRows
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

COUNTED_ROWS = 256 * 1024
"""How many rows a batch without columns has: DataFusion makes a column of numbers to count them."""

Opened: TypeAlias = tuple[VisibleTable, TableState]
"""What the statement's caller may see of a table, and the state of the version to read."""
OpenTable: TypeAlias = Callable[[str, str], Opened]
"""Open a table by name, at a version; at the newest if the version is empty."""


@dataclass(frozen=True, slots=True)
class ScanResources:
    """The part of the resources of a process that one of several scans may use."""

    storage: Storage
    scratch: Path
    memory_bytes: int
    cache: Cache
    newest_version: Callable[[Table], int | None]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a statement: one version of each, for all its scans. `columns` has what the
    scans read of each table, in rows or conditions, by its id. `going` counts for scans that go on.
    """

    resources: QueryResources
    open_table: OpenTable
    time_ms: int
    columns: dict[str, set[str]] = field(default_factory=dict)
    opened: dict[tuple[str, str], Opened] = field(default_factory=dict)
    references: dict[str, Opened] = field(default_factory=dict)
    reads: ReadCounters = field(default_factory=ReadCounters)
    first: dict[str, pa.Table] = field(default_factory=dict)
    going: list[ReadCounters] = field(default_factory=list)
    not_first: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, reference: Named) -> Schema:
        """Open the table of a reference, and return what the caller may see of its schema.

        Raises:
            DormouseError: there is none, or not that version; the message says where it is named.
        """
        key = (reference.table, reference.as_of)
        if key not in self.opened:
            try:
                self.opened[key] = self.open_table(*key)
            except DormouseError as error:
                where = f"line {reference.line}, column {reference.column}"
                raise type(error)(f"{where}: {error}", hint=error.hint) from error
            self.columns.setdefault(self.opened[key][0].table.id, set())
        self.references[reference.name] = self.opened[key]
        return self.opened[key][0].schema

    @property
    def versions(self) -> Mapping[str, tuple[int, ...]]:
        """The versions of each table that are read, ascending, by the names of tables."""
        found: dict[str, set[int]] = {}
        for opened, state in self.references.values():
            found.setdefault(opened.table.name, set()).add(state.version)
        return {name: tuple(sorted(versions)) for name, versions in found.items()}

    def read_so_far(self) -> ReadCounters:
        """Return the requests and bytes that were read, also by scans that go on."""
        with self.lock:
            each = [self.reads, *self.going]
        requests = sum(reads.requests for reads in each)
        return ReadCounters(requests=requests, size_bytes=sum(reads.size_bytes for reads in each))

    def result(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> QueryResult:
        """Return rows as the result of the statement."""
        versions = dict(self.versions)
        read = [version for of_table in versions.values() for version in of_table]
        only = read[0] if len(read) == 1 else 0
        return QueryResult(schema, PeekableBatches(batches), self.reads, only, versions)

    def rows(self, name: str, scan: Scan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a scan, and their schema; they are read while they are taken."""
        visible, state = self.references[name]
        table, selection = visible.table, self.selection(name, scan)
        if not scan.columns:
            rows = self._counted(table, state, selection)
            return pa.schema([]), _without_columns(rows)
        if (first := self.first.get(name)) is not None:
            chosen = first.select(list(scan.columns))
            return chosen.schema, iter(chosen.to_batches())
        schema = arrow_schema(visible.schema)
        wanted = frame_schema(pa.schema([schema.field(column) for column in scan.columns]))
        if scan.ends and visible.schema.row_keys and (ends := known_ends(table, state)):
            return wanted, iter([conform(ends, wanted)])
        return wanted, self._selected(table, state, selection, from_end=scan.from_end)

    def find_first(self, name: str, scan: Scan) -> bool:
        """Read the rows that are first by a column, if they are enough for a scan and little is
        read for them; return whether they are read.

        Raises:
            DormouseError: a shard is gone or damaged.
        """
        if scan.first is None or name in self.not_first:
            return False
        from dormouse.query import top_rows  # which few statements need

        visible, state = self.references[name]
        top, reads = top_rows.Top(**structs.asdict(scan.first)), ReadCounters()
        selection = self.selection(name, scan)
        found = top_rows.top_rows(self.resources, visible.table, state, selection, top, reads)
        with self.lock:
            self.reads.add(reads)
        if found is None:
            self.not_first.add(name)  # who asks again need not search again
        else:
            self.first[name] = found
        return found is not None

    def selection(self, name: str, scan: Scan) -> Selection:
        """Return the selection of a scan, and note the columns that it reads."""
        visible, state = self.references[name]
        selection = decode_selection(
            SelectionMessage(where=scan.where, columns=scan.columns, limit=scan.limit),
            visible.table.schema,
            permission=visible.permission,
            version=state.version,
            time_ms=self.time_ms,
        )
        with self.lock:
            self.columns[visible.table.id].update(scan.columns, selection.tested_columns)
        return _by_ranges(selection, visible.table.schema)

    def estimate_bytes(self, name: str, scan: Scan) -> int:
        """Estimate how many bytes of shards a scan reads, by the state and the share of columns."""
        visible, state = self.references[name]
        selection = self.selection(name, scan)
        used = {*scan.columns, *selection.tested_columns}
        whole = bytes_to_read(state, selected_ranges(visible.table, selection))
        return whole * len(used) // len(visible.table.schema.fields)

    def count_shards(self, slices: Iterable[Slice], row_groups: int) -> None:
        """Count what is read of shards without a query."""
        with self.lock:
            self.reads.shards.update(slice.shard.id for slice in slices)
            self.reads.row_groups += row_groups

    def _counted(self, table: Table, state: TableState, selection: Selection) -> int:
        limit = selection.limit
        rows = count_rows(self.resources, table, state, selection)
        return rows if limit is None else min(rows, limit)

    def _selected(
        self, table: Table, state: TableState, selection: Selection, *, from_end: bool
    ) -> Iterator[pa.RecordBatch]:
        share = self.resources.memory_bytes // max(1, len(self.references))
        whole = self.resources
        resources = ScanResources(
            whole.storage, whole.scratch, share, whole.cache, whole.newest_version
        )
        if from_end and selection.limit is not None:
            from dormouse.query.last_rows import last_rows  # which few statements need

            unlimited = replace(selection, limit=None)
            reads = ReadCounters()
            with self._counting(reads):
                yield from last_rows(resources, table, state, unlimited, selection.limit, reads)
            return
        found = query_rows(resources, table, state, selection).for_programs()
        with self._counting(found.reads), closing(found):
            yield from found

    @contextmanager
    def _counting(self, reads: ReadCounters) -> Iterator[None]:
        """Count what the block reads, while it reads and for good after."""
        with self.lock:
            self.going.append(reads)
        try:
            yield
        finally:
            with self.lock:
                self.going[:] = [each for each in self.going if each is not reads]
                self.reads.add(reads)


def check_reads(tables: Tables, scans: Iterable[ScanRows], limits: Limits) -> None:
    """Check that the scans of a statement read no more than it may. The first or last rows in key
    order, ends and counts do not count: what they read is bounded otherwise.

    Raises:
        ReadLimitError: they do, as the state of their tables says.
    """
    most = limits.read_bytes
    if most is None:
        return
    estimate = sum(tables.estimate_bytes(s.name, s.scan) for s in scans if s.scan.reads_all)
    if estimate > most:
        raise ReadLimitError(
            f"the statement would read about {estimate:,} bytes of shards, more than {most:,}",
            hint="ask for fewer rows or columns, or let it read more",
        )


def _by_ranges(selection: Selection, schema: Schema) -> Selection:
    """Return a selection of the whole table with ranges in place of its condition, if these say the
    same: then no row has to be tested, and rows can be counted without being read.
    """
    condition = selection.condition
    ranges = None if condition is None else exact_ranges(condition, schema)
    if ranges is None:
        return selection
    fitting = tuple(requested_ranges(schema, ranges)) if ranges else ()
    return replace(selection, ranges=fitting or (KeyRange((), ()),), condition=None)


def known_ends(table: Table, state: TableState) -> pa.RecordBatch | None:
    """Return rows with the least and the greatest first row key, if the state alone knows them."""
    parts = slices_to_read(state, [KeyRange()])
    slices = [slice for part in parts for slice in part]
    rules = row_rules(table.schema, table.properties)
    low = [slice.shard.min_key for slice in slices if _holds(slice, slice.shard.min_key)]
    high = [slice.shard.max_key for slice in slices if _holds(slice, slice.shard.max_key)]
    if not rules.is_empty or not low or not high:
        return None
    # a slice that begins or ends within its shard has rows up to there that the state does not know
    lowest = min(max(slice.shard.min_key, slice.range.min) for slice in slices)
    highest = max(
        min(slice.shard.max_key, slice.range.max or slice.shard.max_key) for slice in slices
    )
    first = table.schema.row_keys[0]
    if min(low)[:1] > lowest[:1] or max(high)[:1] < highest[:1]:
        return None
    column = key_column([min(low)[0], max(high)[0]], first.type)
    return pa.RecordBatch.from_arrays([column], names=[first.name])


def _holds(slice: Slice, key: Key) -> bool:
    return slice.range.contains_span(key, key)


def _without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of so many rows together, without columns: DataFusion counts them."""
    for start in range(0, rows, COUNTED_ROWS):
        column = pa.nulls(min(COUNTED_ROWS, rows - start))
        yield pa.RecordBatch.from_arrays([column], names=["rows"]).select([])
