"""What changed in a table since a version: rows that came, were changed, and are gone.

A table that keeps all rows has what ingests added, as they wrote it. In one that keeps the latest
rows, what came may be an older row than the one that is there. So its two versions are compared,
for the keys that were written or deleted in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from dormouse.access import EVERYTHING
from dormouse.arrow.order import requested_ranges, taken_keys
from dormouse.arrow.types import Array
from dormouse.arrow.values import sort_columns
from dormouse.errors import InvalidRequestError, NotBegunError, NotFoundError
from dormouse.features.versions import CommittedSince, ingested_since, read_as_of, tags_of
from dormouse.iceberg.liveness import live_shards
from dormouse.keys import Key, KeyRange
from dormouse.ports import Services
from dormouse.query.result import PeekableBatches, QueryResult, with_changes
from dormouse.query.rows import query_rows, query_slices
from dormouse.query.selection import Selection, select, selected_ranges, slices_to_read
from dormouse.rows.sorting import Sorter
from dormouse.schema.schema import SEQUENCE, Schema
from dormouse.shards.reading import Slice
from dormouse.sql.conditions import parse_condition
from dormouse.state.partitions import Shard
from dormouse.state.state import Deletion, TableState
from dormouse.state.versions import AsOf, checked_as_of
from dormouse.system import OwnFolder
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

KEYS_AT_ONCE = 8192
"""So many rows of both versions are in memory at most, and so many ranges in a query."""
SHARE_OF_MEMORY = 8
"""The rows of a version that are compared at once take at most this fraction (1/8) of memory."""


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """What of the changes is wanted: with `deleted`, each row says what happened to it, and rows
    that are gone come too; with `before`, also what changed rows were.
    """

    columns: Sequence[str] | None = None
    where: str | None = None
    limit: int | None = None
    deleted: bool = False
    before: bool = False


def changes_of(
    services: Services, table: Table, since: AsOf, request: WantedChanges
) -> QueryResult:
    """Return what changed since a version, as `TableHandle.changes` says."""
    since = _version_of(services, table, since)
    state = services.store(table).current()
    now_ms = services.clock.now_ms()
    condition = None
    if request.where is not None:
        condition = parse_condition(request.where, table.schema, now_ms=now_ms)
    selection = select(
        table.schema,
        state.version,
        now_ms,
        permission=EVERYTHING,  # AWS decides about what this process reads
        columns=request.columns,
        condition=condition,
        limit=request.limit,
    )
    changes = _Changes(services, table, since, state, selection, request)
    kept = changes.compared() if table.properties.keep == "latest" else changes.added()
    return kept.for_programs()


def _version_of(services: Services, table: Table, since: AsOf) -> int:
    since = checked_as_of(since)
    named = {pin.owner.name: pin.version for pin in tags_of(services, table)}
    if isinstance(since, str) and since in named:
        return named[since]  # its version need not be readable
    if isinstance(since, int):
        return since
    try:
        return read_as_of(services, table, since)[1].version
    except NotBegunError:
        return 0  # all rows came later


def _versioned(
    rows: pa.RecordBatch, versions: Mapping[int, int], newest: int
) -> tuple[Array, pa.RecordBatch]:
    """Return the version of the commit of each row, by its number; the newest one for those that
    are not known. And the rows without their numbers.
    """
    numbers, values = (
        pa.array([*each], pa.int64()) for each in (versions.keys(), versions.values())
    )
    at: Any = pc.index_in(rows.column(SEQUENCE.name), value_set=numbers)
    of_rows: Any = pc.fill_null(values.take(at), pa.scalar(newest, pa.int64()))
    return of_rows, rows.drop_columns([SEQUENCE.name])


def _numbered(rows: pa.RecordBatch, deletions: Iterable[Deletion]) -> pa.RecordBatch:
    """Return rows that deletions hide with the number of the last of these."""
    number = pa.scalar(max(each.number for each in deletions), pa.int64())
    return rows.append_column(SEQUENCE.name, pa.repeat(number, rows.num_rows))


@dataclass(frozen=True, slots=True)
class _Changes:
    """What changed in a table between two of its versions: that of `since`, and the newest one."""

    services: Services
    table: Table
    since: int
    state: TableState
    selection: Selection
    request: WantedChanges

    def added(self) -> QueryResult:
        """Return the rows ingested and not deleted since a version, a few shards at a time; with
        deleted ones, those of that version that were deleted since follow.
        """
        commits = ingested_since(self.services, self.table, self.since)
        selection = replace(self.selection, version=commits.newest)
        if not self.request.deleted:
            return self._as_ingested(commits.shards, commits.deletions, selection)
        numbered = replace(selection, columns=(*selection.columns, SEQUENCE.name))
        added = self._as_ingested(commits.shards, commits.deletions, numbered)
        losses = self._deleted(commits.deletions, selection)
        kinds = (("insert", added.batches), ("delete", losses))
        changes = (
            (kind, *_versioned(batch, commits.versions, commits.newest))
            for kind, batches in kinds
            for batch in batches
        )
        plain = replace(added, schema=added.schema.remove(len(selection.columns)))
        return with_changes(plain, changes, self.request.limit)

    def _as_ingested(
        self, shards: Iterable[Shard], deletions: tuple[Deletion, ...], selection: Selection
    ) -> QueryResult:
        """Return rows of shards as ingest wrote them, but for those that deletions hide."""
        rules = {"filters": "", "aggregations": "", "keep": "all", "latest_by": ""}
        plain = replace(self.table, properties=structs.replace(self.table.properties, **rules))
        parts = ([Slice(shard, KeyRange(), deletions)] for shard in shards)
        return query_slices(self.services, plain, parts, selection)

    def _deleted(
        self, deletions: tuple[Deletion, ...], selection: Selection
    ) -> Iterable[pa.RecordBatch]:
        """Return the selected rows of a version that later deletions hide, with a number."""
        if not row_rules(self.table.schema, self.table.properties).is_empty:
            raise InvalidRequestError(
                f"the rules of table {self.table.name!r} make other rows of those that were "
                "ingested, so it is not known which were deleted",
                hint="ask for changes without deleted rows",
            )
        if not deletions or not self.since:
            return ()
        before = read_as_of(self.services, self.table, self.since)[1]
        hidden_rows = self._hidden(before, deletions, selection).batches
        return (_numbered(batch, deletions) for batch in hidden_rows)

    def _hidden(
        self, before: TableState, deletions: tuple[Deletion, ...], selection: Selection
    ) -> QueryResult:
        parts = slices_to_read(before, selected_ranges(self.table, selection))
        return query_slices(self.services, self.table, parts, selection, lost_by=deletions)

    def compared(self) -> QueryResult:
        """Return what is in one version and not in the other, of a table with the latest rows."""
        newest, request = self._rows(self.state, self.selection, (_NOTHING,)), self.request
        kinds = {"insert", "update"}
        if request.deleted:
            kinds |= {"delete", "before"} if request.before else {"delete"}
        rows = (each for each in self._versioned_changes() if each[0] in kinds)
        changes = with_changes(newest, rows, request.limit)
        if request.deleted:
            return changes
        batches = PeekableBatches(batch.select(newest.schema.names) for batch in changes.batches)
        return replace(changes, schema=newest.schema, batches=batches)

    def _rows(
        self, state: TableState, selection: Selection, ranges: Sequence[KeyRange]
    ) -> QueryResult:
        chosen = replace(selection, version=state.version, ranges=tuple(ranges), limit=None)
        return query_rows(self.services, self.table, state, chosen)

    def _versioned_changes(self) -> Iterator[tuple[str, Array, pa.RecordBatch]]:
        """Yield the rows that differ, with what happened to them, and the version of each."""
        schema = Schema(self.table.schema.row_keys)
        names = [field.name for field in schema.row_keys]
        columns = [f.name for f in self.table.schema.fields if f.name in self.selection.columns]
        all_columns = tuple(dict.fromkeys([*names, *columns, SEQUENCE.name]))
        selection = replace(self.selection, columns=all_columns)
        earlier = read_as_of(self.services, self.table, self.since)[1] if self.since else None
        commits, compared = self._written(earlier)
        for keys in self._written_keys(commits.shards, compared):
            for before, after in self._both(earlier, [*keys], selection):
                for kind, rows in _differences(before, after, names):
                    for batch in rows.to_batches():
                        of_keys = _last_written(batch, keys, schema) if kind == "delete" else batch
                        versions, _ = _versioned(of_keys, commits.versions, commits.newest)
                        yield kind, versions, batch.select(list(self.selection.columns))

    def _both(
        self, earlier: TableState | None, keys: list[Key], selection: Selection
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows of keys in both versions: of fewer keys at once if the rows are wide."""
        most_bytes, at_once = self.services.memory_bytes // SHARE_OF_MEMORY, len(keys)
        while keys:
            some = list(map(KeyRange.exactly, keys[:at_once]))
            ranges = requested_ranges(self.table.schema, some)
            results = [self._rows(self.state, selection, ranges)]
            if earlier is not None:
                results.append(self._rows(earlier, selection, ranges))
            tables = [_whole(each, most_bytes if len(some) > 1 else inf) for each in results]
            if (after := tables[0]) is None or (before := tables[-1]) is None:
                at_once = len(some) // 2
                continue
            yield after.slice(0, 0) if earlier is None else before, after
            keys = keys[at_once:]

    def _written_keys(
        self, shards: Sequence[Shard], deletions: Sequence[tuple[TableState, tuple[Deletion, ...]]]
    ) -> Iterator[dict[Key, int]]:
        """Yield the row keys of which rows were written or deleted in between, some at a time; in
        order, and each once with the number of the last commit that did.
        """
        keys = Schema(self.table.schema.row_keys, (), (SEQUENCE,), is_part=True)
        names = tuple(field.name for field in keys.fields)
        selection = Selection(self.state.version, names, (KeyRange(),), None, None, 0)
        with OwnFolder(dir=self.services.scratch) as folder:
            sorter = Sorter(keys, Path(folder), memory_bytes=self.services.memory_bytes)
            for batch in self._as_ingested(shards, (), selection).batches:
                sorter.add(batch)
            for state, others in deletions:
                chosen = replace(
                    selection,
                    version=state.version,
                    columns=names[:-1],
                    time_ms=self.selection.time_ms,
                )
                for batch in self._hidden(state, others, chosen).batches:
                    sorter.add(_numbered(batch, others))
            yield from batched_keys(sorter.sorted_rows(), keys)

    def _written(
        self, earlier: TableState | None
    ) -> tuple[CommittedSince, list[tuple[TableState, tuple[Deletion, ...]]]]:
        """Return what was ingested in between, and with a version the deletions that hide rows of
        it in the other; if that is not known any more, the shards and deletions that only one of
        both versions has, or has of other partitions.
        """
        try:
            commits = ingested_since(self.services, self.table, self.since)
        except NotFoundError:
            pass
        else:
            return commits, [(earlier, commits.deletions)] if earlier and commits.deletions else []
        both = earlier or TableState(), self.state
        old, new = (
            {live.shard.id: (live.shard, live.dead) for live in chain(*live_shards(state).values())}
            for state in both
        )
        ids = sorted(old | new)  # a shard may have live rows in other partitions than it had
        differing = [(old | new)[id][0] for id in ids if old.get(id) != new.get(id)]
        before, after = ({each.id: each for each in state.deletions} for state in both)
        made = tuple(after[each] for each in after.keys() - before.keys())
        undone = tuple(before[each] for each in before.keys() - after.keys())
        pairs = zip(both, (made, undone), strict=True)
        newest = CommittedSince(differing, (), self.state.version, {})
        return newest, [pair for pair in pairs if pair[1]]


