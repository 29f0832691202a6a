"""Which shards of a partition to merge into new ones: the strategies of GCHQ's Sleeper.

Sizes are rows. A compaction whose output is large cuts it into several shards: a run. They are
sorted one after the other, so there is nothing to merge among them, and they count as one shard:
all of them are taken or none. Only free references on leaves take part; what a running job holds,
or what is disputed, even if it is only some of a run, is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dormouse.model.shards import Reference
from dormouse.model.state import TableState
from dormouse.stored.paths import run_of_shard
from dormouse.tables.properties import Properties

MAX_INPUTS = 1000
"""How many shards one job may have: it names them all in the state and in its outputs."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction proposed: merge these shards' rows of the partition."""

    partition: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SortedRun:
    """The rows which one run of a job left in a partition, in one shard or several."""

    rows: int
    shards: tuple[str, ...]


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
        runs = sorted_runs(state.references_in(partition), state.disputed)
        if batched:
            groups = list(_batches(runs, properties.compaction_files))
        else:
            groups = list(
                _size_ratio(runs, properties.compaction_files, properties.compaction_size_ratio)
            )
        room = max(0, properties.compaction_jobs_per_partition - running[partition])
        plans += [CompactionPlan(partition, _shards(group)) for group in groups[:room]]
    return plans


def plan_full_compactions(state: TableState) -> list[CompactionPlan]:
    """Propose to merge all of each leaf that holds several sorted runs, in partition id order.

    A leaf with more than `MAX_INPUTS` shards to merge is not done with one such plan. Leaves with a
    running job are planned without what it holds.
    """
    plans = []
    for partition in sorted(p for p, held in state.references.items() if held.free > 1):
        if state.partitions.get(partition).is_leaf:
            runs = sorted_runs(state.references_in(partition), state.disputed)
            groups = _bounded(runs)
            plans += [CompactionPlan(partition, _shards(group)) for group in groups]
    return plans


def within_limit(plans: Sequence[CompactionPlan], running: int, limit: int) -> list[CompactionPlan]:
    """Return as many plans as fit beside `running` jobs, in order, those of most shards first."""
    room = max(0, limit - running)
    if len(plans) <= room:
        return list(plans)
    return sorted(plans, key=lambda plan: -len(plan.inputs))[:room]


def sorted_runs(references: Iterable[Reference], disputed: Container[str] = ()) -> list[SortedRun]:
    """Return the runs of one partition whose shards are all free, fewest rows first.

    A run one of whose shards is disputed is none of them.
    """
    by_run: dict[str, list[Reference]] = {}
    for reference in references:
        by_run.setdefault(run_of_shard(reference.shard)[0], []).append(reference)
    runs = [
        SortedRun(
            sum(r.rows for r in found),
            tuple(sorted((r.shard for r in found), key=run_of_shard)),
        )
        for found in by_run.values()
        if all(r.job is None and r.shard not in disputed for r in found)
    ]
    return sorted(runs, key=lambda run: (run.rows, run.shards))


def _batches(ordered: Sequence[SortedRun], size: int) -> Iterator[Sequence[SortedRun]]:
    """Group every `size` runs, fewest rows first; the remainder waits for more."""
    for start in range(0, len(ordered) - size + 1, size):
        yield from _bounded(ordered[start : start + size])


def _size_ratio(
    ordered: Sequence[SortedRun], size: int, ratio: int
) -> Iterator[Sequence[SortedRun]]:
    """Group runs whose largest is small against the rest together.

    The largest are set aside until `ratio` times the largest left is at most the sum of the
    others. More than `size` are cut into windows of `size`, each judged by the same test; a window
    that fails slides up by one.
    """
    while len(ordered) > 1 and not _balanced(ordered, ratio):
        ordered = ordered[:-1]
    if len(ordered) < 2:
        return
    if len(ordered) <= size:
        yield from _bounded(ordered)
        return
    start = 0
    while start < len(ordered):
        window = ordered[start : start + size]
        if _balanced(window, ratio):
            yield from _bounded(window)
            start += len(window)
        else:
            start += 1


def _balanced(ordered: Sequence[SortedRun], ratio: int) -> bool:
    return len(ordered) > 1 and ratio * ordered[-1].rows <= sum(run.rows for run in ordered[:-1])


def _bounded(group: Sequence[SortedRun]) -> Iterator[Sequence[SortedRun]]:
    """Return a group without its largest runs, as many as make it too many shards; none of one."""
    while len(_shards(group)) > MAX_INPUTS:
        group = group[:-1]
    if len(group) > 1:
        yield group


def _shards(runs: Iterable[SortedRun]) -> tuple[str, ...]:
    return tuple(shard for run in runs for shard in run.shards)
