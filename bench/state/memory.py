"""Measure states of many references: memory, load, use, remembered sources.

Each size is loaded in a process of its own. Memory is what is resident beyond what the process had
before.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from bench.figures import emit
from bench.measure import elsewhere, kept, timed
from bench.state.workload import KEYS, TABLE, built, digest, key
from dormouse.features.planning import partitions_to_plan, plan_compactions, splits_due
from dormouse.keys import KeyRange
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import (
    NewShard,
    OverlayMap,
)
from dormouse.state.state import (
    AddShards,
    AssignJob,
    Entry,
    ReleaseJob,
    ReplaceShards,
    TableState,
)
from dormouse.tables.properties import Properties

ROUNDS = 100
SMALL = 1000
"""The references of the table whose sources are measured."""


def show(references: int, figure: str, value: float) -> None:
    emit("memory", "state", references, **{figure: value})


def measure(references: int, snapshot: str) -> None:
    """Print all figures of a size; leave the snapshot at a path."""
    body = encode_snapshot(TABLE, built(references), has_key_index=True)
    show(references, "snapshot_bytes", len(body))
    Path(snapshot).write_bytes(body)
    print(elsewhere("state.memory:measure_load", references, snapshot), end="", flush=True)


def measure_load(references: int, snapshot: str) -> None:
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    before = len(gc.get_objects())
    state, taken = kept(lambda: decode_snapshot(TABLE, Path(snapshot).read_bytes(), snapshot))
    show(references, "load_new_container_objects", len(gc.get_objects()) - before)
    show(references, "load_cpu_seconds", taken["cpu_seconds"])
    show(references, "state_rss_bytes", taken["state_rss_bytes"])
    measure_use(references, state)


def measure_use(references: int, state: TableState) -> None:
    chosen = random.Random(1)
    leaves = [leaf.id for leaf in state.partitions.leaves()]
    asked = [chosen.choice(leaves) for _ in range(ROUNDS)]
    ranges = [KeyRange.exactly(key(chosen.randrange(KEYS))) for _ in range(ROUNDS)]

    def each(figure: str, do: Callable[[int], object]) -> None:
        _, seconds = timed(lambda: [do(i) for i in range(ROUNDS)])
        show(references, f"{figure}_cpu_microseconds", seconds / ROUNDS * 1e6)

    each("references_of_a_partition", lambda i: state.references_in(asked[i]))
    each("plan_of_a_point_query", lambda i: list(state.partitions_to_read(ranges[i])))
    partitions = sorted(set(asked))
    after, seconds = timed(lambda: committed(state, partitions))
    show(references, "ingest_assign_and_compact_cpu_microseconds", seconds / len(partitions) * 1e6)
    _, seconds = timed(lambda: plan_compactions(after, Properties()))
    show(references, "plan_compactions_cpu_seconds", seconds)
    changed = committed(state, partitions[:10])
    _, seconds = timed(lambda: planned_by_changes(changed))
    show(references, "plan_of_ten_changed_partitions_cpu_seconds", seconds)


def planned_by_changes(state: TableState) -> None:
    """Plan what changed since the snapshot, as the plan stage does after a commit."""
    among = frozenset(partitions_to_plan(state))
    splits_due(state, 10**6, among)
    plan_compactions(state, Properties(), among)


def committed(state: TableState, partitions: list[str]) -> TableState:
    """Return the state after an ingest and a compaction of all references in each partition."""
    for partition in partitions:
        span = [state.shards[r.shard] for r in state.references_in(partition)]
        new = structs.replace(span[0], id=f"new-{partition}")
        placed = NewShard(new, ((partition, new.rows),))
        inputs = (*(shard.id for shard in span), new.id)
        merged = structs.replace(new, id=f"merged-{partition}")
        done = (NewShard(merged, ((partition, merged.rows),)),)
        taken = tuple((shard.id, shard.rows) for shard in (*span, new))
        removed = sum(rows for _, rows in taken) - merged.rows
        for transaction in (
            AddShards(f"add-{partition}", (f"file-{partition}",), (placed,)),
            AssignJob(f"given-back-{partition}", partition, inputs),
            ReleaseJob(f"given-back-{partition}"),
            AssignJob(f"job-{partition}", partition, inputs),
            ReplaceShards(f"job-{partition}", partition, inputs, done, taken, removed),
        ):
            state, verdict = apply(state, Entry(transaction, state.time_ms, 0))
            assert verdict == Verdict(), verdict
    return state


def measure_sources(count: int) -> None:
    state = replace(built(SMALL), sources=OverlayMap())
    plain = encode_snapshot(TABLE, state)
    sources = OverlayMap.of({digest(f"source {i}"): i * 1000 for i in range(count)})
    full = encode_snapshot(TABLE, replace(state, sources=sources))
    emit("sources", "snapshot", count, bytes_per_source=(len(full) - len(plain)) / count)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "full"
        path.write_bytes(full)
        print(elsewhere("state.memory:load_sources", count, path), end="", flush=True)


def load_sources(count: int, path: str) -> None:
    """Print the memory that loaded sources stay in, and the CPU of loading and looking one up."""
    plain = encode_snapshot(TABLE, replace(built(SMALL), sources=OverlayMap()))
    small = decode_snapshot(TABLE, plain, "plain")
    body = Path(path).read_bytes()
    state, taken = kept(partial(decode_snapshot, TABLE, body, "full"))
    numbers = range(0, 2 * count, max(1, count // 500))
    asked = [digest(f"source {i}") for i in numbers]
    present, looking = timed(lambda: sum(each in state.sources for each in asked))
    assert present == sum(i < count for i in numbers)
    emit(
        "sources",
        "memory",
        count,
        bytes_per_source=taken["state_rss_bytes"] / count,
        load_cpu_seconds=taken["cpu_seconds"],
        look_up_microseconds=looking / len(asked) * 1e6,
    )
    del small
