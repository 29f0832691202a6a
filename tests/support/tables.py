"""A table in a folder, filled through the row engine alone; for tests of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.types import arrow_schema
from dormouse.keys import Key, KeyRange
from dormouse.ports import Cache, Storage
from dormouse.query.result import QueryResult
from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.rows.predicates import parse_predicate
from dormouse.rows.sorting import Sorter
from dormouse.schema.schema import Schema
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.fold import apply
from dormouse.state.partitions import NewShard, PartitionTree
from dormouse.state.state import AddShards, Entry, TableState
from dormouse.state.versions import Lineage
from dormouse.stored.paths import make_run_id
from dormouse.tables.indexing import term_columns
from dormouse.tables.properties import Properties, bloom_columns
from dormouse.tables.table import Table, is_published
from tests.support.queries import query_rows

MEMORY_BYTES = 64 * 1024 * 1024
NOW_MS = 1_700_000_000_000


def batches_of(
    rows: Sequence[dict[str, object]], schema: Schema, size: int = 7
) -> Iterator[pa.RecordBatch]:
    """Return rows as batches of `size` rows."""
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[start : start + size]), arrow_schema(schema))


def sort_rows(
    batches: Iterable[pa.RecordBatch], schema: Schema, *, memory_bytes: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Sort rows, spilling when half of the memory is full."""
    sorter = Sorter(schema, scratch, memory_bytes=memory_bytes)
    for batch in batches:
        sorter.add(batch)
        if sorter.held_bytes > memory_bytes // 2:
            sorter.spill()
    return sorter.sorted_rows()


class ShardTable:
    """A table without a state store: `add` is an ingest, `query` a query."""

    def __init__(
        self, storage: Storage, schema: Schema, folder: Path, splits: Sequence[Key] = ()
    ) -> None:
        self.storage = storage
        self.schema = schema
        self.folder = folder
        self.properties = Properties()
        self.state = TableState(
            key_types=schema.widest_key_types, partitions=PartitionTree.from_split_points(splits)
        )
        self._jobs = count()

    @property
    def table(self) -> Table:
        """The table as the registry would have it."""
        return Table("table", "table", self.schema, self.properties)

    def add(
        self, rows: Sequence[dict[str, object]], *, memory_bytes: int = MEMORY_BYTES
    ) -> list[NewShard]:
        number = next(self._jobs)
        is_plain = is_published(self.properties)
        job = make_run_id(f"{number:032x}", plain=True) if is_plain else f"job{number}"
        ordered = sort_rows(
            batches_of(rows, self.schema, max(7, len(rows) // 20)),
            self.schema,
            memory_bytes=memory_bytes,
            scratch=self.folder,
        )
        return self.add_sorted(ordered, job)

    def add_sorted(self, batches: Iterator[pa.RecordBatch], job: str) -> list[NewShard]:
        shards = write_shards(
            self.storage,
            batches,
            ShardContext(
                "table",
                self.schema,
                job,
                lineage=Lineage(sources=(f"source-{job}",)),
                bloom_columns=bloom_columns(self.schema, self.properties),
                term_columns=term_columns(self.schema, self.properties),
            ),
            list(self.state.partitions.leaves()),
            lambda n: f"{job}-{n}",
            scratch=self.folder,
        )
        entry = Entry(AddShards(job, (f"source-{job}",), tuple(shards)), 1, 0)
        self.state, verdict = apply(self.state, entry)
        assert not verdict.violations, verdict.violations
        return shards

    def query(
        self,
        *ranges: KeyRange,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        where: str | None = None,
        cache: Cache | None = None,
        look_up_bytes: int = LOOK_UP_BYTES,
        memory_bytes: int = MEMORY_BYTES,
    ) -> QueryResult:
        return query_rows(
            self.storage,
            self.table,
            self.state,
            list(ranges),
            columns=columns,
            where=None if where is None else parse_predicate(where, self.schema),
            limit=limit,
            now_ms=NOW_MS,
            scratch=self.folder,
            memory_bytes=memory_bytes,
            look_up_bytes=look_up_bytes,
            cache=cache,
        )

    def rows(
        self,
        *ranges: KeyRange,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        where: str | None = None,
        cache: Cache | None = None,
        look_up_bytes: int = LOOK_UP_BYTES,
        memory_bytes: int = MEMORY_BYTES,
    ) -> list[dict[str, object]]:
        result = self.query(
            *ranges,
            columns=columns,
            limit=limit,
            where=where,
            cache=cache,
            look_up_bytes=look_up_bytes,
            memory_bytes=memory_bytes,
        )
        return result.reader.read_all().to_pylist()
