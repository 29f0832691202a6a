"""Random histories of a table, by the real stages: crashes, duplicates, zombies, sweeps, losses.

After every change of an object, `checkpoint` asks what a rebuild would make of the
shards there are just then.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import BinaryIO
from unittest.mock import patch

import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, DormouseError
from dormouse.features.batch_files import batch_files
from dormouse.features.rebuild import planned_state, rebuild
from dormouse.features.rebuild_plan import FoundShard, RebuildPlan, plan_rebuild
from dormouse.features.reset import load_restored, restorer
from dormouse.features.sweep import sweep
from dormouse.keys import encode_key
from dormouse.messages.requests import RestoreVersion, TagVersion, UntagVersion
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import StoredObject, UnfinishedUpload, Upload, WholeUpload
from dormouse.shards import writer
from dormouse.shards.footer import read_footer
from dormouse.shards.run_markers import read_run_markers
from dormouse.state.partitions import Shard
from dormouse.state.state import TableState
from dormouse.stored.paths import JOB_NOTES, RUN_MARKERS, data_prefix, shard_id_of
from dormouse.tables.table import Table
from tests.support.memory_storage import MemoryStorage
from tests.support.world import Crash, World, letters_file

Row = tuple[str, int]


@dataclass
class ScatteredStorage:
    """Memory that calls `after` with every change, object by object: deletes land in any order."""

    inner: MemoryStorage
    random: Random
    before: Callable[[str], None]
    after: Callable[[str], None]
    uri: str = "memory:"

    def get(self, path: str) -> bytes:
        return self.inner.get(path)

    def put(self, path: str, body: bytes) -> bool:
        self.before(path)
        done = self.inner.put(path, body)
        self.after(path)
        return done

    def with_commits(self) -> ScatteredStorage:
        return self

    def upload(self, path: str, local: Path) -> bool:
        self.before(path)
        done = self.inner.upload(path, local)
        self.after(path)
        return done

    def start_upload(self, path: str, local: Path) -> Upload:
        return WholeUpload(self, path, local)

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        return self.inner.list_uploads(prefix)

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        self.inner.abort_uploads(uploads)

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        return self.inner.open(path, size_bytes)

    def link(self, path: str, local: Path) -> bool:
        return self.inner.link(path, local)

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        return self.inner.stream(path, size_bytes, start, end)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        return self.inner.list(prefix)

    def folders(self, below: str = "") -> Iterator[str]:
        return self.inner.folders(below)

    def delete(self, paths: Sequence[str]) -> None:
        for path in self.random.sample(list(paths), len(paths)):
            self.before(path)
            self.inner.delete([path])
            self.after(path)


@dataclass
class History:
    """One table, what was dropped for it, and what was seen to be committed."""

    random: Random
    folder: Path
    crashes: float = 0.05
    meetings: float = 0.1
    restores: float = 0.0
    checkpoints: int = 0
    ambiguous: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, list[Row]] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    generation: int = 0
    tagged: dict[str, Counter[Row]] = field(default_factory=dict)
    depth: int = 0
    quiet: bool = False
    found: dict[str, tuple[FoundShard, list[Row]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.folder, has_spark=False)
        world = self.world
        memory = MemoryStorage(world.clock)
        storage = ScatteredStorage(memory, self.random, self._meet, self._changed)
        world.storage = storage  # type: ignore[assignment]  # another kind of storage
        world.services = replace(world.services, storage=storage, store=cache(world._hooked_store))
        self.name = "letters"
        splits = self.random.choice([(), (("c",),), (("b",), ("d",), ("f",))])
        world.create(
            splits=splits,
            split_threshold_rows=self.random.choice([6, 12, 10**6]),
            compaction_spark_bytes=self.random.choice([1, 3000, 2**32]),  # in steps, or as a whole
            compaction_strategy=self.random.choice(["batch", "size_ratio"]),
            compaction_files=self.random.choice([2, 3]),
            gc_delay_seconds=300 if self.restores else 60,  # pins refuse in the last minute
            orphan_age_seconds=3600,
            job_retry_seconds=60,
        )
        self.observer = world.new_store(self.table)

    @property
    def table(self) -> Table:
        table = self.world.tables.named(self.name)
        assert table is not None
        return table

    def step(self) -> None:
        """Let one thing happen."""
        if self.restores and self.random.random() < self.restores:
            self._run(self.tag_or_restore)
        draw = self.random.random()
        if draw < 0.25:
            self.drop()
        elif draw < 0.85:
            self.deliver()
        elif draw < 0.93:
            self.world.clock.advance(seconds=self.random.choice([1, 61, 4000]))
        elif draw < 0.99:
            self._run(lambda: self.world.queue.extend(self._sweep()))
        else:
            self.lose_and_rebuild()

    def drop(self) -> None:
        """Drop a file; its notification comes alone, or again with those of others."""
        world, number = self.world, len(self.dropped)
        text = "".join(self.random.choices("abcdefgh", k=self.random.randint(1, 6)))
        rows = [{"letter": c, "at": 100 * number + i, "note": None} for i, c in enumerate(text)]
        source = world.sources.drop(f"letters/{number:04}.parquet", letters_file(rows))
        self.dropped[source.id] = [(c, 100 * number + i) for i, c in enumerate(text)]
        keys = sorted(world.sources.objects)[-4:]
        others = [s for s in world.sources.list("letters/", since_ms=0) if s.key in keys]
        again = [s for s in others if s != source and self.random.random() < 0.3]
        world.queue += batch_files(world.services, [source, *again])

    def deliver(self) -> None:
        """Deliver a message that waits; sometimes it stays and comes again."""
        queue = self.world.queue
        if not queue:
            return
        message = self.random.choice(list({str(m): m for m in queue}.values()))
        sent: list[OutboundMessage] = []
        if self._run(lambda: sent.extend(self.world.deliver(message))):
            self.kinds[message.queue] += 1
            fate = self.random.random()
            if fate < 0.95:  # else it dies before it has sent anything, and comes again
                queue.extend(sent)
            if fate < 0.85 and message in queue:
                queue.remove(message)

    def tag_or_restore(self) -> None:
        """Ask for a tag of a version, or go back to a tag or a version; sometimes it dies midway.

        The next delivery of any message then finishes what was registered.
        """
        world, name = self.world, self.name
        store = world.services.store(self.table)
        versions = [each.version for each in store.history()] + [
            p.version for p in store.pins.all()
        ]
        version, request_id = self.random.choice(versions), world.ids.new()
        self.read_tags()
        if self.random.random() < 0.4:
            world.administer(TagVersion(request_id, name, version, f"t{request_id}"))
            self.tagged[f"t{request_id}"] = self._rows_found(store.at(version=version))
            return
        if self.tagged and self.random.random() < 0.2:
            tag, _ = self.tagged.popitem()
            world.administer(UntagVersion(request_id, name, tag))
            return
        if self.random.random() < 0.2:
            self.random.choice([world.before_next_commit, world.after_next_commit])(world.crash)
        try:
            world.administer(RestoreVersion(request_id, name, version))
            self.kinds["restore"] += 1
        finally:
            world.hooks.clear()
            world.late_hooks.clear()
            self.checkpoint()

    def read_tags(self) -> None:
        """Compare the rows of each tagged version with those that it had when it was tagged."""
        pins = self.world.services.store(self.table).pins
        for pin in pins.all():
            if pin.owner.name in self.tagged:
                self.kinds["tag read"] += 1
                assert self._rows_found(pins.state(pin)) == self.tagged[pin.owner.name]

    def settle(self) -> None:
        """Deliver everything, without faults; every row dropped is then found once.

        Those of a file by which two processes died in a row may be missing: it is refused. So may
        those of files that were dropped before a restore.
        """
        self.quiet = True
        self.world.settle(limit=10_000)
        self.quiet = False
        self.read_tags()
        result = self.world.tracker.kept.values()
        refused = {record.job_id for record in result if record.state == "refused"}
        ingested = set(self.world.state(self.table).sources)
        assert self.restores or set(self.dropped) - ingested <= refused
        assert self._rows_found() == self._rows_of(ingested)

    def lose_and_rebuild(self) -> None:
        """Lose the DynamoDB items and the state's objects, rebuild, and compare by a query."""
        if self.depth or isinstance(self._plan(), str):
            return
        self.kinds["rebuild"] += 1
        world, table = self.world, self.table
        self.committed = self._known_sources()
        world.pages.lose(table.state_id)
        state = [o.path for o in world.storage.list(f"{table.id}/") if "/state/" in o.path]
        world.storage.delete([path for path in state if "/restored/" not in path])
        _, messages = rebuild(world.services, table)
        world.queue.extend(messages)
        self.observer = world.new_store(self.table)
        self.checkpoint()
        assert self._rows_found() == self._rows_of(self.committed)

    def checkpoint(self) -> None:
        """Compare the rows a rebuild would give now with those of the sources it would know."""
        self.committed = self._known_sources()
        plan = self._plan()
        self.checkpoints += 1
        if isinstance(plan, str):
            assert "nothing shows which" in plan, plan
            self.ambiguous += 1
            return
        sources = set(plan.sources)
        assert self.committed <= sources, "a committed source is forgotten"
        rows: Counter[Row] = Counter()
        for placed in plan.shards:
            _, held = self.found[placed.shard.id]
            spans = [plan.tree.get(leaf).range for leaf in placed.live]
            rows.update(
                row for row in held if any(s.contains(encode_key((row[0],))) for s in spans)
            )
        assert rows == self._rows_of(sources)
        if self.checkpoints % 10 == 0:
            planned_state(plan, self.world.clock.now_ms())

    def _known_sources(self) -> set[str]:
        """Return the sources that are known to be committed, in the generation that is registered.

        Of a restore that the state has not begun, they are those of the pinned version.
        """
        state, table = self.observer.current(), self.table
        if state.generation < table.generation:
            (pin,) = (p for p in self.observer.pins.all() if p.owner == restorer(table.restored))
            state = self.observer.pins.state(pin)
        kept = self.committed if self.generation == table.generation else set()
        self.generation = table.generation
        return kept | set(state.sources)

    def _rows_found(self, state: TableState | None = None) -> Counter[Row]:
        rows = self.world.rows(self.table, state=state)
        return Counter((str(row["letter"]), int(str(row["at"]))) for row in rows)

    def _rows_of(self, sources: set[str]) -> Counter[Row]:
        return Counter(row for source in sources for row in self.dropped[source])

    def _plan(self) -> RebuildPlan | str:
        markers = read_run_markers(self.world.storage, self.table.id)
        shards = [self._look(o) for o in self.world.storage.list(data_prefix(self.table.id))]
        table = self.table
        restored = load_restored(self.world.storage, table)
        types, generation = table.schema.key_types, table.generation
        plan = plan_rebuild(shards, types, markers, generation, restored)
        return plan if isinstance(plan, RebuildPlan) else "; ".join(plan.reasons)

    def _look(self, stored: StoredObject) -> FoundShard:
        shard_id = shard_id_of(stored.path)
        assert shard_id is not None
        if shard_id not in self.found:
            footer = read_footer(self.world.storage, stored.path, stored.size_bytes)
            shard = Shard.of(
                shard_id, footer.rows, stored.size_bytes, footer.min_key, footer.max_key
            )
            rows = _rows_in(self.world.storage.get(stored.path))
            self.found[shard_id] = (FoundShard(shard, footer.provenance), rows)
        return self.found[shard_id][0]

    def _sweep(self) -> list[OutboundMessage]:
        return list(sweep(self.world.services, self.table, audit=self.random.random() < 0.3))

    def _run(self, action: Callable[[], object]) -> bool:
        """Run a process to its end, or to its death."""
        self.depth += 1
        try:
            with patch.object(writer, "UPLOADS_AT_ONCE", 1):  # in one order for one seed
                action()
        except Crash:
            return False
        except (CorruptDataError, AssertionError):
            raise
        except DormouseError:  # it will come again
            return False
        finally:
            self.depth -= 1
        return True

    def _meet(self, path: str) -> None:
        """Just before a change: the process dies, or others run first."""
        if self.quiet or not self.depth or not _is_met(path):
            return
        draw = self.random.random()
        if draw < self.crashes:
            self.kinds["crash"] += 1
            raise Crash
        if draw < self.crashes + self.meetings and self.depth < 3:
            self.kinds["meeting"] += 1
            for _ in range(self.random.randint(1, 4)):
                self.deliver()

    def _changed(self, path: str) -> None:
        if not _is_met(path):
            return
        if shard_id_of(path) and not any(o.path == path for o in self.world.storage.list(path)):
            self.found.pop(shard_id_of(path) or "", None)
        self.checkpoint()
        self._meet(path)


def _is_met(path: str) -> bool:
    """Return whether processes die and meet at a change of an object: shards, notes of runs."""
    table_id, _, _ = path.partition("/")
    prefixes = data_prefix(table_id), RUN_MARKERS.prefix(table_id), JOB_NOTES.prefix(table_id)
    return path.startswith(prefixes)


def _rows_in(body: bytes) -> list[Row]:
    table = pq.read_table(io.BytesIO(body), columns=["letter", "at"])
    return list(zip(table["letter"].to_pylist(), table["at"].to_pylist(), strict=True))
