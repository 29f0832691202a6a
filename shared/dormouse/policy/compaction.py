"""Which shards of a partition to merge into one: the strategies of GCHQ's Sleeper.

Sizes are rows. Only free references on leaves take part; what a running job holds is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dormouse.model.properties import Properties
from dormouse.model.shards import Reference
from dormouse.model.state import TableState


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction proposed: merge these shards' rows of the partition into one shard."""

    partition: str
    inputs: tuple[str, ...]


def plan_compactions(state: TableState, properties: Properties) -> list[CompactionPlan]:
    """Propose every compaction that is due, partition by partition, in partition id order."""
    running = Counter(job.partition for job in state.jobs.values())
    batched = properties.compaction_strategy == "batch"
    fewest = properties.compaction_files if batched else 2
    # Most partitions of a large table have too little to merge: they are passed over unopened.
    candidates = sorted(p for p, held in state.references.items() if held.free >= fewest)
    plans = []
    for partition in candidates:
        if not state.partitions.get(partition).is_leaf:
            continue
        free = [r for r in state.references_in(partition) if r.job is None]
        if batched:
            groups = list(_batches(free, properties.compaction_files))
        else:
            groups = list(
                _size_ratio(free, properties.compaction_files, properties.compaction_size_ratio)
            )
        room = max(0, properties.compaction_jobs_per_partition - running[partition])
        plans += [CompactionPlan(partition, group) for group in groups[:room]]
    return plans


def _batches(free: Sequence[Reference], size: int) -> Iterator[tuple[str, ...]]:
    """Group every `size` references, fewest rows first; the remainder waits for more."""
    ordered = _ascending(free)
    for start in range(0, len(ordered) - size + 1, size):
        yield _ids(ordered[start : start + size])


def _size_ratio(free: Sequence[Reference], size: int, ratio: int) -> Iterator[tuple[str, ...]]:
    """Group references whose largest is small against the rest together.

    The largest are set aside until `ratio` times the largest left is at most the sum of the
    others. More than `size` are cut into windows of `size`, each judged by the same test; a window
    that fails slides up by one.
    """
    ordered = _ascending(free)
    while len(ordered) > 1 and not _balanced(ordered, ratio):
        ordered = ordered[:-1]
    if len(ordered) < 2:
        return
    if len(ordered) <= size:
        yield _ids(ordered)
        return
    start = 0
    while start < len(ordered):
        window = ordered[start : start + size]
        if _balanced(window, ratio):
            yield _ids(window)
            start += len(window)
        else:
            start += 1


def _balanced(ordered: Sequence[Reference], ratio: int) -> bool:
    return len(ordered) > 1 and ratio * ordered[-1].rows <= sum(r.rows for r in ordered[:-1])


def _ascending(references: Sequence[Reference]) -> list[Reference]:
    return sorted(references, key=lambda r: (r.rows, r.shard))


def _ids(references: Sequence[Reference]) -> tuple[str, ...]:
    return tuple(r.shard for r in references)
