"""Answer queries by key ranges from one version of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from dormouse.errors import InvalidRequestError
from dormouse.model.keys import KeyRange, merged
from dormouse.model.schema import Schema
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.ports import Storage
from dormouse.shards.arrow import arrow_schema, conform
from dormouse.shards.merging import merge_rows, sort_in_memory
from dormouse.shards.ranges import fitted
from dormouse.shards.reading import READ_THREADS, RowGroups, Slice, find_all, read_row_groups

LOOK_UP_BYTES = 16 * 1024 * 1024
"""Up to what size in memory the row groups of a range are read at once instead of streamed."""


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
    look_up_bytes: int = LOOK_UP_BYTES,
) -> QueryResult:
    """Give the rows of `table` in any of `ranges`, all rows if there are none; sorted by the keys.

    Partitions are read one after the other as the reader is read: with a `limit`, only as many as
    it takes. Up to `look_up_bytes` of rows are read at once rather than merged as a stream.

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
    leaves = {leaf.id for r in wanted for leaf in state.partitions.leaves_overlapping(r)}
    query = _Query(storage, table.id, schema, names, memory_bytes, look_up_bytes)
    result_schema = pa.schema([arrow_schema(schema).field(name) for name in names])
    batches = (batch for part in parts for batch in query.rows(part))
    limited = batches if limit is None else _limited(batches, limit)
    return QueryResult(
        reader=pa.RecordBatchReader.from_batches(result_schema, limited),
        shards_opened=len({part.shard.id for slices in parts for part in slices}),
        partitions=len(leaves),
    )


@dataclass(frozen=True, slots=True)
class _Query:
    storage: Storage
    table_id: str
    schema: Schema
    columns: list[str]
    memory_bytes: int
    look_up_bytes: int

    def rows(self, slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        """Give the rows of slices that meet in one range, in order."""
        found = self._look_up(slices)
        if found is not None:
            return self._read(found)
        return merge_rows(
            self.storage,
            self.table_id,
            slices,
            self.schema,
            columns=self.columns,
            memory_bytes=self.memory_bytes,
        )

    def _look_up(self, slices: list[Slice]) -> list[RowGroups] | None:
        """Give the row groups to read if they are few enough to be read at once."""
        if sum(s.shard.size_bytes for s in slices if s.is_whole) > self.look_up_bytes:
            return None
        found = find_all(self.storage, self.table_id, slices, self.schema)
        few = sum(groups.size_bytes for groups in found) <= self.look_up_bytes
        return found if few else None

    def _read(self, found: list[RowGroups]) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys([f.name for f in self.schema.keys] + self.columns))

        def read(groups: RowGroups) -> list[pa.RecordBatch]:
            rows = read_row_groups(self.storage, self.table_id, groups, self.schema, names)
            return list(rows)

        with ThreadPoolExecutor(READ_THREADS) as threads:
            held = [batch for batches in threads.map(read, found) for batch in batches]
        wanted = arrow_schema(self.schema)
        result_schema = pa.schema([wanted.field(name) for name in self.columns])
        for batch in sort_in_memory(held, self.schema):
            yield conform(batch, result_schema)


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
