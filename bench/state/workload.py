"""States and commits to measure: ingests of 9 shards, compactions of 10 to 1, assignments.

25 ingests and 25 compactions follow each batch of assignments, so every table stays as big as it
was: a leaf of 10 references is compacted to one, and 9 ingests bring one each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from dormouse.schema.types import Primitive
from dormouse.state.partitions import (
    NewShard,
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import (
    DAY_MS,
    AddShards,
    AssignJob,
    ReplaceShards,
    TableState,
    Transaction,
)
from tests.support.adapters import FakeClock

TABLE = "bench"
PER_PARTITION = 10
KEYS = 10**9


def digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=16).hexdigest()


def key(number: int) -> tuple[str]:
    """Return a row key as people have them."""
    return (f"customer-{number:09d}",)


def built(references: int) -> TableState:
    """Return a state of so many references, a tenth as many leaves, and as many sources."""
    leaves = max(1, references // PER_PARTITION)
    tree = PartitionTree.from_split_points([key(i * KEYS // leaves) for i in range(1, leaves)])
    shards: dict[str, Shard] = {}
    held: dict[str, PartitionReferences] = {}
    for n, leaf in enumerate(tree.leaves()):
        low, high = n * KEYS // leaves, (n + 1) * KEYS // leaves - 1
        here: dict[str, Reference] = {}
        for i in range(PER_PARTITION):
            name = f"{digest(f'{n}/{i}')}-0"
            shards[name] = Shard.of(name, 1000, 64_000, key(low + i), key(high - i))
            here[name] = Reference(leaf.id, name, 1000)
        held[leaf.id] = PartitionReferences(OverlayMap.of(here), 1000 * len(here), len(here))
    return TableState(
        version=0,
        time_ms=references,
        key_types=(Primitive.STRING,),
        partitions=tree,
        shards=OverlayMap.of(shards),
        references=OverlayMap.of(held),
        rows=1000 * len(shards),
        reference_count=len(shards),
        reference_counts=OverlayMap.of(dict.fromkeys(shards, 1)),
        sources=OverlayMap.of({digest(f"source {i}"): i for i in range(references)}),
    )


JOBS = 25
SHARDS_OF_AN_INGEST = 9


def clock() -> FakeClock:
    """Return a clock at which the sources of `built` are days old, but still remembered."""
    return FakeClock(10 * DAY_MS)


class Ids:
    """Ids as real ones of different milliseconds: the time, then chance, from a seed."""

    def __init__(self, clock: FakeClock, seed: int) -> None:
        self._clock, self._chance = clock, random.Random(seed)  # noqa: S311

    def new(self) -> str:
        return f"{self._clock.now_ms():012x}{self._chance.getrandbits(80):020x}"


class Mix:
    """Makes transactions that hold, for a state made by `built`."""

    def __init__(self, state: TableState, ids: Ids, seed: int) -> None:
        self._ids, self._chance = ids, random.Random(seed)  # noqa: S311
        self._state = state
        self._leaves = [leaf.id for leaf in state.partitions.leaves()]
        self._held: dict[int, list[str]] = {}
        self._rows: dict[str, int] = {}

    def deltas(self) -> Iterator[tuple[Transaction, ...]]:
        """Return what is committed, delta by delta, for ever."""
        while True:
            chosen = self._chance.sample(range(len(self._leaves)), JOBS)
            jobs = [self.assign(leaf) for leaf in chosen]
            yield tuple(jobs)
            for n, (leaf, job) in enumerate(zip(chosen, jobs, strict=True)):
                yield (self.compact(leaf, job),)
                yield (self.ingest([chosen[(n + i) % JOBS] for i in range(SHARDS_OF_AN_INGEST)]),)

    def assign(self, leaf: int) -> AssignJob:
        """Return the assignment of all shards of a leaf, which is named by its place."""
        return AssignJob(self._ids.new(), self._leaves[leaf], tuple(self._shards_on(leaf)))

    def compact(self, leaf: int, job: AssignJob) -> ReplaceShards:
        taken = tuple((shard, self._rows_of(shard)) for shard in job.inputs)
        rows = sum(rows for _, rows in taken)
        merged = self._shard(leaf, most_rows=rows)
        self._held[leaf] = [s for s in self._shards_on(leaf) if s not in job.inputs]
        self._held[leaf].append(merged.shard.id)
        removed = rows - merged.shard.rows
        return ReplaceShards(job.job, job.partition, job.inputs, (merged,), taken, removed)

    def ingest(self, leaves: Sequence[int] = ()) -> AddShards:
        """Return an ingest of a shard for each of some leaves, or of nine of all."""
        at = leaves or self._chance.sample(range(len(self._leaves)), SHARDS_OF_AN_INGEST)
        shards = tuple(self._shard(leaf) for leaf in at)
        for leaf, new in zip(at, shards, strict=True):
            self._held[leaf] = [*self._shards_on(leaf), new.shard.id]
        sources = tuple(f"{self._chance.getrandbits(128):032x}" for _ in at)
        return AddShards(self._ids.new(), sources, shards)

    def _shards_on(self, leaf: int) -> list[str]:
        if leaf not in self._held:
            self._held[leaf] = [r.shard for r in self._state.references_in(self._leaves[leaf])]
        return self._held[leaf]

    def _rows_of(self, shard: str) -> int:
        return self._rows.get(shard) or self._state.shards[shard].rows

    def _shard(self, leaf: int, most_rows: int = 1100) -> NewShard:
        count = len(self._leaves)
        low, high = leaf * KEYS // count, (leaf + 1) * KEYS // count - 1
        span = key(low + self._chance.randrange(9)), key(high - self._chance.randrange(9))
        rows = min(most_rows, self._chance.randrange(900, 1100))
        shard = Shard.of(f"{self._ids.new()}-0", rows, 64_000, *span)
        self._rows[shard.id] = shard.rows
        return NewShard(shard, ((self._leaves[leaf], shard.rows),))
