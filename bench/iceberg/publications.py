"""Publish a table of so many shards for the first time, and after changes.

The state and its changes are those of the state store's benchmark: ten shards a leaf. A change of
``n+n`` is n compactions of a leaf's ten shards to one, and n ingests of one shard. Objects are put
into a folder; their bytes and number are exact.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.figures import emit
from bench.measure import peak_bytes
from bench.state.workload import KEYS, Ids, Mix, built, clock, key
from dormouse.iceberg.metadata import read_previous
from dormouse.iceberg.publication import Changes, Publication, PublicationSource, plan_publication
from dormouse.schema.schema import parse_schema
from dormouse.state.fold import apply
from dormouse.state.partitions import Shard
from dormouse.state.state import Entry, Transaction
from dormouse.storage import FolderStorage
from dormouse.tables.table import Table

PYTHON = Path(sys.prefix) / "engines" / "bin" / "python"
PLANNER = Path(__file__).parent / "planner.py"
PART = "publication"
FIRST = "first"
CHANGES = (1, 10, 100)
COLUMNS = ", ".join(["id:string", *(f"c{n}:string?" for n in range(9))])
MINUTE_MS = 60_000


class Publisher:
    def __init__(self, shards: int, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.storage = FolderStorage(folder)
        self.root = str(folder)
        self.table = Table("table", "table", parse_schema(COLUMNS, ["id"]))
        self.state = replace(built(shards), version=1, time_ms=MINUTE_MS)
        self.leaves = list(self.state.partitions.leaves())
        self.mix = Mix(self.state, Ids(clock(), 1), 1)
        self.record: Publication | None = None
        self.fetched = 0

    def publish(self, what: str, added: tuple[Shard, ...]) -> None:
        self.fetched = 0
        begun = time.process_time()
        previous = read_previous(self.record.metadata, self._fetch) if self.record else None
        changes = Changes(added) if self.record else None
        sequence = self.record.sequence if self.record else 0
        source = PublicationSource(self.table, self.root, sequence=sequence)
        plan = plan_publication(source, self.state, changes, previous, now_ms=self.state.time_ms)
        assert not plan.unranked
        publication = plan.publication({})
        cpu_seconds = time.process_time() - begun
        for item in publication.objects:
            assert self.storage.put(item.path, item.content)
        self.record = publication
        emit(
            PART,
            what,
            len(self.leaves) * 10,
            puts=len(publication.objects),
            gets=self.fetched,
            size_bytes=sum(len(item.content) for item in publication.objects),
            cpu_seconds=cpu_seconds,
        )

    def _fetch(self, path: str) -> bytes:
        self.fetched += 1
        return self.storage.get(path)

    def change(self, count: int) -> tuple[Shard, ...]:
        """Compact leaves and ingest into others; return the shards that were ingested."""
        step = len(self.leaves) // (2 * count)
        chosen = range(count % step, len(self.leaves), step)
        for leaf in chosen[:count]:
            job = self.mix.assign(leaf)
            self._commit(job, self.mix.compact(leaf, job))
        ingests = [self.mix.ingest([leaf]) for leaf in chosen[count : 2 * count]]
        self._commit(*ingests)
        self._next_version()
        return tuple(ingest.shards[0].shard for ingest in ingests)

    def _commit(self, *transactions: Transaction) -> None:
        for transaction in transactions:
            self.state, verdict = apply(self.state, Entry(transaction, self.state.time_ms, 0))
            assert not verdict.violations, verdict.violations

    def _next_version(self) -> None:
        state = self.state
        self.state = replace(state, version=state.version + 1, time_ms=state.time_ms + MINUTE_MS)


def measure(shards: int, place: str) -> None:
    folder = Path(place)
    publisher = Publisher(shards, folder)
    publisher.publish(FIRST, ())
    for count in CHANGES:
        if 4 * count <= len(publisher.leaves):
            publisher.publish(f"{count}+{count}", publisher.change(count))
    emit(PART, "all of them", shards, memory_bytes=peak_bytes())
    assert publisher.record is not None
    (folder / "newest").write_text(f"{folder}/{publisher.record.metadata}")


def measure_planning(shards: int, place: str, engine: str) -> None:
    """Let an engine plan the look-up of one key in a published table, in its own environment; print
    the CPU seconds that took, and how many files are left to read.
    """
    metadata = (Path(place) / "newest").read_text()
    (wanted,) = key(KEYS // 2 + 3)
    program = [str(PYTHON), str(PLANNER), engine, metadata, wanted]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    emit("planning", engine, shards, **json.loads(done.stdout))
