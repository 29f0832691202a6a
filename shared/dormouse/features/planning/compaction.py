"""Choose which shards of a partition to merge, by the compaction strategies of GCHQ's Sleeper.

Sizes are in rows. A compaction with a large output writes it as several shards, a sorted run. Their
keys follow each other, so merging them gains nothing, and a plan has all shards of a run or none.
Only free references on leaves are planned: a run is left out if a job holds one of its shards, or
one is disputed.
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
"""The most shards of one job, which lists them all in the state and in its outputs."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction proposed: merge these shards' rows of the partition."""

    partition: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SortedRun:
    """The shards that one run of a job wrote, and how many rows they have in a partition."""

    rows: int
    shards: tuple[str, ...]


def plan_compactions(
    state: TableState, properties: Properties, among: Iterable[str] | None = None
) -> list[CompactionPlan]:
    """Propose every compaction that is due, partition by partition, in partition id order.

    With `among`, only these partitions are looked at.
    """
    running = Counter(job.partition for job in state.jobs.values())
    batched = properties.compaction_strategy == "batch"
    fewest = properties.compaction_files if batched else 2
    # Most partitions of a large table have too few free references: skip them without a look.
    looked_at = state.references if among is None else among
    candidates = sorted(p for p in looked_at if state.free_in(p) >= fewest)
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
    """Propose to merge all free runs of each leaf that has several, in partition id order.

    A plan has at most `MAX_INPUTS` shards, so a leaf with more is not fully compacted by one.
    """
    plans = []
    for partition in sorted(p for p, held in state.references.items() if held.free > 1):
        if state.partitions.get(partition).is_leaf:
            runs = sorted_runs(state.references_in(partition), state.disputed)
            groups = _bounded(runs)
            plans += [CompactionPlan(partition, _shards(group)) for group in groups]
    return plans


def within_limit(plans: Sequence[CompactionPlan], running: int, limit: int) -> list[CompactionPlan]:
    """Return the plans for which `running` jobs leave room; if not all fit, the largest first."""
    room = max(0, limit - running)
    if len(plans) <= room:
        return list(plans)
    return sorted(plans, key=lambda plan: -len(plan.inputs))[:room]


def sorted_runs(references: Iterable[Reference], disputed: Container[str] = ()) -> list[SortedRun]:
    """Return the runs of a partition whose shards are all free and undisputed, smallest first."""
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
    """Yield groups of `size` runs, smallest first; fewer remaining runs wait for more."""
    for start in range(0, len(ordered) - size + 1, size):
        yield from _bounded(ordered[start : start + size])


def _size_ratio(
    ordered: Sequence[SortedRun], size: int, ratio: int
) -> Iterator[Sequence[SortedRun]]:
    """Yield groups in which `ratio` times the largest run is at most the sum of the others.

    So a large run is rewritten only together with enough rows. With a ratio of 3, of runs of
    1, 1, 1, 1 and 50 rows the 50 is dropped, and the others are a group, because 3 * 1 <= 3.

    The largest runs are dropped until the test holds. More than `size` runs are then grouped in
    windows of `size` from the smallest on; a window that fails the same test moves up by one run.
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
    """Yield a group without the largest runs that exceed `MAX_INPUTS`, if two runs are left."""
    while len(_shards(group)) > MAX_INPUTS:
        group = group[:-1]
    if len(group) > 1:
        yield group


def _shards(runs: Iterable[SortedRun]) -> tuple[str, ...]:
    return tuple(shard for run in runs for shard in run.shards)
