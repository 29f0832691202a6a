"""States and commits to measure: ingests of 9 shards, compactions of 10 to 1, assignments.

25 ingests and 25 compactions follow each batch of assignments, so every table stays as big as it
was: a leaf of 10 references is compacted to one, and 9 ingests bring one each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
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


class Clock:
    def __init__(self) -> None:
        """Begin when the sources of `built` are days old, but still remembered."""
        self.ms = 10 * DAY_MS

    def now_ms(self) -> int:
        return self.ms


class Ids:
    """Ids as the real ones: the time, then chance, from a seed."""

    def __init__(self, clock: Clock, seed: int) -> None:
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
            jobs = [(self._ids.new(), leaf, tuple(self._shards_on(leaf))) for leaf in chosen]
            yield tuple(AssignJob(job, self._leaves[leaf], shards) for job, leaf, shards in jobs)
            for n, (job, leaf, shards) in enumerate(jobs):
                merged = self._shard(leaf)
                self._held[leaf] = [s for s in self._shards_on(leaf) if s not in shards]
                self._held[leaf].append(merged.shard.id)
                taken = tuple((shard, self._rows_of(shard)) for shard in shards)
                removed = sum(rows for _, rows in taken) - merged.shard.rows
                yield (ReplaceShards(job, self._leaves[leaf], shards, (merged,), taken, removed),)
                onto = [chosen[(n + i) % JOBS] for i in range(SHARDS_OF_AN_INGEST)]
                yield (self._ingest(onto),)

    def ingest(self) -> AddShards:
        chosen = self._chance.sample(range(len(self._leaves)), SHARDS_OF_AN_INGEST)
        return self._ingest(chosen)

    def _ingest(self, leaves: list[int]) -> AddShards:
        shards = tuple(self._shard(leaf) for leaf in leaves)
        for leaf, new in zip(leaves, shards, strict=True):
            self._held[leaf] = [*self._shards_on(leaf), new.shard.id]
        sources = tuple(f"{self._chance.getrandbits(128):032x}" for _ in leaves)
        return AddShards(self._ids.new(), sources, shards)

    def _shards_on(self, leaf: int) -> list[str]:
        if leaf not in self._held:
            self._held[leaf] = [r.shard for r in self._state.references_in(self._leaves[leaf])]
        return self._held[leaf]

    def _rows_of(self, shard: str) -> int:
        return self._rows.get(shard) or self._state.shards[shard].rows

    def _shard(self, leaf: int) -> NewShard:
        count = len(self._leaves)
        low, high = leaf * KEYS // count, (leaf + 1) * KEYS // count - 1
        span = key(low + self._chance.randrange(9)), key(high - self._chance.randrange(9))
        shard = Shard.of(f"{self._ids.new()}-0", self._chance.randrange(900, 1100), 64_000, *span)
        self._rows[shard.id] = shard.rows
        return NewShard(shard, ((self._leaves[leaf], shard.rows),))
