"""A table in a folder whose versions are published for readers of Iceberg, as the stage does it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dormouse.features.delete_rows import build_deletion
from dormouse.iceberg import avro
from dormouse.iceberg.dead_rows import find_dead_rows
from dormouse.iceberg.manifests import NewObject
from dormouse.iceberg.metadata import MetadataFile, next_row_id, read_previous
from dormouse.iceberg.publication import Changes, PublicationSource, plan_publication
from dormouse.keys import Key, encode_key
from dormouse.messages.stages import SelectionMessage
from dormouse.query.rows import count_slices
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema, parse_schema
from dormouse.shards.reading import Slice
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.fold import apply
from dormouse.state.partitions import Shard
from dormouse.state.state import (
    AssignJob,
    Entry,
    HideRows,
    ReplaceShards,
    SplitPartition,
    Transaction,
)
from dormouse.storage import FolderStorage
from tests.support.tables import MEMORY_BYTES, ShardTable

MINUTE_MS = 60_000
SCHEMA = parse_schema("k:long, s:string?", ["k"])


@dataclass(frozen=True)
class Published:
    """A publication: its metadata, its last number, and the version and snapshot that it shows."""

    metadata: str
    sequence: int
    version: int
    state_ms: int
    snapshot_id: int


class PublishedTable(ShardTable):
    """`publish` publishes the state, after which `record` says what is published."""

    def __init__(
        self, folder: Path, schema: Schema, splits: Sequence[Key] = (), *, format_version: int = 2
    ) -> None:
        super().__init__(FolderStorage(folder / "data"), schema, folder, splits)
        self.root = str(folder / "data")
        self.format_version = format_version
        self.record: Published | None = None
        self.now_ms = 1_700_000_000_000
        self.put: list[NewObject] = []
        self.added: list[Shard] = []

    def commit(self, *transactions: Transaction) -> None:
        self.now_ms += MINUTE_MS
        for transaction in transactions:
            self.state, verdict = apply(self.state, Entry(transaction, self.now_ms, 0))
            assert not verdict.violations, verdict.violations
        self._next_version()

    def _next_version(self) -> None:
        self.state = replace(self.state, version=self.state.version + 1, time_ms=self.now_ms)

    def ingest(self, rows: Sequence[dict[str, object]]) -> None:
        self.now_ms += MINUTE_MS
        self._next_version()
        self.added += [new.shard for new in self.add(rows)]

    def split(self, at: Key) -> None:
        leaf = self.state.partitions.leaf_containing(encode_key(at))
        self.commit(SplitPartition(leaf.id, encode_key(at)))

    def delete(self, where: str) -> None:
        name, selection = f"deletion{self.state.version}", SelectionMessage(where=where)
        deletion = build_deletion(self.table, name, selection, self.now_ms)
        assert deletion is not None
        self.commit(HideRows(deletion))

    def compact(self, key: Key) -> None:
        """Merge all shards of the leaf with a key; what they have elsewhere stays."""
        leaf = self.state.partitions.leaf_containing(encode_key(key))
        inputs = tuple(item.shard for item in self.state.references_in(leaf.id))
        job = f"compaction{self.state.version}"
        slices = [Slice(self.state.shards[shard], leaf.range) for shard in inputs]
        merged = merge_slices(
            self.storage,
            "table",
            slices,
            self.schema,
            scratch=self.folder,
            memory_bytes=MEMORY_BYTES,
        )
        outputs = write_shards(
            self.storage,
            merged,
            ShardContext("table", self.schema, job),
            [leaf],
            lambda n: f"{job}-{n}",
            scratch=self.folder,
        )
        counts = count_slices(self.storage, self.table, slices)
        taken = tuple(zip(inputs, counts, strict=True))
        replaced = ReplaceShards(job, leaf.id, inputs, tuple(outputs), taken)
        self.commit(AssignJob(job, leaf.id, inputs), replaced)

    def publish(self, *, known: bool = True, purged: bool = False) -> Published:
        """Publish the state; `known` says whether it is known what was ingested since."""
        changes = Changes(tuple(self.added)) if known and self.record else None
        self.added = []
        return self.publish_after(changes, purged=purged)

    def publish_after(self, changes: Changes | None, *, purged: bool = False) -> Published:
        sequence = self.record.sequence if self.record else 0
        previous = read_previous(self.record.metadata, self.storage.get) if self.record else None
        rows = next_row_id(previous.metadata) if previous else 0
        source = PublicationSource(self.table, self.root, self.format_version, sequence, rows)
        plan = plan_publication(
            source, self.state, changes, previous, now_ms=self.now_ms, purged=purged
        )
        dead = find_dead_rows(self.storage, self.table, plan.unranked)
        publication = plan.publication(dead)
        self.put = list(publication.objects)
        for item in publication.objects:
            assert self.storage.put(item.path, item.content), f"{item.path} was there"
        metadata = MetadataFile.read(publication.metadata, self.storage.get)
        shown = self.state.version, self.state.time_ms, metadata.current["snapshot-id"]
        self.record = Published(publication.metadata, publication.sequence, *shown)
        return self.record

    @property
    def metadata_file(self) -> str:
        """The path of the published metadata on this machine."""
        assert self.record is not None
        return f"{self.root}/{self.record.metadata}"

    def metadata(self) -> dict[str, Any]:
        """Return the published metadata."""
        assert self.record is not None
        return dict(json.loads(self.storage.get(self.record.metadata)))


def rows(start: int, end: int) -> list[dict[str, object]]:
    return [{"k": number, "s": f"text {number}"} for number in range(start, end)]


def half_dead(table: PublishedTable) -> None:
    """Leave a shard whose lower half was compacted away."""
    table.ingest(rows(0, 1000))
    table.split((500,))
    table.compact((0,))


def live_entries(table: PublishedTable, snapshot: dict[str, Any]) -> dict[str, list[str]]:
    """Return the files that a snapshot lists, by "data" and "deletes"."""
    listed = avro.read_container(fetch(table, snapshot["manifest-list"]))[1]
    found: dict[str, list[str]] = {"data": [], "deletes": []}
    for record in listed:
        kind = "deletes" if record["content"] else "data"
        for entry in avro.read_container(fetch(table, record["manifest_path"]))[1]:
            found[kind].append(entry["data_file"]["file_path"].rpartition("/")[2])
    return found


def fetch(table: PublishedTable, uri: str) -> bytes:
    return table.storage.get(uri.removeprefix(f"{table.root}/"))


def current(table: PublishedTable) -> dict[str, Any]:
    return dict(table.metadata()["snapshots"][-1])
