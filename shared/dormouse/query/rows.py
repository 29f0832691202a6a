"""Answer queries by keys, key ranges and conditions from one version of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import rows_in_ranges
from dormouse.arrow.ranges import ranges_to_read, requested_ranges
from dormouse.arrow.types import arrow_schema, conform
from dormouse.cache import Cache
from dormouse.engine.merging import merge_row_groups, sort_in_memory
from dormouse.engine.predicates import Predicate
from dormouse.engine.row_rules import apply_row_rules, filter_predicate
from dormouse.errors import BRING_BACK, InvalidRequestError, NotFoundError
from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.ports import Storage
from dormouse.readers.read_counters import CountedObjects, ReadCounters
from dormouse.readers.read_plan import LeafRowGroups, LookUp, Scan, plan_reads
from dormouse.readers.reading import (
    READ_THREADS,
    RowGroups,
    Slice,
    find_row_groups,
    read_row_groups,
)
from dormouse.schema.schema import Schema
from dormouse.tables.row_rules import RowRules, row_rules
from dormouse.tables.table import Table

LIMITED_SCAN_BYTES = 32 * 1024 * 1024
"""The memory for a scan that may be stopped early: it reads in small steps."""
LOOK_UP_BYTES = 16 * 1024 * 1024
"""Up to what size in memory row groups are read at once instead of streamed."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows, sorted by the keys and streamed, and what they are read from.

    `reads` tells what was read, and grows as the reader is read.
    """

    reader: pa.RecordBatchReader
    reads: ReadCounters
    version: int


def query_rows(
    storage: Storage,
    table: Table,
    state: TableState,
    ranges: Sequence[KeyRange],
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = None,
    now_ms: int,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
) -> QueryResult:
    """Return the rows of `table` in any of `ranges`, all rows if there are none; in key order.

    Ranges are of row keys, which sort keys continue.
    Rows are as the table's filters and aggregations make them, and given if `where` is true of
    them. They are read as the reader is read: with a `limit`, little more than it takes. Up to
    `look_up_bytes` of rows are read at once rather than merged as a stream.

    Raises:
        InvalidRequestError: an unknown column, a negative limit, or a bound of the wrong type.
    """
    condition = None if where is None else where.condition
    wanted = ranges_to_read(table, ranges, condition)
    return query_parts(
        storage,
        table,
        state.version,
        slices_to_read(state, wanted),
        ranges=ranges,
        columns=columns,
        where=where,
        limit=limit,
        now_ms=now_ms,
        scratch=scratch,
        memory_bytes=memory_bytes,
        cache=cache,
        look_up_bytes=look_up_bytes,
    )


def query_parts(
    storage: Storage,
    table: Table,
    version: int,
    parts: Iterable[list[Slice]],
    *,
    ranges: Sequence[KeyRange] = (),
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = None,
    now_ms: int,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
) -> QueryResult:
    """Query as `query_rows` does what is known to lie in `parts` of a version of `table`.

    Parts are disjoint and in key order, each is all shards' rows of a range within one leaf; they
    hold what `ranges_to_read` gives for `ranges`.

    Raises:
        InvalidRequestError: an unknown column, a negative limit, or a bound of the wrong type.
    """
    schema = table.schema
    names = check_columns(schema, columns, limit)
    query = _Query(
        storage=storage,
        table=table,
        version=version,
        columns=names,
        ranges=requested_ranges(schema, ranges),
        where=where,
        rules=row_rules(schema, table.properties),
        limit=limit,
        now_ms=now_ms,
        scratch=scratch,
        memory_bytes=memory_bytes,
        look_up_bytes=look_up_bytes,
        cache=cache or Cache(),
        reads=ReadCounters(),
    )
    result_schema = pa.schema([arrow_schema(schema).field(name) for name in names])
    return QueryResult(
        reader=pa.RecordBatchReader.from_batches(result_schema, query.result(parts, result_schema)),
        reads=query.reads,
        version=version,
    )


def slices_to_read(state: TableState, wanted: Sequence[KeyRange]) -> Iterator[list[Slice]]:
    """Return what of which shards disjoint ranges need, in key order: each part lies in one
    leaf."""
    for item in wanted:
        for span, references in state.partitions_to_read(item):
            yield [Slice(state.shards[r.shard], span) for r in references]


@dataclass(frozen=True, slots=True)
class _Query:
    storage: Storage
    table: Table
    version: int
    columns: list[str]
    ranges: Sequence[KeyRange]
    where: Predicate | None
    rules: RowRules
    limit: int | None
    now_ms: int
    scratch: Path
    memory_bytes: int
    look_up_bytes: int
    cache: Cache
    reads: ReadCounters

    @property
    def schema(self) -> Schema:
        return self.table.schema

    def result(
        self, parts: Iterable[list[Slice]], result_schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that were asked for, of parts in key order."""
        rows = self._aggregated(parts) if self.rules.aggregates else self._filtered(parts)
        try:
            for batch in rows if self.limit is None else _limited(rows, self.limit):
                yield conform(batch, result_schema)
        except NotFoundError as error:
            raise NotFoundError(
                f"version {self.version} of table {self.table.name!r} cannot be read any more: "
                f"{error}",
                hint="if others were committed since, its shards were merged and collected: query "
                "a newer version, and raise gc_delay_seconds to keep them for longer; if it is the "
                f"newest, the shard is lost: {BRING_BACK}",
            ) from error

    def _filtered(self, parts: Iterable[list[Slice]]) -> Iterator[pa.RecordBatch]:
        """Return the rows that match; rows are tested before they are merged."""
        tests = [filter_predicate(self.schema, self.rules, self.now_ms), self.where]
        return self._rows(parts, self.columns, _both([test for test in tests if test is not None]))

    def _aggregated(self, parts: Iterable[list[Slice]]) -> Iterator[pa.RecordBatch]:
        """Return the rows that match once all rows of a group are one."""
        used = self.where.columns if self.where else ()
        needed = self.rules.needed([*self.columns, *used], self.schema)
        before = filter_predicate(self.schema, self.rules, self.now_ms)
        together = RowRules(aggregation=self.rules.aggregation)
        rows = self._rows(parts, needed, before)
        rows = apply_row_rules(rows, self.schema, together, self.now_ms)
        # of rows that agree in row keys, one may be kept, whichever of them was asked for
        rows = (part for batch in rows for part in rows_in_ranges(batch, self.ranges, self.schema))
        return rows if self.where is None else self.where.apply(rows)

    def _rows(
        self, parts: Iterable[list[Slice]], columns: Sequence[str], where: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the stored rows of parts that match, sorted; the batches may have more columns."""
        used = {*(f.name for f in self.schema.keys), *columns, *(where.columns if where else ())}
        needed = [f.name for f in self.schema.fields if f.name in used]
        steps = plan_reads(
            self._found(parts),
            self.schema,
            needed,
            look_up_bytes=self.look_up_bytes,
            is_limited=self.limit is not None,
        )
        for step in steps:
            self._note(step)
            if isinstance(step, Scan):
                yield from self._scanned(step, columns, where)
            else:
                rows = self._looked_up(step, needed)
                yield from rows if where is None else where.apply(rows)

    def _found(self, parts: Iterable[list[Slice]]) -> Iterator[list[LeafRowGroups]]:
        """Find the row groups of parts, of many at once unless few may do."""
        objects = CountedObjects(self.storage, self.reads)
        for window in windows(parts, 1 if self.limit is not None else 2 * READ_THREADS):
            slices = [slice for part in window for slice in part]
            self.reads.shards.update(slice.shard.id for slice in slices)
            found = iter(find_row_groups(objects, self.table.id, slices, self.schema, self.cache))
            yield [[next(found) for _ in part] for part in window]

    def _scanned(
        self, step: Scan, columns: Sequence[str], where: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        self.reads.scans += 1
        return merge_row_groups(
            CountedObjects(self.storage, self.reads),
            self.table.id,
            step.found,
            self.schema,
            columns=columns,
            where=where,
            scratch=self.scratch,
            memory_bytes=self.memory_bytes
            if self.limit is None
            else min(self.memory_bytes, LIMITED_SCAN_BYTES),
        )

    def _looked_up(self, step: LookUp, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        objects = CountedObjects(self.storage, self.reads)
        rows = read_row_groups(objects, self.table.id, step.found, self.schema, columns)
        batches = [batch for of_shard in rows for batch in of_shard]
        return iter(batches) if _in_order(step.found) else sort_in_memory(batches, self.schema)

    def _note(self, step: LookUp | Scan) -> None:
        places = {(g.slice.shard.id, number) for g in step.found for number in g.numbers}
        self.reads.row_groups += len(places)


def _both(tests: Sequence[Predicate]) -> Predicate | None:
    """Return the predicate of rows that pass all of up to two tests."""
    if len(tests) < 2:
        return tests[0] if tests else None
    first, second = tests
    return Predicate(first.condition.and_also(second.condition), first.schema)


def windows(parts: Iterable[list[Slice]], shards: int) -> Iterator[list[list[Slice]]]:
    """Return parts in groups of at least so many shards; the size of the groups doubles."""
    window: list[list[Slice]] = []
    seen: set[str] = set()
    for part in parts:
        window.append(part)
        seen.update(slice.shard.id for slice in part)
        if len(seen) >= shards:
            yield window
            window, seen = [], set()
            shards = min(2 * shards, 2 * READ_THREADS)
    if window:
        yield window


def _in_order(found: Sequence[RowGroups]) -> bool:
    """Return whether the rows of one shard after the other are sorted: no shard meets the next."""
    shards = {groups.slice.shard.id: groups.slice.shard for groups in found if groups.numbers}
    ordered = sorted(shards.values(), key=lambda shard: shard.min_key)
    return all(a.max_key < b.min_key for a, b in zip(ordered, ordered[1:], strict=False))


def check_columns(
    schema: Schema, columns: Sequence[str] | None, limit: int | None = None
) -> list[str]:
    """Return the columns of a query, all if None are named.

    Raises:
        InvalidRequestError: one is unknown, none is left, or the limit is no number of rows.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidRequestError(f"a limit is a number of rows, which {limit!r} is not")
    if columns is None:
        return [f.name for f in schema.fields]
    if not columns:
        raise InvalidRequestError("no columns are asked for", hint="leave them out to get all")
    return [schema.field_named(name).name for name in dict.fromkeys(columns)]


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    for batch in batches:
        yield batch.slice(0, min(limit, batch.num_rows))  # Arrow counts to 2^63
        limit -= batch.num_rows
        if limit <= 0:
            return
