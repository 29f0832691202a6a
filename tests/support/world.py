"""A whole instance in memory: the real stages and state store, driven message by message."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.features.administration import administer, delete_request
from dormouse.features.batch_files import batch_files
from dormouse.features.export import export_id_of
from dormouse.features.purge import purge_id_of
from dormouse.features.seal_sources import seal_sources
from dormouse.features.sweep import sweep
from dormouse.items.records import ItemPublications, ItemTracker
from dormouse.items.tables import ItemTables
from dormouse.keys import KeyRange
from dormouse.log.engine import Options, StateStore
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    DeleteTable,
    ExportRows,
    PurgeRows,
    Reply,
    SetOnline,
)
from dormouse.messages.stages import (
    STAGE_OF,
    OutboundMessage,
    RequestStep,
    SelectionMessage,
    encode,
)
from dormouse.ports import Services
from dormouse.schema.schema import Field, Schema
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.state.validation import broken_invariants
from dormouse.storage import FolderStorage
from dormouse.stored.paths import data_prefix, shard_id_of
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table
from tests.support.adapters import (
    CountingIds,
    FakeClock,
    HookedStore,
    MemoryDeadLetters,
    MemoryMetrics,
    MemorySources,
    MemorySpark,
    MemoryTables,
    MemoryTracker,
)
from tests.support.hooked_pages import HookedPages
from tests.support.memory_items import MemoryItems
from tests.support.queries import query_rows
from tests.support.spark_package import package_in
from tests.support.stores import objects_store

LETTERS = Schema.from_json(
    {
        "rowKeyFields": [{"name": "letter", "type": "StringType"}],
        "sortKeyFields": [{"name": "at", "type": "LongType"}],
        "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
    }
)
"""A small schema for tests that do not care: letter, at, note."""
BY_TIME = Schema(LETTERS.sort_keys, LETTERS.row_keys, LETTERS.values)
"""The same columns with row keys of another type, which cannot be compared with letters."""


class Crash(Exception):
    """Stands for the death of a process: nothing catches it but the test."""


class World:
    """One instance. `deliver` runs one message, `settle` runs all there are, delayed ones too."""

    def __init__(self, folder: Path, *, has_spark: bool = True) -> None:
        self.clock = FakeClock()
        self.ids = CountingIds(self.clock)
        self.sources = MemorySources(self.clock)
        self.tables = MemoryTables()
        self.items = MemoryItems()
        self.publications = ItemPublications(self.items)
        self.tracker = MemoryTracker()
        self.metrics = MemoryMetrics()
        self.dead_letters = MemoryDeadLetters(self.clock)
        self.spark = MemorySpark(package_in(folder / "spark-package"))
        (folder / "data").mkdir(parents=True)
        (folder / "scratch").mkdir()
        self.storage = FolderStorage(folder / "data")
        self.results = FolderStorage(folder / "results")
        self.pages = HookedPages(items=self.items)
        self.folder = folder
        self.hooks: list[Callable[[], object]] = []
        self.late_hooks: list[Callable[[], object]] = []
        self.queue: deque[OutboundMessage] = deque()
        self.dead: list[OutboundMessage] = []
        self.replies: list[Reply] = []
        self.services = Services(
            tables=cast(ItemTables, self.tables),  # one contract suite holds both
            publications=self.publications,
            tracker=cast(ItemTracker, self.tracker),
            storage=self.storage,
            results=self.results,
            sources=self.sources,
            store=cache(self._hooked_store),
            clock=self.clock,
            ids=self.ids,
            scratch=folder / "scratch",
            metrics=self.metrics,
            dead_letters=self.dead_letters,
            spark=self.spark if has_spark else None,
            has_spark=has_spark,
        )

    def new_store(self, table: Table) -> StateStore:
        """Return a store with a cold cache, as another process would have."""
        options = Options(keep_seconds=table.properties.gc_delay_seconds)
        return objects_store(
            table.state_id, self.storage, self.pages, self.clock, self.ids, options=options
        )

    def _hooked_store(self, table: Table) -> HookedStore:
        return HookedStore(self.new_store(table), self.hooks, self.late_hooks)

    def before_next_commit(self, hook: Callable[[], object]) -> None:
        """Let `hook` play another process (or a crash) just before the next commit of a stage."""
        self.hooks.append(hook)

    def after_next_commit(self, hook: Callable[[], object]) -> None:
        """Let `hook` play a crash just after the next commit of a stage has landed."""
        self.late_hooks.append(hook)

    @staticmethod
    def crash() -> None:
        """A hook: the process dies here."""
        raise Crash

    def age_objects(self, *, seconds: int) -> None:
        """Make every stored object as old as this, by the world's clock."""
        then = self.clock.now_ms() / 1000 - seconds
        for stored in self.storage.list(""):
            os.utime(self.folder / "data" / stored.path, (then, then))

    def create(
        self,
        name: str = "letters",
        schema: Schema = LETTERS,
        *,
        splits: Sequence[tuple[object, ...]] = (),
        **properties: object,
    ) -> Table:
        administer(
            self.services,
            CreateTable(f"create-{name}", name, schema.to_json(), properties, tuple(splits)),
        )
        table = self.tables.named(name)
        assert table is not None
        return table

    def drop(self, key: str, rows: Sequence[dict[str, object]] | bytes) -> Source:
        """Drop a file of letter rows, or raw bytes, and queue its ingest job as S3 would."""
        body = rows if isinstance(rows, bytes) else letters_file(rows)
        source = self.sources.drop(key, body)
        self.notify(source)
        return source

    def notify(self, *sources: Source) -> None:
        """Deliver the notifications of `sources`, as one batch."""
        self.queue += batch_files(self.services, sources)

    def deliver(self, outgoing: OutboundMessage) -> list[OutboundMessage]:
        """Run the stage of one message, by way of its JSON form; return what it wants sent.

        One that is given up is put into `dead`.
        """
        if outgoing.queue.endswith("-dead"):
            self.dead.append(outgoing)
            return []
        if isinstance(outgoing.message, Reply):
            self.replies.append(outgoing.message)
            return []
        stage = STAGE_OF[outgoing.queue]
        sent = list(stage.load()(self.services, stage.decode(encode(outgoing.message))))
        replies = [m.message for m in sent if isinstance(m.message, Reply)]
        if isinstance(outgoing.message, RequestStep) and replies:
            self.replies += replies  # sent before the request is deleted
            delete_request(self.services, outgoing.message)
            return []
        return sent

    def redrive(self) -> None:
        """Redrive all dead letters, as a person does."""
        while self.dead:
            letter = self.dead.pop(0)
            self.queue.append(OutboundMessage(letter.queue.removesuffix("-dead"), letter.message))

    def settle(self, *, twice: bool = False, limit: int = 1000) -> None:
        """Deliver messages until there are none, `twice` each if asked; waits out delays."""
        for _ in range(limit):
            if not self.queue:
                return
            outgoing = self.queue.popleft()
            self.clock.advance(seconds=outgoing.delay_seconds)
            for _ in range(2 if twice else 1):
                self.queue += self.deliver(outgoing)
        raise AssertionError(f"{len(self.queue)} messages are left after {limit} deliveries")

    def deliver_all_but(self, queue: str) -> None:
        """Deliver messages until only those of one queue are left, and lose these."""
        while waiting := [outgoing for outgoing in self.queue if outgoing.queue != queue]:
            self.queue = deque(outgoing for outgoing in self.queue if outgoing not in waiting)
            for outgoing in waiting:
                self.queue += self.deliver(outgoing)
        self.queue.clear()

    def administer(self, request: AdminRequest) -> None:
        """Do what an administrator asks, and queue what follows from it."""
        self.queue += administer(self.services, request)

    def job_record(self, request_id: str) -> JobRecord | None:
        """Return the record of a request, be it under a table or under none."""
        found = [r for (_, job_id), r in self.tracker.kept.items() if job_id == request_id]
        assert len(found) <= 1, found
        return found[0] if found else None

    def delete_job_record(self, request_id: str) -> None:
        """Drop the record of a request, as if its function had died before writing it."""
        found = self.job_record(request_id)
        assert found is not None
        del self.tracker.kept[found.table_id, request_id]

    def names(self, table: Table) -> str:
        """Return the letters of all rows, in order."""
        return "".join(str(row["letter"]) for row in self.rows(table))

    def set_online(self, table: Table, online: bool) -> None:
        request = SetOnline(self.ids.new(), table.name, online)
        self.queue += administer(self.services, request)

    def purge(self, table: Table, where: str = "", *keys: str) -> str:
        """Ask for a purge; return its id."""
        request = PurgeRows(
            self.ids.new(),
            table.name,
            SelectionMessage(where=where, keys=tuple((key,) for key in keys)),
        )
        self.queue += administer(self.services, request)
        return purge_id_of(request.request_id)

    def export(
        self,
        table: Table,
        to: str = "",
        spark: SparkOptions | None = None,
        *,
        skip_damaged: bool = False,
        **asked: Any,
    ) -> str:
        """Ask for an export; return its id."""
        selection = SelectionMessage(**asked)
        request = ExportRows(self.ids.new(), table.name, to, selection, spark, skip_damaged)
        self.queue += administer(self.services, request)
        return export_id_of(request.request_id)

    def alter(
        self,
        table: Table,
        *,
        add: Sequence[Field] = (),
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        types: Mapping[str, object] | None = None,
        request_id: str = "",
    ) -> Table:
        """Alter a table's schema; return the table as it is then."""
        added = tuple(field.to_json() for field in add)
        request_id = request_id or self.ids.new()
        self.queue += administer(
            self.services,
            AlterSchema(
                request_id,
                table.name,
                added,
                tuple(drop),
                dict(rename or {}),
                dict(units or {}),
                dict(types or {}),
            ),
        )
        altered = self.tables.get(table.id)
        assert altered is not None
        return altered

    def delete(self, table: Table) -> None:
        self.queue += administer(self.services, DeleteTable(self.ids.new(), table.name))

    def seal(self, table: Table) -> None:
        """Seal the table's sources, however few they are."""
        seal_sources(self.services, table, least=1)

    def sweep(self, *, audit: bool = False) -> None:
        for table in self.tables.all():
            self.queue += sweep(self.services, table, audit=audit)

    def state(self, table: Table) -> TableState:
        state = self.new_store(table).current()
        assert not broken_invariants(state), broken_invariants(state)
        return state

    def rows(
        self, table: Table, *ranges: KeyRange, state: TableState | None = None
    ) -> list[dict[str, object]]:
        """Return what a query of the newest version, or of a state, gives, as dicts."""
        result = query_rows(
            self.storage,
            table,
            state or self.state(table),
            list(ranges),
            now_ms=self.clock.now_ms(),
            scratch=self.services.scratch,
            memory_bytes=64 * 1024 * 1024,
        )
        return result.reader.read_all().to_pylist()

    def shard_objects(self, table: Table) -> set[str | None]:
        """Return the ids of the shards that lie in storage."""
        return {shard_id_of(stored.path) for stored in self.storage.list(data_prefix(table.id))}


def letters(text: str, *, at: int = 0) -> list[dict[str, object]]:
    """Return a row for each character: ``letters("ab", at=5)`` has at 5 and 6."""
    return [{"letter": c, "at": at + i, "note": f"{c}{at + i}"} for i, c in enumerate(text)]


def letters_file(rows: Sequence[dict[str, object]]) -> bytes:
    """Return rows of the letters schema as a Parquet file."""
    columns: dict[str, pa.DataType] = {"letter": pa.string(), "at": pa.int64(), "note": pa.string()}
    table = pa.Table.from_pylist(list(rows), pa.schema(columns))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
