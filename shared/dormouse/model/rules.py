"""When a transaction may be applied: every precondition, as data.

The rules follow the operations of GCHQ's Sleeper state store and its exceptions; here each broken
rule is a `Violation` that names what broke it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dormouse.model.invariants import broken_tree
from dormouse.model.keys import Key
from dormouse.model.partitions import PartitionTree, child_ids
from dormouse.model.shards import NewShard
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AssignJob,
    ClearTable,
    DisputeShards,
    Entry,
    ExtendTree,
    ForgetShards,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    SettleDisputes,
    SplitPartition,
)


class Rule(Enum):
    """The rule which a transaction broke; the value is a sentence about its subject."""

    STALE_GENERATION = "the table was cleared since this was queued"
    ALREADY_INITIALISED = "the table has partitions already"
    INVALID_TREE = "the partitions do not form a tree whose leaves tile the key space"
    SOURCE_INGESTED = "the source was ingested already"
    SHARD_EXISTS = "the shard exists already"
    SHARD_MISSING = "there is no such shard"
    SHARD_REFERENCED = "the shard is still referenced"
    SHARD_DISPUTED = "the shard is disputed"
    DISPUTE_MISSING = "the shard is not disputed, or since another time"
    SHARD_EMPTY = "the shard has no rows or no partition"
    PARTITION_MISSING = "there is no such partition"
    PARTITION_SPLIT = "the partition was split already"
    OUTSIDE_PARTITION = "the shard has keys outside its partition"
    ROWS_COUNTED_TWICE = "the shard's references overlap"
    ROWS_MISCOUNTED = "the rows of the shard's references do not add up to its rows"
    REFERENCE_MISSING = "the shard has no reference in the partition"
    REFERENCE_ASSIGNED = "the reference is the input of another job"
    REFERENCE_NOT_ASSIGNED = "the reference is not an input of this job"
    NO_INPUTS = "a job needs at least one input, each once"
    JOB_EXISTS = "the job exists already"
    JOB_MISSING = "there is no such job"
    NO_SPLITS = "there is nothing to split"
    SPLIT_OUTSIDE_PARTITION = "the split key does not lie strictly within the partition"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the id (source, shard, partition, job) that broke it."""

    rule: Rule
    subject: str

    def __str__(self) -> str:
        """Give it as a person reads it."""
        return f"{self.subject}: {self.rule.value}"


def violations(state: TableState, entry: Entry) -> tuple[Violation, ...]:
    """Give every reason why `entry` must not be applied to `state`; none means it may."""
    transaction = entry.transaction
    if isinstance(transaction, ClearTable):
        return tuple(_clear(state, transaction))
    if entry.generation != state.generation:
        return (Violation(Rule.STALE_GENERATION, f"generation {entry.generation}"),)
    match transaction:
        case InitialisePartitions():
            return tuple(_initialise(state, transaction))
        case AddShards():
            return tuple(_add(state, transaction, max(entry.time_ms, state.time_ms)))
        case AssignJob():
            return tuple(_assign(state, transaction))
        case ReleaseJob(job=job):
            return () if job in state.jobs else (Violation(Rule.JOB_MISSING, job),)
        case ReplaceShards():
            return tuple(_replace(state, transaction))
        case SplitPartition():
            return tuple(_split(state.partitions, transaction.partition, transaction.at))
        case ExtendTree():
            return tuple(_extend(state.partitions, transaction))
        case ForgetShards() | DisputeShards() | SettleDisputes():
            return tuple(_keep_or_forget(state, transaction))


def _clear(state: TableState, clear: ClearTable) -> Iterator[Violation]:
    if clear.generation <= state.generation:
        yield Violation(Rule.STALE_GENERATION, f"generation {clear.generation}")
    if broken_tree(PartitionTree.of(clear.partitions)):
        yield Violation(Rule.INVALID_TREE, "partitions")


def _initialise(state: TableState, initialise: InitialisePartitions) -> Iterator[Violation]:
    if len(state.partitions):
        yield Violation(Rule.ALREADY_INITIALISED, "partitions")
    if broken_tree(PartitionTree.of(initialise.partitions)):
        yield Violation(Rule.INVALID_TREE, "partitions")


def _add(state: TableState, add: AddShards, now_ms: int) -> Iterator[Violation]:
    for source in add.sources:
        if state.has_ingested(source, now_ms):
            yield Violation(Rule.SOURCE_INGESTED, source)
    yield from _new_shards(state, add.shards)


def _new_shards(state: TableState, shards: tuple[NewShard, ...]) -> Iterator[Violation]:
    seen: set[str] = set()
    for new in shards:
        shard = new.shard
        if shard.id in state.shards or shard.id in seen:
            yield Violation(Rule.SHARD_EXISTS, shard.id)
        seen.add(shard.id)
        if shard.rows <= 0 or not new.rows_by_partition or shard.max_key < shard.min_key:
            yield Violation(Rule.SHARD_EMPTY, shard.id)
        yield from _placement(state, new)


