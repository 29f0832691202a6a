"""Answer queries by key ranges from one version of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dormouse.cache import Cache
from dormouse.errors import InvalidRequestError
from dormouse.model.keys import KeyRange, merged
from dormouse.model.schema import Schema
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.ports import Storage
from dormouse.shards.arrow import arrow_schema, conform
from dormouse.shards.lookups import LookUp, Part, Scan, plan
from dormouse.shards.merging import merge_found, sort_in_memory
from dormouse.shards.ranges import fitted
from dormouse.shards.reading import READ_THREADS, RowGroups, Slice, find_all, read_all

LOOK_UP_BYTES = 16 * 1024 * 1024
"""Up to what size in memory row groups are read at once instead of streamed."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows, sorted by the keys and streamed, and what they are read from."""

    reader: pa.RecordBatchReader
    shards_opened: int
    partitions: int


def query_rows(
    storage: Storage,
    table: Table,
    state: TableState,
    ranges: Sequence[KeyRange],
    *,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    memory_bytes: int,
    cache: Cache | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
) -> QueryResult:
    """Give the rows of `table` in any of `ranges`, all rows if there are none; sorted by the keys.

    Rows are read as the reader is read: with a `limit`, little more than it takes. Up to
    `look_up_bytes` of rows are read at once rather than merged as a stream.

    Raises:
        InvalidRequestError: an unknown column, a negative limit, or a bound of the wrong type.
    """
    schema = table.schema
    names = _columns(schema, columns)
    if limit is not None and limit < 0:
        raise InvalidRequestError(f"a limit cannot be negative, as {limit} is")
    wanted = merged([fitted(r, schema) for r in ranges]) if ranges else [KeyRange()]
    parts = [
        [Slice(state.shards[r.shard], span) for r in references]
        for item in wanted
        for span, references in state.partitions_to_read(item)
    ]
    query = _Query(
        storage, table.id, schema, names, limit, memory_bytes, look_up_bytes, cache or Cache()
    )
    result_schema = pa.schema([arrow_schema(schema).field(name) for name in names])
    return QueryResult(
        reader=pa.RecordBatchReader.from_batches(result_schema, query.rows(parts, result_schema)),
        shards_opened=len({part.shard.id for slices in parts for part in slices}),
        partitions=len(
            {leaf.id for r in wanted for leaf in state.partitions.leaves_overlapping(r)}
        ),
    )


@dataclass(frozen=True, slots=True)
class _Query:
    storage: Storage
    table_id: str
    schema: Schema
    columns: list[str]
    limit: int | None
    memory_bytes: int
    look_up_bytes: int
    cache: Cache

    def rows(
        self, parts: Sequence[list[Slice]], result_schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of parts, which are in key order."""
        needed = list(dict.fromkeys([f.name for f in self.schema.keys] + self.columns))
        steps = plan(
            self._found(parts),
            self.schema,
            needed,
            look_up_bytes=self.look_up_bytes,
            is_limited=self.limit is not None,
        )
        rows = (batch for step in steps for batch in self._read(step, needed))
        for batch in rows if self.limit is None else _limited(rows, self.limit):
            yield conform(batch, result_schema)

    def _found(self, parts: Iterable[list[Slice]]) -> Iterator[list[Part]]:
        """Find the row groups of parts, of many at once unless few may do."""
        for window in _windows(parts, 1 if self.limit is not None else 2 * READ_THREADS):
            slices = [slice for part in window for slice in part]
            found = iter(find_all(self.storage, self.table_id, slices, self.schema, self.cache))
            yield [[next(found) for _ in part] for part in window]

    def _read(self, step: LookUp | Scan, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if isinstance(step, Scan):
            return merge_found(
                self.storage,
                self.table_id,
                step.found,
                self.schema,
                columns=columns,
                memory_bytes=self.memory_bytes,
            )
        rows = read_all(self.storage, self.table_id, step.found, self.schema, columns)
        batches = [batch for of_shard in rows for batch in of_shard]
        return iter(batches) if _in_order(step.found) else sort_in_memory(batches, self.schema)


def _windows(parts: Iterable[list[Slice]], shards: int) -> Iterator[list[list[Slice]]]:
    """Give parts in groups of at least so many shards; the size of the groups doubles."""
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
    """Tell whether the rows of one shard after the other are sorted: no shard meets the next."""
    shards = {groups.slice.shard.id: groups.slice.shard for groups in found if groups.numbers}
    ordered = sorted(shards.values(), key=lambda shard: shard.min_key)
    return all(a.max_key < b.min_key for a, b in zip(ordered, ordered[1:], strict=False))


def _columns(schema: Schema, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [f.name for f in schema.fields]
    if not columns:
        raise InvalidRequestError("no columns are asked for", hint="leave them out to get all")
    return [schema.field_named(name).name for name in dict.fromkeys(columns)]


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
