"""A leaf of 10⁹ rows, of which only the sizes are real: where its job goes, and that it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dormouse.features import compaction as compact_apart
from dormouse.features import compaction as compact_stage
from dormouse.features.compaction import EVERYTHING, Compaction, Merged
from dormouse.features.spark_jobs import track_spark
from dormouse.keys import KeyHistogram, KeyRange
from dormouse.messages.stages import CompactionJob, OutboundMessage, SparkRunChanged
from dormouse.ports import Services
from dormouse.shards.writer import ShardContext
from dormouse.state.jobs import compaction_queue
from dormouse.state.partitions import ROOT, Job, NewShard, Shard
from dormouse.state.state import DAY_MS, AddShards, AssignJob, TableState
from dormouse.state.versions import Lineage
from dormouse.stored.paths import PART_NUMBERS, make_shard_id, shard_path
from dormouse.tables.table import Table
from tests.support.world import Crash, World

SHARDS, ROWS = 12, 10**9
GIB = 1024**3
NARROW_BYTES, WIDE_BYTES = 15, 92
"""What a row takes in a shard, as measured."""
SAMPLES = 256


def key(row: int) -> tuple[str]:
    return (f"{row:012}",)


def rows_of(span: KeyRange, shard_rows: int = ROWS // SHARDS) -> int:
    """Return how many rows one shard has in a range: each has every twelfth key."""
    low = int(span.min[0]) if span.min else 0
    high = int(span.max[0]) if span.max else ROWS
    return min(high // SHARDS, shard_rows) - min(low // SHARDS, shard_rows)


@dataclass
class Leaf:
    """A table with one full leaf, a job that merges all of it, and what was tried of that.

    A merge of more than `most_bytes` dies without a word, as in a function that is out of time.
    """

    world: World
    row_bytes: int
    most_bytes: int
    tried: Counter[tuple[str, object]] = field(default_factory=Counter)

    def begin(self) -> tuple[Table, OutboundMessage]:
        table = self.world.create()
        store = self.world.new_store(table)
        rows = ROWS // SHARDS
        shards = [
            Shard.of(f"{n:032x}-0", rows, rows * self.row_bytes, key(0), key(ROWS - 1))
            for n in range(SHARDS)
        ]
        new = tuple(NewShard(shard, ((ROOT, rows),)) for shard in shards)
        inputs = tuple(shard.id for shard in shards)
        store.commit(AddShards("given", (), new), AssignJob("full", ROOT, inputs), generation=0)
        state = store.current()
        assert state.rows == rows * SHARDS
        queue = compaction_queue(state, state.jobs["full"], table.properties)
        return table, OutboundMessage(queue, CompactionJob(table.id, 0, "full"))

    def known(self) -> KeyHistogram:
        step = ROWS // SAMPLES
        return KeyHistogram(tuple((key(n), n) for n in range(0, ROWS, step)), ROWS, key(ROWS - 1))

    def merge(
        self,
        access: Any,
        compaction: Compaction,
        *,
        span: KeyRange = EVERYTHING,
        part: int | None = None,
        **_: object,
    ) -> Merged:
        """Stand for a merge."""
        self.tried["function", span] += 1
        rows = SHARDS * rows_of(span)
        if rows * self.row_bytes > self.most_bytes:
            raise Crash
        name = make_shard_id("full", (part or 0) * PART_NUMBERS)
        low = span.min or key(0)
        high = key(int(span.max[0]) - 1) if span.max else key(ROWS - 1)
        access.storage.put(shard_path(compaction.table.id, name), b"sizes only")
        output = NewShard(Shard.of(name, rows, rows * self.row_bytes, low, high), ((ROOT, rows),))
        return Merged((output,), rows, rows, 0, last_is_marked=part is None)

    def taken(
        self, _: Services, compaction: Compaction, span: KeyRange = EVERYTHING
    ) -> tuple[tuple[str, int], ...]:
        """Stand for the count of what inputs have in a range."""
        return tuple((shard.id, rows_of(span)) for shard in compaction.inputs)

    def compaction(
        self, services: Services, table: Table, state: TableState, job: Job
    ) -> Compaction:
        """Stand for what is read of footers."""
        inputs = tuple(state.shards[shard] for shard in job.inputs)
        context = ShardContext(table.id, table.schema, job.id, lineage=Lineage(inputs=job.inputs))
        partition = state.partitions.get(job.partition)
        return Compaction(table, job, partition, inputs, context, keys=(self.known(),))

    def drive(self, message: OutboundMessage, days: int = 40) -> None:
        """Deliver a message and what follows as SQS does, with an audit each day."""
        world, receives = self.world, Counter[int]()
        world.queue.append(message)
        for _ in range(days):
            while world.queue:
                outgoing = world.queue.popleft()
                world.clock.advance(seconds=outgoing.delay_seconds)
                try:
                    world.queue += world.deliver(outgoing)
                except Crash:
                    receives[id(outgoing)] += 1
                    if receives[id(outgoing)] < 3:
                        world.queue.append(outgoing)
                self.end_runs()
            world.clock.advance(seconds=DAY_MS // 1000)
            world.age_objects(seconds=DAY_MS // 1000)
            world.sweep(audit=True)

    def end_runs(self) -> None:
        """Let runs of Spark fail."""
        for run_id, run in self.world.spark.runs.items():
            if run_id not in self.world.spark.ended:
                self.tried["spark", run.attempt] += 1
                self.world.spark.ended[run_id] = ("failed", "no memory")
                self.world.queue += track_spark(self.world.services, SparkRunChanged(run_id))


@pytest.fixture
def leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Leaf:
    has_spark, row_bytes, most_bytes = request.param
    leaf = Leaf(World(tmp_path, has_spark=has_spark), row_bytes, most_bytes)
    for module in (compact_stage, compact_apart):
        monkeypatch.setattr(module, "merge_inputs", leaf.merge)
        monkeypatch.setattr(module, "count_rows_taken", leaf.taken)
    monkeypatch.setattr(compact_stage, "_load_compaction", leaf.compaction)
    return leaf


def kinds(*, has_spark: bool, most_bytes: int) -> pytest.MarkDecorator:
    params = [(has_spark, row_bytes, most_bytes) for row_bytes in (NARROW_BYTES, WIDE_BYTES)]
    return pytest.mark.parametrize("leaf", params, ids=["narrow", "wide"], indirect=True)


@kinds(has_spark=True, most_bytes=0)
def test_with_spark_it_is_sparks_and_no_function_tries_it(leaf: Leaf) -> None:
    table, message = leaf.begin()
    assert message.queue == "spark-jobs"
    leaf.drive(message)
    attempts = table.properties.spark_attempts
    assert leaf.tried == {("spark", n + 1): 1 for n in range(attempts)}
    (dead,) = leaf.world.dead
    assert dead.queue == "spark-jobs-dead"


@kinds(has_spark=False, most_bytes=5 * GIB)
def test_without_spark_it_is_done_in_steps_of_what_a_function_does(leaf: Leaf) -> None:
    table, message = leaf.begin()
    leaf.drive(message)
    size_bytes = ROWS * leaf.row_bytes
    assert len(leaf.tried) == -(-size_bytes // table.properties.compaction_spark_bytes)
    assert set(leaf.tried.values()) == {1}
    done(leaf, table)


@pytest.mark.parametrize("leaf", [(False, NARROW_BYTES, GIB)], ids=["narrow"], indirect=True)
def test_without_spark_on_a_function_a_quarter_as_fast_steps_are_halved_until_they_fit(
    leaf: Leaf,
) -> None:
    table, message = leaf.begin()
    leaf.drive(message)
    assert max(leaf.tried.values()) == 2, "never a third time in one place"
    done(leaf, table)


@kinds(has_spark=False, most_bytes=1)
def test_a_full_leaf_without_spark_and_without_a_small_shard_is_reported_once(leaf: Leaf) -> None:
    table, message = leaf.begin()
    leaf.drive(message)
    assert max(leaf.tried.values()) == 2
    (dead,) = leaf.world.dead
    assert (dead.queue, dead.message) == ("compaction-jobs-dead", message.message)
    assert "dormouse dlq redrive compaction-jobs" in dead.reason


def done(leaf: Leaf, table: Table) -> None:
    state = leaf.world.state(table)
    assert not state.jobs and not leaf.world.dead
    assert state.rows == ROWS // SHARDS * SHARDS