def _placement(state: TableState, new: NewShard) -> Iterator[Violation]:
    shard, placed = new.shard, [partition for partition, _ in new.rows_by_partition]
    missing = [p for p in placed if p not in state.partitions]
    for partition in missing:
        yield Violation(Rule.PARTITION_MISSING, partition)
    if missing:
        return
    for partition in placed:
        if not state.partitions.get(partition).range.overlaps_span(shard.min_key, shard.max_key):
            yield Violation(Rule.OUTSIDE_PARTITION, shard.id)
    if len(placed) > 1 and _overlap(state, placed):
        yield Violation(Rule.ROWS_COUNTED_TWICE, shard.id)
    counts = [rows for _, rows in new.rows_by_partition]
    if sum(counts) != shard.rows or min(counts, default=0) < 0:
        yield Violation(Rule.ROWS_MISCOUNTED, shard.id)


def _overlap(state: TableState, placed: list[str]) -> bool:
    above = {a for p in placed for a in state.partitions.ancestors(p)}
    return len(set(placed)) < len(placed) or bool(above.intersection(placed))


def _assign(state: TableState, assign: AssignJob) -> Iterator[Violation]:
    if assign.job in state.jobs:
        yield Violation(Rule.JOB_EXISTS, assign.job)
    if not assign.inputs or len(set(assign.inputs)) < len(assign.inputs):
        yield Violation(Rule.NO_INPUTS, assign.job)
    for shard in assign.inputs:
        reference = state.reference(assign.partition, shard)
        if reference is None:
            yield Violation(Rule.REFERENCE_MISSING, shard)
        elif reference.job is not None:
            yield Violation(Rule.REFERENCE_ASSIGNED, shard)


def _replace(state: TableState, done: ReplaceShards) -> Iterator[Violation]:
    job = state.jobs.get(done.job)
    if job is None:
        yield Violation(Rule.JOB_MISSING, done.job)
    elif set(job.inputs) != set(done.inputs) or job.partition != done.partition:
        yield Violation(Rule.REFERENCE_NOT_ASSIGNED, done.job)
    for shard in done.inputs:
        reference = state.reference(done.partition, shard)
        if reference is None:
            yield Violation(Rule.REFERENCE_MISSING, shard)
        elif reference.job != done.job:
            yield Violation(Rule.REFERENCE_NOT_ASSIGNED, shard)
    yield from _new_shards(state, done.outputs)
    if done.partition in state.partitions:
        span = state.partitions.get(done.partition).range
        for new in done.outputs:
            if not span.contains_span(new.shard.min_key, new.shard.max_key):
                yield Violation(Rule.OUTSIDE_PARTITION, new.shard.id)


def _split(tree: PartitionTree, partition_id: str, at: Key) -> Iterator[Violation]:
    if partition_id not in tree:
        yield Violation(Rule.PARTITION_MISSING, partition_id)
        return
    partition = tree.get(partition_id)
    if not partition.is_leaf or any(child in tree for child in child_ids(partition_id)):
        yield Violation(Rule.PARTITION_SPLIT, partition_id)
    elif not (partition.range.min < at and partition.range.contains(at)):
        yield Violation(Rule.SPLIT_OUTSIDE_PARTITION, partition_id)


def _extend(tree: PartitionTree, extend: ExtendTree) -> Iterator[Violation]:
    if not extend.splits:
        yield Violation(Rule.NO_SPLITS, "splits")
    for partition_id, at in extend.splits:
        broken = list(_split(tree, partition_id, at))
        yield from broken
        if not broken:
            tree = tree.split(partition_id, at, *child_ids(partition_id))


def _keep_or_forget(
    state: TableState, transaction: ForgetShards | DisputeShards | SettleDisputes
) -> Iterator[Violation]:
    match transaction:
        case ForgetShards():
            yield from _forget(state, transaction)
        case DisputeShards(shards=shards):
            for shard in shards:
                if shard not in state.shards:
                    yield Violation(Rule.SHARD_MISSING, shard)
        case SettleDisputes():
            yield from _settle(state, transaction)


def _forget(state: TableState, forget: ForgetShards) -> Iterator[Violation]:
    for shard in forget.shards:
        if shard not in state.shards:
            yield Violation(Rule.SHARD_MISSING, shard)
        elif state.reference_counts.get(shard, 0) > 0:
            yield Violation(Rule.SHARD_REFERENCED, shard)
        elif shard in state.disputed:
            yield Violation(Rule.SHARD_DISPUTED, shard)


def _settle(state: TableState, settle: SettleDisputes) -> Iterator[Violation]:
    for shard, since_ms in settle.disputes:
        dispute = state.disputed.get(shard)
        if dispute is None or dispute.since_ms != since_ms:
            yield Violation(Rule.DISPUTE_MISSING, shard)
