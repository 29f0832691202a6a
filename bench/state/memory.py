"""Measure a table state of many references: memory, cold load, commits and look-ups.

Called by `state_bench`; prints a JSON line for each figure. Each size is loaded in a process of its
own.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from msgspec import structs

from bench.common.figures import emit
from dormouse.features.planning import partitions_to_plan, plan_compactions, splits_due
from dormouse.keys import KeyRange
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.schema.types import Primitive
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import (
    NewShard,
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import (
    AddShards,
    AssignJob,
    Entry,
    ReleaseJob,
    ReplaceShards,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from dormouse.tables.properties import Properties

T = TypeVar("T")
TABLE = "bench"
PER_PARTITION = 10
KEYS = 10**9
ROUNDS = 100


def digest(name: str) -> str:
    """Return 32 hex digits that stand for a name, as ids are."""
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


def resident_bytes() -> int:
    """Return the memory of this process that is in use and resident."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Return the most memory this process had resident at any time."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def cpu_seconds(do: Callable[[], T]) -> tuple[T, float]:
    """Return what `do` gives, and the CPU seconds of all threads it took."""
    gc.collect()
    before = time.process_time()
    result = do()
    return result, time.process_time() - before


def show(references: int, figure: str, value: float) -> None:
    """Print one figure."""
    emit("memory", "state", references, **{figure: value})


def measure_load(references: int, path: Path) -> None:
    """Print the CPU and the memory of loading a snapshot, and what its use takes."""
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    empty = resident_bytes()
    bodies = [path.read_bytes()]
    before = len(gc.get_objects())
    loaded, seconds = cpu_seconds(lambda: decode_snapshot(TABLE, bodies.pop(), str(path)))
    show(references, "load_cpu_seconds", seconds)
    show(references, "load_peak_rss_bytes", peak_bytes())
    show(references, "load_new_container_objects", len(gc.get_objects()) - before)
    show(references, "state_rss_bytes", resident_bytes() - empty)
    measure_use(references, loaded)


def measure_use(references: int, state: TableState) -> None:
    """Print what commits, look-ups, plans and the next snapshot take."""
    chosen = random.Random(1)  # noqa: S311  # the same partitions in every run
    leaves = [leaf.id for leaf in state.partitions.leaves()]
    asked = [chosen.choice(leaves) for _ in range(ROUNDS)]
    points = [key(chosen.randrange(KEYS)) for _ in range(ROUNDS)]
    ranges = [KeyRange.exactly(point) for point in points]

    def each(figure: str, do: Callable[[int], object]) -> None:
        _, seconds = cpu_seconds(lambda: [do(i) for i in range(ROUNDS)])
        show(references, f"{figure}_cpu_microseconds", seconds / ROUNDS * 1e6)

    each("references_of_a_partition", lambda i: state.references_in(asked[i]))
    each("plan_of_a_point_query", lambda i: list(state.partitions_to_read(ranges[i])))
    each("source_look_up", lambda i: digest(f"source {i}") in state.sources)
    after, seconds = cpu_seconds(lambda: committed(state, sorted(set(asked))))
    show(references, "ingest_assign_and_compact_cpu_microseconds", seconds / len(set(asked)) * 1e6)
    each("ingest_on_the_root", lambda i: apply(state, Entry(on_the_root(i), 0, 0)))

    due, seconds = cpu_seconds(lambda: plan_compactions(after, Properties()))
    show(references, "plan_compactions_cpu_seconds", seconds)
    show(references, "compactions_due", len(due))
    del due
    show(references, "splits_due_cpu_seconds", cpu_seconds(lambda: splits_due(after, 10**6))[1])
    changed = committed(state, sorted(set(asked))[:10])
    _, seconds = cpu_seconds(lambda: planned_by_changes(changed))
    show(references, "plan_of_ten_changed_partitions_cpu_seconds", seconds)
    broken, seconds = cpu_seconds(lambda: broken_invariants(after))
    assert not broken, broken[:3]
    show(references, "invariants_of_changes_cpu_seconds", seconds)
    body, seconds = cpu_seconds(lambda: encode_snapshot(TABLE, after))
    show(references, "encode_after_commits_cpu_seconds", seconds)
    show(references, "peak_rss_bytes_with_encode", peak_bytes())
    again = decode_snapshot(TABLE, body, "bench")
    assert (again.rows, again.reference_count) == (after.rows, after.reference_count)


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


def on_the_root(number: int) -> Transaction:
    """Return an ingest of a shard placed on the root, to be pushed down to its one leaf."""
    at = key(number * (KEYS // ROUNDS))
    shard = NewShard(Shard.of(f"root-{number}", 1, 64, at, at), (("root", 1),))
    return AddShards(f"root-{number}", (f"root-file-{number}",), (shard,))


def measure(references: int, path: Path) -> None:
    """Print all figures of a size; leave the snapshot at a path."""
    body, seconds = cpu_seconds(
        lambda: encode_snapshot(TABLE, built(references), has_key_index=True)
    )
    show(references, "build_and_encode_cpu_seconds", seconds)
    show(references, "snapshot_bytes", len(body))
    path.write_bytes(body)
    command = [sys.executable, "-m", __spec__.name, "load", str(references), str(path)]
    subprocess.run(command, check=True)


def main() -> None:
    """Measure a size and leave the snapshot at a path: two arguments."""
    match sys.argv[1:]:
        case ["load", references, path]:
            measure_load(int(references), Path(path))
        case [references, path]:
            measure(int(float(references)), Path(path))
        case _:
            sys.exit("usage: python -m bench.state.memory REFERENCES PATH_OF_THE_SNAPSHOT")


if __name__ == "__main__":
    main()
