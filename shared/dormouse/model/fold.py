"""The fold: the only code that makes one table state from another.

It serves live commits, replay, snapshots, tests and simulation alike. An entry that breaks a rule
changes nothing but the version, and says why; an entry that was applied before changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rpds import HashTrieMap

from dormouse.model.partitions import PartitionTree, child_ids
from dormouse.model.rules import Violation, violations
from dormouse.model.shards import Job, NewShard, Reference
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AssignJob,
    ClearTable,
    Entry,
    ForgetShards,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    SplitPartition,
    transaction_id,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the fold made of an entry: applied, `repeated` (it was before), or against the rules."""

    violations: tuple[Violation, ...] = ()
    repeated: bool = False


def apply(state: TableState, entry: Entry) -> tuple[TableState, Verdict]:
    """Give the state after `entry`, and the verdict on it. The version is left to the log."""
    now_ms = max(state.time_ms, entry.time_ms)  # time never runs backwards, whoever's clock it is
    name = transaction_id(entry.transaction)
    same_generation = entry.generation == state.generation
    if same_generation and state.has_committed(name, now_ms):
        return state, Verdict(repeated=True)
    if broken := violations(state, entry):
        return state, Verdict(broken)
    changed = _changed(replace(state, time_ms=now_ms), entry)
    return replace(changed, transactions=changed.transactions.insert(name, now_ms)), Verdict()


def _changed(state: TableState, entry: Entry) -> TableState:
    match entry.transaction:
        case InitialisePartitions(partitions=partitions):
            return replace(state, partitions=PartitionTree.of(partitions))
        case AddShards(shards=shards, sources=sources):
            known = state.sources.update(HashTrieMap(dict.fromkeys(sources, state.time_ms)))
            return replace(_add(state, shards), sources=known)
        case AssignJob(job=job, partition=partition, inputs=inputs):
            assigned = Job(job, partition, inputs, state.time_ms)
            marked = _mark(state, assigned, job)
            return replace(marked, jobs=state.jobs.insert(job, assigned))
        case ReleaseJob(job=job):
            released = state.jobs[job]
            free = replace(_mark(state, released, None), jobs=state.jobs.remove(job))
            return _push_down(free, released.partition, {})
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs):
            for shard in inputs:
                state = _drop(state, partition, shard)
            return replace(_add(state, outputs), jobs=state.jobs.remove(job))
        case SplitPartition(partition=partition, at=at, rows_left=rows_left):
            left, right = child_ids(partition)
            tree = state.partitions.split(partition, at, left, right)
            return _push_down(replace(state, partitions=tree), partition, dict(rows_left))
        case ForgetShards(shards=shards):
            return _forget(state, shards)
        case ClearTable(generation=generation, partitions=partitions):
            return TableState(
                version=state.version,
                time_ms=state.time_ms,
                generation=generation,
                partitions=PartitionTree.of(partitions),
            )


def _add(state: TableState, shards: Iterable[NewShard]) -> TableState:
    for new in shards:
        shard = new.shard
        state = replace(
            state,
            shards=state.shards.insert(shard.id, shard),
            reference_counts=state.reference_counts.insert(shard.id, 0),
            unreferenced=state.unreferenced.insert(shard.id, state.time_ms),
        )
        for partition, rows in new.rows_by_partition:
            state = _put(state, Reference(partition, shard.id, rows))
            state = _push_down(state, partition, {})
    return state


def _forget(state: TableState, shards: Iterable[str]) -> TableState:
    for shard in shards:
        state = replace(
            state,
            shards=state.shards.remove(shard),
            unreferenced=state.unreferenced.discard(shard),
            reference_counts=state.reference_counts.discard(shard),
        )
    return state


def _mark(state: TableState, job: Job, mark: str | None) -> TableState:
    held = state.references[job.partition]
    for shard in job.inputs:
        held = held.insert(shard, replace(held[shard], job=mark))
    return replace(state, references=state.references.insert(job.partition, held))


def _put(state: TableState, reference: Reference) -> TableState:
    held = state.references.get(reference.partition) or HashTrieMap()
    held = held.insert(reference.shard, reference)
    count = state.reference_counts.get(reference.shard, 0) + 1
    return replace(
        state,
        references=state.references.insert(reference.partition, held),
        reference_counts=state.reference_counts.insert(reference.shard, count),
        unreferenced=state.unreferenced.discard(reference.shard),
    )


def _drop(state: TableState, partition: str, shard: str) -> TableState:
    held = state.references[partition].remove(shard)
    count = state.reference_counts[shard] - 1
    unreferenced = state.unreferenced
    return replace(
        state,
        references=state.references.insert(partition, held)
        if len(held)
        else state.references.remove(partition),
        reference_counts=state.reference_counts.insert(shard, count),
        unreferenced=unreferenced if count else unreferenced.insert(shard, state.time_ms),
    )


def _push_down(state: TableState, partition: str, rows_left: dict[str, int]) -> TableState:
    """Move the free references of a split partition to its children, and on to the leaves.

    The shard's own least and greatest key decide which children hold its rows; where both do, the
    rows are shared by `rows_left` if the splitter knew them, else by halves.
    """
    children = state.partitions.get(partition).children
    if children is None:
        return state
    left, right = (state.partitions.get(child) for child in children)
    for reference in state.references_in(partition):
        if reference.job is not None:
            continue
        shard = state.shards[reference.shard]
        in_left = left.range.overlaps_span(shard.min_key, shard.max_key)
        in_right = right.range.overlaps_span(shard.min_key, shard.max_key)
        state = _drop_for_move(state, partition, shard.id)
        if in_left and in_right:
            share = min(max(rows_left.get(shard.id, reference.rows // 2), 0), reference.rows)
            halves = ((left.id, share), (right.id, reference.rows - share))
            for child, rows in halves:
                state = _put(state, replace(reference, partition=child, rows=rows, exact=False))
        else:
            child = left.id if in_left else right.id
            state = _put(state, replace(reference, partition=child))
    for child in children:
        state = _push_down(state, child, {})
    return state


def _drop_for_move(state: TableState, partition: str, shard: str) -> TableState:
    """Drop a reference whose rows stay in the table: the shard is not garbage in between."""
    moved = _drop(state, partition, shard)
    return replace(moved, unreferenced=state.unreferenced)
