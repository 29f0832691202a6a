"""The fold: the only code that makes one table state from another.

Live commits, replay, snapshots, tests and simulation all use it. An entry that breaks a rule
changes nothing except the version, and its verdict says why. An entry that was applied before
changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dormouse.fold.conservation import open_disputes, record_taken, resolve_disputes
from dormouse.fold.restoring import restore_violations, restored
from dormouse.fold.rules import Violation, violations
from dormouse.fold.validation import entry_violations
from dormouse.keys.ranges import Key
from dormouse.model.disputes import RowsTaken
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Job, NewShard, PartitionReferences, Reference, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeShards,
    Entry,
    ExtendTree,
    InitialisePartitions,
    RaiseRules,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreVersion,
    SealSources,
    SplitPartition,
    transaction_id,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fold's verdict on an entry: applied, `repeated` (applied before), or rejected by
    rules.
    """

    violations: tuple[Violation, ...] = ()
    repeated: bool = False


def apply(
    state: TableState, entry: Entry, earlier: TableState | None = None
) -> tuple[TableState, Verdict]:
    """Return the state after `entry`, and the verdict on the entry. The log sets the version.

    `earlier` is the version that `entry` restores, if it restores one.

    There is a verdict for every entry that can be written or read, whatever it contains. Readers of
    logs (`statestore.log.reader`) have checked before that this release knows the rules of the
    state.
    """
    same_generation = entry.generation == state.generation
    judged = same_generation or isinstance(entry.transaction, ResetTable | RestoreVersion)
    # Keys of another generation may have other types; `violations` reports the generation.
    if broken := entry_violations(entry, state.key_types if judged else ()):
        return state, Verdict(broken)
    now_ms = max(state.time_ms, entry.time_ms)  # the time of a state never goes back
    name = transaction_id(entry.transaction)
    if same_generation and state.has_committed(name, now_ms):
        return state, Verdict(repeated=True)
    if broken := violations(state, entry) or _restore_violations(state, entry, earlier):
        return state, Verdict(broken)
    changed = _changed(replace(state, time_ms=now_ms), entry, earlier or TableState())
    return replace(changed, transactions=changed.transactions.insert(name, now_ms)), Verdict()


def _restore_violations(
    state: TableState, entry: Entry, earlier: TableState | None
) -> tuple[Violation, ...]:
    match entry.transaction:
        case RestoreVersion() as restore:
            return tuple(restore_violations(state, restore, earlier))
        case _:
            return ()


def _changed(  # noqa: C901  # a case a kind
    state: TableState, entry: Entry, earlier: TableState
) -> TableState:
    match entry.transaction:
        case InitialisePartitions(partitions=partitions, key_types=key_types, rules=rules):
            tree = PartitionTree.of(partitions)
            return replace(state, partitions=tree, key_types=key_types, rules=rules)
        case RaiseRules(rules=rules):
            return replace(state, rules=rules)
        case AddShards(shards=shards, sources=sources):
            known = state.sources.update(dict.fromkeys(sources, state.version + 1))
            return replace(_add(state, shards), sources=known)
        case AssignJob(job=job, partition=partition, inputs=inputs) as wanted:
            cause = wanted.purge_id, wanted.request_key
            assigned = Job(job, partition, inputs, state.time_ms, *cause)
            marked = _mark(state, assigned, job)
            return replace(marked, jobs=state.jobs.insert(job, assigned))
        case ReleaseJob(job=job):
            return _release(state, job)
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs) as done:
            rows, span = dict(done.rows_taken), state.partitions.get(partition).range
            for shard in inputs:
                dropped = _drop(state, partition, shard)
                state = record_taken(
                    dropped, shard, RowsTaken(job, partition, rows.get(shard), span)
                )
            return replace(_add(state, outputs), jobs=state.jobs.remove(job))
        case SplitPartition(partition=partition, at=at, rows_left=rows_left):
            return _split(state, partition, at, dict(rows_left))
        case ExtendTree(splits=splits):
            for partition, at in splits:
                state = _split(state, partition, at, {})
            return state
        case DeleteShards() | DisputeShards() | ResolveDisputes():
            return _delete_or_dispute(state, entry.transaction)
        case SealSources(segment=segment, replaced=replaced):
            return _seal(state, segment, len(replaced))
        case AdoptSegments(segments=segments):
            return replace(state, adopted_segments=segments)
        case ResetTable(generation=generation, partitions=partitions, key_types=key_types):
            tree = PartitionTree.of(partitions)
            return state.reset(generation, tree, key_types or state.key_types)
        case RestoreVersion(generation=generation):
            for job in sorted(earlier.jobs):
                earlier = _release(earlier, job)
            return restored(state, earlier, generation)


def _release(state: TableState, job: str) -> TableState:
    released = state.jobs[job]
    free = replace(_mark(state, released, None), jobs=state.jobs.remove(job))
    return _push_down(free, released.partition, {})


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
            placed = Reference(partition, shard.id, rows)
            for reference in _on_leaves(state.partitions, placed, shard, {}):
                state = _put(state, reference)
    return state


