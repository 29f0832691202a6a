"""Answer queries by keys, key ranges and conditions from one version of a table."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain, groupby, islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dormouse.arrow.order import fit_range, requested_ranges, rows_in_ranges, sort_in_memory
from dormouse.arrow.types import columns_schema, conform, gathered
from dormouse.encryption import KeyService
from dormouse.errors import BRING_BACK, DamagedShardError, NotFoundError, VersionGoneError
from dormouse.keys import KeyRange, complement, intersect_ranges, union_ranges
from dormouse.ports import Cache, Storage
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.query.selection import Selection, selected_ranges, slices_to_read
from dormouse.query.small_shards import SmallShards
from dormouse.rows.deletions import deletions_for
from dormouse.rows.predicates import Predicate, ValueBounds, aggregated, on_shredded
from dormouse.schema.row_tags import may_have, only_text
from dormouse.schema.schema import RESERVED, SEQUENCE, TAGS, Field, Schema
from dormouse.schema.types import Primitive, is_key_type
from dormouse.shards.decoding import NOTHING_KEPT, read_blocks
from dormouse.shards.reading import (
    READ_THREADS,
    READS_AT_ONCE,
    Blocks,
    CountedObjects,
    LeafBlocks,
    LookUp,
    ReadCounters,
    Scan,
    Slice,
    Values,
    find_blocks,
    narrow,
    plan_reads,
    with_footers,
    with_others_of_keys,
    without_excluded,
)
from dormouse.sql.conditions import Condition, Tests, text_tests
from dormouse.sql.key_bounds import column_values, wanted_tags
from dormouse.state.partitions import Shard
from dormouse.state.state import Deletion, TableState
from dormouse.tables.row_rules import RowRules, asked_fields, row_rules
from dormouse.tables.table import Table

LIMITED_SCAN_BYTES = 32 * 1024 * 1024
"""The memory for a scan that may be stopped early: it reads in small windows."""
LOOK_UP_BYTES = 16 * 1024 * 1024
"""Row groups of up to this size in memory are read at once; more are streamed."""
PARTS_AT_ONCE = 1024
"""So many parts are looked at together, whether the rows of any are of several shards."""
MOST_SHARDS = 256
"""Shards of which most are read again and again are found together, up to so many."""
FEW_BLOCKS = 16
"""So few blocks that term indexes leave are read without asking statistics for fewer."""
CHUNK_BYTES = 4 * 1024 * 1024
"""How much of a scan that is not sifted is read at a time, in memory."""
JOINED_ROWS = 8192
"""How many rows of small shards are one batch, where others sift them."""


class QueryResources(Protocol):
    """What a query needs of the process that runs it; `ports.Services` has it."""

    @property
    def storage(self) -> Storage:
        """The storage of the shards."""

    @property
    def scratch(self) -> Path:
        """A local folder for the shards that are merged."""

    @property
    def memory_bytes(self) -> int:
        """The memory that merging may use before it spills."""

    @property
    def cache(self) -> Cache:
        """The objects that the process has read."""

    @property
    def keys(self) -> KeyService:
        """The keys of encrypted columns that the process may use."""

    def newest_version(self, table: Table) -> int | None:
        """Return the newest version of a table; None if it is gone, or not known here."""


def query_rows(
    resources: QueryResources, table: Table, state: TableState, selection: Selection
) -> QueryResult:
    """Return the selected rows of `table`, in key order; `state` is the selection's version of it.

    Rows are read while the result is read: with a limit, little more than the limit. Up to
    `LOOK_UP_BYTES` of rows are read at once; more are merged as a stream.
    """
    parts = slices_to_read(state, selected_ranges(table, selection))
    return query_slices(resources, table, parts, selection)


def query_slices(
    resources: QueryResources,
    table: Table,
    parts: Iterable[list[Slice]],
    selection: Selection,
    *,
    is_sifted: bool = True,
    reads: ReadCounters | None = None,
    lost_by: tuple[Deletion, ...] = (),
    as_stored: bool = False,
) -> QueryResult:
    """Query as `query_rows` does, reading only `parts` of the selection's version of `table`.

    Parts are disjoint and in key order. Each has the slices of all shards for one range within one
    leaf, as `slices_to_read` returns them. Unless `is_sifted`, other rows in the ranges come too,
    and in any order: a condition only leaves out row groups, a limit says that few rows may be
    enough. Tables with rules can only be read sifted. `reads` counts for several queries. With
    `lost_by`, which are later deletions than those of the slices, only the rows that these hide are
    returned. Encrypted columns have their values, or what is stored of these.
    Raises ForbiddenError: this process lacks the key of a column that is asked for.
    """
    reads = ReadCounters() if reads is None else reads
    rules = row_rules(table.schema, table.properties).for_readers()
    stored = rules.stored_schema(table.schema)
    named = {*selection.columns, *selection.tested_columns}
    more = asked_fields(rules, table.properties, named)
    if SEQUENCE.name in selection.columns:
        more = (*more, SEQUENCE)
    stored, shown = stored.with_values(*more), table.schema.with_values(*more)
    parts = iter(parts) if rules.aggregates else tagged_slices(parts, selection.condition)
    first = next(parts, None)
    earlier = first[0].deletions if first else ()
    if earlier or lost_by:
        tests = [rules.kept] if rules.kept else []
        tests += [deletions_for(stored, earlier).hidden.negated()] if earlier else []
        tests += [deletions_for(stored, lost_by).hidden] if lost_by else []
        stored = deletions_for(stored, (*earlier, *lost_by)).schema
        rules = replace(rules, kept=reduce(Condition.and_also, tests))
    parts = chain([] if first is None else [first], parts)
    query = _Query(resources, table, stored, selection, rules, is_sifted, reads)
    schema = columns_schema(shown, selection.columns)
    batches = query.result(parts, schema)
    if not as_stored and any(f.name in selection.columns for f in table.schema.encrypted):
        from dormouse.arrow.sealing import ColumnKeys  # most tables have no encrypted columns

        keys = ColumnKeys(resources.keys, table.schema, table.id)
        keys.check(selection.columns)
        batches = _decrypted(batches, keys.decrypted)
        schema = columns_schema(shown.opened, selection.columns)
    return QueryResult(schema, PeekableBatches(batches), reads, selection.version)


def _decrypted(
    batches: Generator[pa.RecordBatch], decrypted: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Generator[pa.RecordBatch]:
    with closing(batches):
        for batch in batches:
            yield decrypted(batch)


def tagged_slices(
    parts: Iterable[list[Slice]], condition: Condition | None
) -> Iterator[list[Slice]]:
    """Yield the slices that may have rows to return, as far as the row tags of their shards say."""
    tags = None if condition is None else wanted_tags(condition.expression)[0]
    for part in parts:
        rest = [
            each
            for each in part
            if not each.is_hidden and (tags is None or may_have(each.shard.tags, tags))
        ]
        if rest:
            yield rest


@dataclass(frozen=True, slots=True)
class _Query:
    resources: QueryResources
    table: Table
    schema: Schema
    selection: Selection
    rules: RowRules
    is_sifted: bool
    reads: ReadCounters

    @property
    def where(self) -> Predicate | None:
        return _predicate(self.selection.condition, self.schema)

    @property
    def _shown(self) -> Predicate | None:
        return _predicate(self.rules.filter_at(self.selection.time_ms), self.schema)

    @property
    def is_limited(self) -> bool:
        return self.selection.limit is not None

    def result(
        self, parts: Iterable[list[Slice]], result_schema: pa.Schema
    ) -> Generator[pa.RecordBatch]:
        """Yield the selected rows of parts in key order, if they are to be sifted."""
        limit = self.selection.limit if self.is_sifted else None
        if not self.is_sifted:
            rows = self._unsifted(parts)
        else:
            rows = self._filtered(parts, self.selection.columns)
            if self.rules.aggregates:
                rows = self._combined(parts)
        with reading_version(self.resources, self.table, self.selection.version):
            for batch in rows if limit is None else limited(rows, limit):
                yield conform(batch, result_schema)

    def _filtered(
        self, parts: Iterable[list[Slice]], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match; rows are tested before they are merged: the same remain."""
        tests = self.rules.filter_at(self.selection.time_ms), self.selection.condition
        conditions = [test for test in tests if test is not None]
        both = reduce(Condition.and_also, conditions) if conditions else None
        return self._rows(parts, columns, _predicate(both, self.schema))

    def _combined(self, parts: Iterable[list[Slice]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, of each group one. A shard has one row of each key if the
        latest ones are kept: alone in a part, it hides none of its own.
        """
        keys = {field.name for field in self.schema.keys}.union(self.selection.columns)
        columns = [field.name for field in self.schema.fields if field.name in keys]
        parts = iter(parts)
        while some := list(islice(parts, PARTS_AT_ONCE)):
            is_plain = self.rules.keeps_latest and all(len(part) == 1 for part in some)
            rows = self._filtered(some, columns) if is_plain else self._aggregated(some)
            # aggregation may have kept a row of the group that is outside the requested ranges
            for batch in rows:
                yield from rows_in_ranges(batch, self.selection.ranges, self.schema)

    def _aggregated(self, parts: Iterable[list[Slice]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match after all rows of a group were aggregated to one. The filters
        of an aggregation decide about rows before that; whether the latest row of a key shows is
        known when it is found.
        """
        used = self.where.columns if self.where else ()
        needed = self.rules.needed([*self.selection.columns, *used], self.schema)
        shown, is_last = self._shown, self.rules.keeps_latest
        assert self.rules.aggregation is not None
        picked = self.where if self.rules.aggregation.kept else None
        rows = self._rows(parts, needed, None if is_last else shown, picked)
        rows = aggregated(rows, self.schema, self.rules)
        if shown is not None and is_last:
            rows = shown.apply(rows)
        return rows if self.where is None else self.where.apply(rows)

    def _unsifted(self, parts: Iterable[list[Slice]]) -> Iterator[pa.RecordBatch]:
        columns, small = self.selection.columns, list[pa.RecordBatch]()
        for step in self._steps(self._large(parts, small), columns, self.where):
            yield from _joined(small)
            small.clear()
            self.reads.add(scans=isinstance(step, Scan))
            cache = self.resources.cache if isinstance(step, LookUp) else NOTHING_KEPT
            for blocks in [step.blocks] if isinstance(step, LookUp) else self._chunks(step):
                objects = CountedObjects(self.resources.storage, self.reads)
                rows = read_blocks(objects, self.table.id, blocks, self.schema, columns, cache)
                yield from _joined(chain.from_iterable(rows))
        yield from _joined(small)

    def _large(
        self, parts: Iterable[list[Slice]], small: list[pa.RecordBatch]
    ) -> Iterator[list[Slice]]:
        """Yield the slices of shards of which the cache does not have all rows; `small` gets them
        of the others.
        """
        fields = [self.schema.field_named(name) for name in self.selection.columns]
        schema = columns_schema(self.schema, self.selection.columns)
        shards = SmallShards(self.resources.cache, self.table.id, fields, schema)
        for part in parts:
            batches, rest = shards.taken(part)
            small += batches
            self.reads.add((each.shard.id for each in part), row_groups=len(part) - len(rest))
            if rest:
                yield rest
        shards.pile_up()

    def _chunks(self, scan: Scan) -> Iterator[list[Blocks]]:
        """Yield the row groups of each slice in runs of about `CHUNK_BYTES`."""
        fields = [self.schema.field_named(name) for name in self.selection.columns]
        for groups in scan.blocks:
            sizes = (groups.index.column_bytes(number, fields) for number in groups.numbers)
            numbered = zip(accumulate(sizes), groups.numbers, strict=True)
            for _, chunk in groupby(numbered, lambda each: each[0] // CHUNK_BYTES):
                yield [replace(groups, numbers=tuple(number for _, number in chunk))]

    def _rows(
        self,
        parts: Iterable[list[Slice]],
        columns: Sequence[str],
        where: Predicate | None,
        picked: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the stored rows of parts that match, sorted; the batches may have more columns.
        Keys of which no row matches `picked` may be left out.
        """
        for step in self._steps(parts, self._needed(columns, where), where, picked):
            test = None if where is None else on_shredded(where, step.blocks)
            if isinstance(step, Scan):
                yield from self._scanned(step, columns, test)
            else:
                schema = test.schema if test else self.schema
                needs_keys = not _in_order(step.blocks)
                used = self._needed(columns, test, with_keys=needs_keys)
                rows = self._looked_up(step, used, schema, sort=needs_keys)
                yield from rows if test is None else test.apply(rows)

    def _needed(
        self, columns: Sequence[str], where: Predicate | None, *, with_keys: bool = True
    ) -> list[str]:
        """Return the columns that are read for some and for a condition, and all keys."""
        fields = where.schema.fields if where else self.schema.fields
        keys = (field.name for field in self.schema.keys if with_keys)
        used = {*keys, *columns, *(where.columns if where else ())}
        return [field.name for field in fields if field.name in used]

    def _steps(
        self,
        parts: Iterable[list[Slice]],
        columns: Sequence[str],
        where: Predicate | None,
        picked: Predicate | None = None,
    ) -> Iterator[LookUp | Scan]:
        """Yield what is read at once."""
        steps = plan_reads(
            self._found(parts, where, picked),
            self.schema,
            columns,
            look_up_bytes=LOOK_UP_BYTES,
            is_limited=self.is_limited,
        )
        for step in steps:
            places = {(g.slice.shard.id, number) for g in step.blocks for number in g.numbers}
            self.reads.add(row_groups=len(places))
            yield step

    def _found(
        self, parts: Iterable[list[Slice]], where: Predicate | None, picked: Predicate | None
    ) -> Iterator[list[LeafBlocks]]:
        """Find the row groups of parts that may have matching rows: of many parts at once, unless a
        limit may need only a few.
        """
        # a condition on what will mostly be scanned needs footers, which a look-up does not read
        needs_footers = where is not None and not self.is_limited
        if where is not None and not self.is_sifted:
            needs_footers = bool(ValueBounds.of(on_shredded(where)).ranges)
        for window in windows(parts, 1 if self.is_limited else 2 * READ_THREADS):
            slices = [slice for part in window for slice in part]
            self.reads.add(slice.shard.id for slice in slices)
            footers = needs_footers and any(slice.is_whole for slice in slices)
            objects = CountedObjects(self.resources.storage, self.reads)
            cache, condition = self.resources.cache, where.condition if where else None
            blocks = needed_blocks(objects, cache, self.table, slices, condition, footers=footers)
            stored = [groups.index.stored for groups in blocks]
            if picked is not None and any(each.terms or each.has_filters for each in stored):
                chosen = picked.condition
                some = needed_blocks(objects, cache, self.table, slices, chosen, footers=False)
                blocks = with_others_of_keys(some, blocks, self.schema)
            rest = iter(blocks)
            yield [[next(rest) for _ in part] for part in window]

    def _scanned(
        self, step: Scan, columns: Sequence[str], where: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        from dormouse.rows.merging import merge_blocks  # loads DataFusion; look-ups do not

        self.reads.add(scans=1)
        memory_bytes = self.resources.memory_bytes
        objects = CountedObjects(self.resources.storage, self.reads)
        blocks, cache = step.blocks, self.resources.cache
        if where is not None:
            blocks = with_footers(objects, self.table.id, blocks, self.schema, cache)
        return merge_blocks(
            objects,
            self.table.id,
            blocks,
            where.schema if where else self.schema,
            columns=columns,
            where=where,
            scratch=self.resources.scratch,
            memory_bytes=min(memory_bytes, LIMITED_SCAN_BYTES) if self.is_limited else memory_bytes,
        )

    def _looked_up(
        self, step: LookUp, columns: Sequence[str], schema: Schema, *, sort: bool
    ) -> Iterator[pa.RecordBatch]:
        objects = CountedObjects(self.resources.storage, self.reads)
        cache = self.resources.cache
        rows = read_blocks(objects, self.table.id, step.blocks, schema, columns, cache)
        batches = [batch for of_shard in rows for batch in of_shard]
        return sort_in_memory(batches, schema) if sort else iter(batches)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from gathered(batches, JOINED_ROWS, CHUNK_BYTES)


def needed_blocks(
    objects: CountedObjects,
    cache: Cache,
    table: Table,
    slices: Sequence[Slice],
    condition: Condition | None,
    *,
    footers: bool,
) -> list[Blocks]:
    """Return the row groups of each slice that term indexes and Bloom filters do not exclude; with
    `footers`, nor statistics.
    """
    where = None if condition is None else on_shredded(Predicate(condition, table.schema))
    schema = where.schema if where else table.schema
    values = _values(where, schema)
    tests: Tests | None = None
    if condition is not None and table.properties.term_index:
        tests = text_tests(condition.expression)
    at_once = footers and tests is None
    blocks = find_blocks(objects, table.id, slices, schema, cache, footers=at_once)
    if tests is not None and any(groups.index.stored.terms for groups in blocks):
        from dormouse.shards.terms import without_terms

        blocks = without_terms(objects, table.id, blocks, tests, table.schema, cache)
        if sum(len(groups.numbers) for groups in blocks) <= FEW_BLOCKS:
            return blocks
    if footers and tests is not None:
        some = with_footers(objects, table.id, [g for g in blocks if g.numbers], schema, cache)
        rest = iter(some)
        blocks = [next(rest) if groups.numbers else groups for groups in blocks]
    if values and any(groups.index.stored.has_filters for groups in blocks):
        blocks = with_footers(objects, table.id, blocks, schema, cache)
        blocks = without_excluded(objects, table.id, blocks, values)
    return list(ValueBounds.of(where).pruned(blocks)) if footers and where else blocks


def _predicate(condition: Condition | None, schema: Schema) -> Predicate | None:
    return None if condition is None else Predicate(condition, schema)


def _values(where: Predicate | None, schema: Schema) -> Values:
    """Return the few values that columns can have in rows that match a condition."""
    if where is None:
        return {}
    values_by_field = {
        field: column_values(where.condition, field)
        for field in schema.fields
        if field.name in where.columns and is_key_type(field.type)
    }
    return {field: values for field, values in values_by_field.items() if values}


def windows(parts: Iterable[list[Slice]], shards: int) -> Iterator[list[list[Slice]]]:
    """Yield parts in groups of at least `shards` shards; the size of the groups doubles.

    A group ends where another shard is needed, so that several ranges of its last shard are read
    together; but not where most are those of the group, up to `MOST_SHARDS`: each would be read
    again.
    """
    window: list[list[Slice]] = []
    shard_ids: set[str] = set()
    for part in parts:
        needed = {slice.shard.id for slice in part}
        others = len(needed - shard_ids)
        is_another = others > len(needed) // 2 or len(shard_ids) + others > MOST_SHARDS
        if len(shard_ids) >= shards and is_another:
            yield window
            window, shard_ids = [], set()
            shards = min(2 * shards, 2 * READ_THREADS)
        window.append(part)
        shard_ids |= needed
    if window:
        yield window


def _in_order(blocks: Sequence[Blocks]) -> bool:
    """Return whether the rows are sorted if the shards are read one
    after the other: no two overlap.
    """
    shards = {groups.slice.shard.id: groups.slice.shard for groups in blocks if groups.numbers}
    ordered = sorted(shards.values(), key=lambda shard: shard.low)
    return all(a.high < b.low for a, b in zip(ordered, ordered[1:], strict=False))


@contextmanager
def reading_version(resources: QueryResources, table: Table, version: int) -> Iterator[None]:
    """Say of objects that the block does not find what that means for a reader of a version.

    Raises:
        DamagedShardError: it did not find one that is lost: the version is the newest there is.
        VersionGoneError: it did not find one of another version, which may have been collected.
    """
    try:
        yield
    except NotFoundError as error:
        if resources.newest_version(table) == version:
            raise DamagedShardError(
                f"a shard of table {table.name!r} is missing, and its newest version, {version}, "
                f"needs it: {error}"
            ) from error
        raise VersionGoneError(
            f"version {version} of table {table.name!r} cannot be read any more: {error}",
            hint="its shards were merged and collected since: query a newer version, and raise "
            "gc_delay_seconds to keep them for longer. If that has no effect, the shard is lost: "
            f"{BRING_BACK}",
        ) from error


def limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `limit` rows of batches."""
    if limit == 0:
        return
    for batch in batches:
        yield batch.slice(0, min(limit, batch.num_rows))  # Arrow counts to 2^63
        limit -= batch.num_rows
        if limit <= 0:
            return


def count_rows(
    resources: QueryResources,
    table: Table,
    state: TableState,
    selection: Selection,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Return the number of rows that `query_rows` would return; the selection has no limit. `check`
    is called from time to time, and may raise an error.

    If a condition, filters or aggregations decide about rows, they are read; so are those with keys
    of which deletions may hide some. Otherwise a shard that is wholly in a range is counted by the
    state, a row group by the footer, and only the row groups at the ends of ranges are read.
    Raises NotFoundError: the version cannot be read any more.
    """
    schema = table.schema
    # what is read of them anyway, but for encrypted ones, of which their keys may not be there
    plain = [f.name for f in schema.fields if is_key_type(f.type) and f not in schema.encrypted]
    tested = [name for name in plain if name in selection.tested_columns]
    keys = replace(selection, columns=(*tested, schema.row_keys[0].name)[:1])
    count, ranges = 0, requested_ranges(schema, selection.ranges)
    rules = row_rules(schema, table.properties)
    if rules.keeps_latest and not (
        selection.condition or table.properties.filters or state.deletions
    ):
        return _count_latest(resources, table, state, keys, check)
    if selection.condition is not None or not rules.is_empty:
        return _counted(query_rows(resources, table, state, keys), check)
    if state.deletions:
        spans = [
            span for each in state.deletions if _hides_some(state, each) for span in each.spans
        ]
        if inside := intersect_ranges(ranges, union_ranges(spans)):
            keys = replace(keys, ranges=tuple(inside))
            count = _counted(query_rows(resources, table, state, keys), check)
            ranges = intersect_ranges(ranges, complement(spans))
    rest = []
    for slice, rows in _slices_by_state(state, ranges):
        if rows is None:
            rest.append(slice)
        else:
            count += rows
    return count + sum(_by_footer(resources.storage, table, rest, resources.cache))


def _count_latest(
    resources: QueryResources,
    table: Table,
    state: TableState,
    selection: Selection,
    check: Callable[[], None],
) -> int:
    from dormouse.query.doubtful_rows import count_certain_rows  # most tables keep all rows

    ranges = requested_ranges(table.schema, selection.ranges)
    with reading_version(resources, table, selection.version):
        count, certain = count_certain_rows(resources, table, state, ranges)
    if doubtful := intersect_ranges(ranges, complement(union_ranges(certain))):
        rest = replace(selection, ranges=tuple(doubtful))  # without any, it would be of all keys
        count += _counted(query_rows(resources, table, state, rest), check)
    return count


def _hides_some(state: TableState, deletion: Deletion) -> bool:
    """Return whether a deletion may hide some rows of a shard, and leave others."""
    shards = state.shards.values()
    return any(deletion.may_hide(each) and not deletion.hides_all(each) for each in shards)


def _counted(result: QueryResult, check: Callable[[], None]) -> int:
    count = 0
    for batch in result:
        count += batch.num_rows
        check()
    return count


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
    blocks = find_blocks(storage, table.id, partial, table.schema, cache)
    split = [_split_at_ends(groups, table.schema) for groups in blocks]
    keys = [table.schema.row_keys[0].name]

    def count(border: Blocks) -> int:
        (rows,) = read_blocks(storage, table.id, [border], table.schema, keys) or ((),)
        return sum(batch.num_rows for batch in rows)

    borders = [[border] for _, border in split]
    steps = plan_reads([borders], table.schema, keys, look_up_bytes=LOOK_UP_BYTES, is_limited=False)
    with ThreadPoolExecutor(READS_AT_ONCE) as threads:
        at_ends = [rows for step in steps for rows in threads.map(count, step.blocks)]
    counts = (inner + rows for (inner, _), rows in zip(split, at_ends, strict=True))
    return [slice.shard.rows if slice.is_whole else next(counts) for slice in slices]


def _split_at_ends(groups: Blocks, schema: Schema) -> tuple[int, Blocks]:
    """Return the number of rows of the row groups wholly in a slice,
    and the row groups at its ends.
    """
    within = groups.index.stored.keys.within(fit_range(groups.slice.range, schema))
    inner = sum(groups.index.rows(number) for number in within)
    border = tuple(number for number in groups.numbers if number not in within)
    return inner, replace(groups, numbers=border)


def _slices_by_state(
    state: TableState, ranges: Sequence[KeyRange]
) -> Iterator[tuple[Slice, int | None]]:
    """Yield the slices that hold rows which are not hidden as a whole, and the number of their
    stored rows; None if the state does not know it.

    For example, of a range that covers the leaf A and half of the leaf B: a reference in A whose
    count is exact has its rows; so has a shard that is wholly in the range. A shard in B with keys
    on both sides of the range's end has None.
    """
    deletions = state.deletions_in(ranges)
    for span, references in state.partitions_to_read(*ranges):
        for reference in references:
            slice = Slice(state.shards[reference.shard], span, deletions)
            rows = reference.rows if reference.exact else None
            if slice.is_hidden:
                continue
            if slice.is_whole:
                rows = slice.shard.rows
            elif rows is None or state.partitions.get(reference.partition).range != span:
                rows = None
            yield slice, rows


def count_by_tags(
    resources: QueryResources, table: Table, state: TableState, time_ms: int
) -> dict[str, int]:
    """Return how many rows have which row tags (`row_tags.tags_of`), of a version.

    Rows are read of shards whose rows differ in them, or do not all count.
    Raises NotFoundError: the version cannot be read any more.
    """
    counts: Counter[str] = Counter()
    selection = Selection(state.version, (TAGS.name,), time_ms=time_ms)
    if not row_rules(table.schema, table.properties).is_empty:
        return dict(_counted_tags(query_rows(resources, table, state, selection)))
    to_read = []
    for slice, rows in _slices_by_state(state, [KeyRange()]):
        text = only_text(slice.shard.tags)
        if text is None or rows is None or any(d.may_hide(slice.shard) for d in slice.deletions):
            to_read.append([slice])
        else:
            counts[text] += rows
    return dict(counts + _counted_tags(query_slices(resources, table, to_read, selection)))


def _counted_tags(result: QueryResult) -> Counter[str]:
    import pyarrow.compute as pc  # it takes a tenth of the time of a first look-up

    counts: Counter[str] = Counter()
    for batch in result:
        pairs: Any = pc.value_counts(batch.column(TAGS.name))
        for pair in pairs.to_pylist():
            counts[pair["values"] or ""] += pair["counts"]
    return counts


def _by_footer(
    storage: Storage, table: Table, slices: Sequence[Slice], cache: Cache
) -> Iterator[int]:
    schema = table.schema
    keys = [field.name for field in schema.keys]
    for window in windows([[slice] for slice in slices], 2 * READ_THREADS):
        blocks = find_blocks(storage, table.id, [s for part in window for s in part], schema, cache)
        split = [_split_at_ends(groups, schema) for groups in blocks]
        yield sum(inner for inner, _ in split)
        borders = [[border] for _, border in split]
        for step in plan_reads(
            [borders], schema, keys, look_up_bytes=LOOK_UP_BYTES, is_limited=False
        ):
            rows = read_blocks(storage, table.id, step.blocks, schema, keys[:1])
            yield sum(batch.num_rows for batches in rows for batch in batches)


BLOCKS_AT_ONCE = 64
"""At most half a million rows are read at once: a block has up to 8,192."""
ROW = Field(f"{RESERVED}row", Primitive.LONG)
"""The number of a row in its shard, from 0."""


def numbered_rows(
    objects: CountedObjects, table_id: str, blocks: Blocks, schema: Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of blocks of a whole shard, with some columns of a schema, and `ROW`."""
    firsts = [0, *accumulate(blocks.index.rows(number) for number in blocks.index.blocks)]
    for start in range(0, len(blocks.numbers), BLOCKS_AT_ONCE):
        some = tuple(blocks.numbers[start : start + BLOCKS_AT_ONCE])
        (rows,) = read_blocks(objects, table_id, [replace(blocks, numbers=some)], schema, columns)
        places = chain.from_iterable(range(firsts[n], firsts[n + 1]) for n in some)
        for batch in rows:
            numbers = pa.array(islice(places, batch.num_rows), pa.int64())
            yield batch.append_column(ROW.name, numbers)


def hidden_rows(
    storage: Storage, table: Table, shard: Shard, deletions: tuple[Deletion, ...], cache: Cache
) -> Iterator[int]:
    """Yield the numbers of the rows of a shard that deletions hide, from 0, in no order.

    Only the columns that deletions name are read, of blocks that may have such rows.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged.
    """
    if any(each.hides_all(shard) for each in deletions):
        yield from range(shard.rows)
        return
    hiding = deletions_for(table.schema, deletions)
    columns = [field.name for field in hiding.schema.fields if field.name in hiding.hidden.columns]
    objects, slices = CountedObjects(storage, ReadCounters()), [Slice(shard, KeyRange())]
    (whole,) = needed_blocks(objects, cache, table, slices, hiding.hidden, footers=True)
    spans = [span for each in deletions for span in each.spans]
    in_spans = {n for span in spans for n in narrow(whole, span, table.schema).numbers}
    numbers = tuple(number for number in whole.numbers if number in in_spans)
    rows = numbered_rows(objects, table.id, replace(whole, numbers=numbers), hiding.schema, columns)
    for batch in Predicate(hiding.hidden, hiding.schema).apply(rows):
        yield from batch.column(ROW.name).to_pylist()  # type: ignore[misc]  # none is null