def _whole(result: QueryResult, most_bytes: float) -> pa.Table | None:
    """Return all rows of a result; None if they take more memory."""
    batches, size_bytes = [], 0
    for batch in result.batches:
        batches.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > most_bytes:
            return None
    return pa.Table.from_batches(batches, result.schema)


_NOTHING = KeyRange((), ())


def batched_keys(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[dict[Key, int]]:
    """Yield the keys of sorted rows, `KEYS_AT_ONCE` at a time, with their greatest number."""
    keys = chain.from_iterable(
        zip(
            taken_keys(batch, range(batch.num_rows), schema.row_keys),
            batch.column(SEQUENCE.name).to_pylist(),
            strict=True,
        )
        for batch in batches
    )
    distinct = ((key, max(n or 0 for _, n in rows)) for key, rows in groupby(keys, itemgetter(0)))
    while some := dict(islice(distinct, KEYS_AT_ONCE)):
        yield some


def _last_written(rows: pa.RecordBatch, keys: Mapping[Key, int], schema: Schema) -> pa.RecordBatch:
    """Return the numbers of the commits that wrote or deleted rows of these keys last."""
    numbers = [keys[key] for key in taken_keys(rows, range(rows.num_rows), schema.row_keys)]
    return pa.RecordBatch.from_pydict({SEQUENCE.name: pa.array(numbers, pa.int64())})


def _differences(
    before: pa.Table, after: pa.Table, keys: Sequence[str]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield which rows came, changed or are gone, and what those that changed were `before`; all
    with the numbers of what came.
    """
    old, new = (
        rows.select(keys).append_column(name, pa.array(range(rows.num_rows), pa.int64()))
        for rows, name in ((before, "old"), (after, "new"))
    )
    both = old.join(new, keys=list(keys), join_type="full outer").combine_chunks()
    is_new, is_gone = pc.is_null(both["old"]), pc.is_null(both["new"])
    yield "insert", after.take(both["new"].filter(is_new))
    yield "delete", before.take(both["old"].filter(is_gone))
    stays: Any = pc.invert(pc.or_(is_new, is_gone))
    old_rows = before.take(both["old"].filter(stays)).drop_columns([SEQUENCE.name])
    new_rows = after.take(both["new"].filter(stays))
    differs = _differ(old_rows, new_rows.drop_columns([SEQUENCE.name]))
    old_rows = old_rows.append_column(SEQUENCE.name, new_rows[SEQUENCE.name])
    yield "before", old_rows.filter(differs)
    yield "update", new_rows.filter(differs)


def _differ(old: pa.Table, new: pa.Table) -> Any:
    """Return which rows of two tables of one length differ in a column."""
    count = old.num_rows
    differs: Any = pa.repeat(pa.scalar(False), count)
    for column in pa.concat_tables([old, new]).columns:
        for cells in sort_columns(column.combine_chunks()):
            a, b = cells.slice(0, count), cells.slice(count)
            same: Any = pc.fill_null(pc.equal(a, b), pa.scalar(False))
            nulls: Any = pc.and_(pc.is_null(a), pc.is_null(b))
            differs = pc.or_(differs, pc.invert(pc.or_(same, nulls)))
    return differs