def _split(state: TableState, partition: str, at: Key, rows_left: Mapping[str, int]) -> TableState:
    """Return the state with a leaf split. Partitions that still hold references are not rotated
    away.
    """
    tree = state.partitions.split_without_balancing(partition, at)
    moved = _push_down(replace(state, partitions=tree), partition, rows_left)
    return replace(moved, partitions=moved.partitions.rebalanced(partition, moved.references))


def _delete_or_dispute(
    state: TableState, transaction: DeleteShards | DisputeShards | ResolveDisputes
) -> TableState:
    match transaction:
        case DeleteShards(shards=shards):
            return _delete(state, shards)
        case DisputeShards(shards=shards, reason=reason, job=job):
            return open_disputes(state, shards, reason, job)
        case ResolveDisputes(disputes=disputes):
            return resolve_disputes(state, (shard for shard, _ in disputes))


def _delete(state: TableState, shards: Iterable[str]) -> TableState:
    for shard in shards:
        state = replace(
            state,
            shards=state.shards.remove(shard),
            unreferenced=state.unreferenced.discard(shard),
            reference_counts=state.reference_counts.discard(shard),
        )
    return state


def _seal(state: TableState, segment: SourceSegment, replaced: int) -> TableState:
    kept = state.source_segments[: len(state.source_segments) - replaced]
    return replace(
        state,
        sources=state.sources.retain(lambda at: at > segment.up_to),
        sealed_to=segment.up_to,
        source_segments=(*kept, segment),
    )


def _mark(state: TableState, job: Job, mark: str | None) -> TableState:
    held = state.references[job.partition]
    for shard in job.inputs:
        held = held.insert(replace(held.by_shard[shard], job=mark))
    return _hold(state, job.partition, held)


def _put(state: TableState, reference: Reference) -> TableState:
    held = state.references.get(reference.partition, PartitionReferences())
    count = state.reference_counts.get(reference.shard, 0) + 1
    return replace(
        _hold(state, reference.partition, held.insert(reference)),
        reference_counts=state.reference_counts.insert(reference.shard, count),
        unreferenced=state.unreferenced.discard(reference.shard),
    )


def _drop(state: TableState, partition: str, shard: str) -> TableState:
    held = state.references[partition].discard(shard)
    count = state.reference_counts[shard] - 1
    unreferenced = state.unreferenced
    return replace(
        _hold(state, partition, held),
        reference_counts=state.reference_counts.insert(shard, count),
        unreferenced=unreferenced if count else unreferenced.insert(shard, state.time_ms),
    )


def _hold(state: TableState, partition: str, held: PartitionReferences) -> TableState:
    """Return the state in which `partition` has other references, with the totals adjusted."""
    before = state.references.get(partition, PartitionReferences())
    references = state.references
    return replace(
        state,
        references=references.insert(partition, held) if held else references.discard(partition),
        rows=state.rows + held.rows - before.rows,
        reference_count=state.reference_count + len(held) - len(before),
    )


def _push_down(state: TableState, partition: str, rows_left: Mapping[str, int]) -> TableState:
    """Move the free references of a partition to the leaves below it, if it is split."""
    if state.partitions.get(partition).is_leaf:
        return state
    for reference in state.references_in(partition):
        if reference.job is None:
            shard = state.shards[reference.shard]
            dropped = _drop(state, partition, shard.id)
            # Its rows stay in the table, so the shard does not become garbage.
            state = replace(dropped, unreferenced=state.unreferenced)
            for moved in _on_leaves(state.partitions, reference, shard, rows_left):
                state = _put(state, moved)
    return state


def _on_leaves(
    tree: PartitionTree, reference: Reference, shard: Shard, rows_left: Mapping[str, int]
) -> Iterator[Reference]:
    """Yield the references on leaves that replace a reference on a partition that may be split.

    The shard's least and greatest key decide which children hold its rows. If both do, the rows are
    divided by `rows_left`, if the splitter of `reference.partition` counted them, else in half.

    Example: a shard of 9 rows with keys from a to z lies on a partition split at m, whose right
    half is split at t. With rows_left 5, the leaves get 5, then 2 of the other 4, then 2, all as
    estimates. A shard with keys from a to c moves to the left leaf whole, and stays exact.
    """
    pending = [reference]
    while pending:
        upper = pending.pop()
        children = tree.get(upper.partition).children
        if children is None:
            yield upper
            continue
        left, right = (tree.get(child) for child in children)
        in_left = left.range.overlaps_span(shard.min_key, shard.max_key)
        in_right = right.range.overlaps_span(shard.min_key, shard.max_key)
        if in_left and in_right:
            counted = rows_left.get(shard.id) if upper is reference else None
            share = min(upper.rows // 2 if counted is None else counted, upper.rows)
            halves = ((right.id, upper.rows - share), (left.id, share))
            pending += [replace(upper, partition=p, rows=n, exact=False) for p, n in halves]
        else:
            pending.append(replace(upper, partition=left.id if in_left else right.id))
