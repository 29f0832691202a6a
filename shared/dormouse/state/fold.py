"""The fold: the only code that makes one table state from another.

Live commits, replay, snapshots, tests and simulation all use it. An entry that breaks a rule
changes nothing except the version, and its verdict says why. An entry that was applied before
changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec
from rpds import HashTrieMap

from dormouse.state import state as changes
from dormouse.state.partitions import (
    Job,
    NewShard,
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.rules import Rule, Violation, violations
from dormouse.state.state import (
    Deletion,
    Dispute,
    DisputeReason,
    RowsTaken,
    SourceSegment,
    TableState,
)
from dormouse.state.validation import entry_violations


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on an entry: applied, `repeated` (applied before), or rejected by rules."""

    violations: tuple[Violation, ...] = ()
    repeated: bool = False


_APPLIED = Verdict()
_Held = Mapping[str, tuple[PartitionReferences, PartitionReferences]]
"""What partitions hold before a change and after it."""


def apply(
    state: TableState, entry: changes.Entry, earlier: TableState | None = None
) -> tuple[TableState, Verdict]:
    """Return the state after `entry`, and the verdict on the entry. The log sets the version.

    `earlier` is the version that `entry` restores, if it restores one.

    There is a verdict for every entry that can be written or read, whatever it contains.
    """
    same_generation = entry.generation == state.generation
    judged = same_generation or isinstance(entry.transaction, changes.ResetTable)
    # Keys of another generation may have other types; `violations` reports the generation.
    if broken := entry_violations(entry, state.key_types if judged else ()):
        return state, Verdict(broken)
    now_ms = max(state.time_ms, entry.time_ms)  # the time of a state never goes back
    name = changes.transaction_id(entry.transaction)
    if same_generation and state.has_committed(name, now_ms):
        return state, Verdict(repeated=True)
    broken = violations(state, entry)
    if not broken and isinstance(entry.transaction, changes.RestoreTable):
        broken = tuple(restore_violations(state, entry.transaction, earlier))
    if broken:
        return state, Verdict(broken)
    is_hiding = isinstance(entry.transaction, changes.HideRows)
    longer_ms = changes.HIDING_RETENTION_MS - changes.TRANSACTION_RETENTION_MS if is_hiding else 0
    transactions = state.transactions.insert(name, now_ms + longer_ms)
    start = replace(state, time_ms=now_ms, transactions=transactions)
    after = _changed(start, entry, earlier or TableState())
    if after.generation != state.generation:  # it has forgotten the transactions before it
        after = replace(after, transactions=after.transactions.insert(name, now_ms))
    return after, _APPLIED


def _changed(  # noqa: C901  # a case a kind
    state: TableState, entry: changes.Entry, earlier: TableState
) -> TableState:
    match entry.transaction:
        case changes.InitialisePartitions(splits=splits, key_types=key_types):
            tree = PartitionTree.from_splits(splits)
            return replace(state, partitions=tree, key_types=key_types)
        case changes.AddShards(shards=shards, sources=sources, deletion=deletion):
            versions = dict.fromkeys(sources, state.version + 1)
            sources_after = state.sources.put(versions, new=len(versions))
            if deletion is not None:  # it hides no row of the shards, which have its number
                state = _hide(state, deletion)
            number = next_number(state) if shards and deletion is None else state.last_number
            # of a copy, the clock of the source may have been ahead of this one
            last = max([number, *(new.shard.sequence for new in shards)])
            new_shards = [_added(new, number, state.version + 1) for new in shards]
            return _add(state, new_shards, sources=sources_after, last_number=last)
        case changes.AssignJob(job=job, partition=partition, inputs=inputs) as wanted:
            cause = wanted.purge_id, wanted.request_key
            facts = state.last_number, _takes_all(state, partition, inputs)
            assigned = Job(job, partition, inputs, state.time_ms, *cause, *facts)
            whole = _join(state, partition, inputs)
            return _mark(whole, assigned, job, state.jobs.insert(job, assigned))
        case changes.ReleaseJob(job=job):
            return _release(state, job)
        case changes.ReplaceShards(job, partition, inputs, outputs) as done:
            rows, span = dict(done.rows_taken), state.partitions.get(partition).range
            results = [_numbered(new, sequence=state.jobs[job].sequence) for new in outputs]
            counts = {shard: RowsTaken(job, partition, rows.get(shard), span) for shard in inputs}
            smaller = _drop(state, ((partition, shard) for shard in inputs))
            state = record_taken(smaller, counts)
            return _add(state, results, jobs=state.jobs.remove(job))
        case changes.SplitPartition(partition=partition, at=at, rows_left=rows_left):
            return _split(state, partition, at, dict(rows_left))
        case changes.ExtendTree(splits=splits):
            for partition, at in splits:
                state = _split(state, partition, at, {})
            return state
        case changes.DeleteShards(shards=names):
            return _delete(state, names)
        case changes.DisputeShards(shards=names, reason=reason, job=job):
            return open_disputes(state, names, reason, job)
        case changes.ResolveDisputes(disputes=disputes):
            return resolve_disputes(state, (shard for shard, _ in disputes))
        case changes.HideRows(deletion=deletion):
            return _hide(state, deletion)
        case changes.ForgetDeletions(numbers=numbers):
            rest = tuple(each for each in state.deletions if each.number not in numbers)
            return replace(state, deletions=rest)
        case changes.SealSources(segment=segment, replaced=replaced):
            return _seal(state, segment, len(replaced))
        case changes.AdoptSegments(segments=segments):
            return replace(state, adopted_segments=segments)
        case changes.ResetTable(generation=generation, splits=splits, key_types=key_types):
            tree = PartitionTree.from_splits(splits)
            return state.reset(generation, tree, key_types or state.key_types)
        case changes.RestoreTable(generation=generation):
            for job in sorted(earlier.jobs):
                earlier = _release(earlier, job)
            return restored(state, earlier, generation)


def _release(state: TableState, job: str) -> TableState:
    released = state.jobs[job]
    free = _mark(state, released, None, state.jobs.remove(job))
    return _push_down(free, released.partition, {})


def _takes_all(state: TableState, partition: str, inputs: Sequence[str]) -> bool:
    """Return whether no other shard than the inputs can have rows of a leaf's keys."""
    above = any(each in state.references for each in state.partitions.ancestors(partition))
    is_leaf = state.partitions.get(partition).is_leaf
    return is_leaf and not above and len(state.references[partition].by_shard) == len(inputs)


def _hide(state: TableState, deletion: Deletion) -> TableState:
    """Return the state with a deletion, which gets the next number unless it has a lesser one."""
    number = next_number(state)
    own = min(deletion.number or number, number)
    numbered_deletion = msgspec.structs.replace(deletion, number=own, time_ms=state.time_ms)
    return replace(state, deletions=(*state.deletions, numbered_deletion), last_number=number)


def _numbered(new: NewShard, **facts: int) -> NewShard:
    """Return a new shard with other facts of what added its rows."""
    change = msgspec.structs.replace
    return change(new, shard=change(new.shard, **facts))


def _added(new: NewShard, number: int, version: int) -> NewShard:
    """Return a new shard as the commit with this number and version adds it; one of a copy or a
    rebuild stays as it was.
    """
    return new if new.shard.sequence else _numbered(new, sequence=number, version=version)


def next_number(state: TableState) -> int:
    """Return the number of the commit that follows a state: its time in milliseconds if that is
    later than the number before. So numbers ascend, and a rebuild, which knows times alone, orders
    what was written with them.
    """
    return max(state.last_number + 1, state.time_ms)


def _add(state: TableState, shards: Iterable[NewShard], **others: Any) -> TableState:
    """Return the state with new shards and their references, and with `others` of its fields."""
    tree, new_shards, counts = state.partitions, dict[str, Shard](), dict[str, int]()
    references_by_partition: dict[str, dict[str, Reference]] = {}
    for new in shards:
        shard, count = new.shard, 0
        for partition, rows in new.rows_by_partition:
            direct = Reference(partition, shard.id, rows)
            is_leaf = tree.get(partition).is_leaf  # as most are
            for reference in (direct,) if is_leaf else _on_leaves(tree, direct, shard, {}):
                references_by_partition.setdefault(reference.partition, {})[shard.id] = reference
                count += 1
        new_shards[shard.id], counts[shard.id] = shard, count
    # The rules found that these shards are new, so they have no references and no counts yet.
    none, both = PartitionReferences(), {}
    for partition, references in references_by_partition.items():
        before = state.references.get(partition, none)
        both[partition] = before, before.add(references)
    return _hold(
        state,
        both,
        shards=state.shards.put(new_shards, new=len(new_shards)),
        reference_counts=state.reference_counts.put(counts, new=len(counts)),
        **others,
    )


def _split(
    state: TableState, partition: str, at: bytes, rows_left: Mapping[str, int]
) -> TableState:
    """Return the state with a leaf split. Partitions that hold references are not rotated away."""
    tree = state.partitions.split_without_balancing(partition, at)
    lower = _push_down(replace(state, partitions=tree), partition, rows_left)
    return replace(lower, partitions=lower.partitions.rebalanced(partition, lower.references))


def _delete(state: TableState, shards: Iterable[str]) -> TableState:
    ids = tuple(shards)
    return replace(
        state,
        shards=state.shards.discard(*ids),
        unreferenced=state.unreferenced.discard(*ids),
        reference_counts=state.reference_counts.discard(*ids),
    )


def _seal(state: TableState, segment: SourceSegment, replaced: int) -> TableState:
    earlier = state.source_segments[: len(state.source_segments) - replaced]
    return replace(
        state,
        sources=state.sources.retain(lambda at: at > segment.up_to),
        sealed_to=segment.up_to,
        source_segments=(*earlier, segment),
    )


def _mark(state: TableState, job: Job, mark: str | None, jobs: HashTrieMap[str, Job]) -> TableState:
    references = state.references[job.partition]
    marked = (references.reference(shard).held_by(mark) for shard in job.inputs)
    return _hold(state, {job.partition: (references, references.insert(*marked))}, jobs=jobs)


def _put(state: TableState, references: Sequence[Reference]) -> TableState:
    """Return the state with references to shards added that it has already."""
    counts = Counter(reference.shard for reference in references)
    for shard in counts:
        counts[shard] += state.reference_counts.get(shard, 0)
    return _hold(
        state,
        _with(state, references),
        reference_counts=state.reference_counts.update(counts),
        unreferenced=state.unreferenced.discard(*counts),
    )


def _with(state: TableState, references: Iterable[Reference]) -> _Held:
    """Return what partitions hold before and after references are added to them."""
    by_partition: dict[str, list[Reference]] = {}
    for reference in references:
        by_partition.setdefault(reference.partition, []).append(reference)
    none, both = PartitionReferences(), {}
    for partition, more in by_partition.items():
        before = state.references.get(partition, none)
        both[partition] = before, before.insert(*more)
    return both


def _drop(state: TableState, pairs: Iterable[tuple[str, str]]) -> TableState:
    """Return the state without some references, each named by its partition and its shard."""
    by_partition: dict[str, list[str]] = {}
    for partition, shard in pairs:
        by_partition.setdefault(partition, []).append(shard)
    drops = Counter(shard for shards in by_partition.values() for shard in shards)
    counts = {shard: state.reference_counts[shard] - count for shard, count in drops.items()}
    unreferenced = {shard: state.time_ms for shard, count in counts.items() if not count}
    present = {partition: state.references[partition] for partition in by_partition}
    return _hold(
        state,
        {name: (before, before.discard(*by_partition[name])) for name, before in present.items()},
        reference_counts=state.reference_counts.update(counts),
        unreferenced=state.unreferenced.update(unreferenced),
    )


def _move(
    state: TableState, references: Iterable[Reference], targets: Sequence[Reference]
) -> TableState:
    """Return the state with references to the same rows in other partitions."""
    smaller = _drop(state, ((each.partition, each.shard) for each in references))
    # Their rows stay in the table, so no shard becomes garbage.
    return _put(replace(smaller, unreferenced=state.unreferenced), targets)


def _join(state: TableState, partition: str, shards: Iterable[str]) -> TableState:
    """Return the state in which a split partition has the references to shards below it.

    Example: shard s has 6 rows in the left half of a partition and 3 in the right one. The two
    references become one of 9 rows on the partition. Its release divides them again (`_push_down`).
    """
    if state.partitions.get(partition).is_leaf:
        return state
    below = {shard: list(state.references_below(partition, shard)) for shard in shards}
    whole = [
        Reference(partition, shard, sum(r.rows for r in parts), all(r.exact for r in parts))
        for shard, parts in below.items()
    ]
    return _move(state, chain.from_iterable(below.values()), whole)


def _hold(state: TableState, both: _Held, **others: Any) -> TableState:
    """Return the state in which partitions hold other references than before, with the totals
    adjusted, and `others` of its fields: it has many, so it is made once.
    """
    rows, count, new = state.rows, state.reference_count, 0
    nonempty: dict[str, PartitionReferences] = {}
    for partition, (before, after) in both.items():
        count_before, count_after = len(before), len(after)
        rows += after.rows - before.rows
        count += count_after - count_before
        if count_after:
            nonempty[partition] = after
            new += not count_before
    references = state.references.put(nonempty, new=new)
    if len(nonempty) < len(both):
        references = references.discard(*(p for p in both if p not in nonempty))
    return replace(state, references=references, rows=rows, reference_count=count, **others)


def _push_down(state: TableState, partition: str, rows_left: Mapping[str, int]) -> TableState:
    """Move the free references of a partition to the leaves below it, if it is split."""
    if state.partitions.get(partition).is_leaf:
        return state
    free = [r for r in state.references_in(partition) if r.job is None]
    if not free:
        return state
    targets = [
        lower
        for reference in free
        for lower in _on_leaves(
            state.partitions, reference, state.shards[reference.shard], rows_left
        )
    ]
    return _move(state, free, targets)


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
        in_left = left.range.overlaps_span(shard.low, shard.high)
        in_right = right.range.overlaps_span(shard.low, shard.high)
        if in_left and in_right:
            count = rows_left.get(shard.id) if upper is reference else None
            share = min(upper.rows // 2 if count is None else count, upper.rows)
            halves = ((right.id, upper.rows - share), (left.id, share))
            pending += [replace(upper, partition=p, rows=n, exact=False) for p, n in halves]
        else:
            pending.append(replace(upper, partition=left.id if in_left else right.id))


def record_taken(state: TableState, taken: Mapping[str, RowsTaken]) -> TableState:
    """Return the state in which a job has taken its part of each shard, whose references in the
    job's partition are already removed.

    While a shard has other references, the count is kept. When the last reference is gone, all
    counts together must equal the shard's rows. If they do not, they are kept and the shard is
    disputed.

    Example: a shard of 10 rows lies in two partitions. The first job took 6, which is kept. If the
    second took 4, both counts are dropped and the shard is garbage. If it took 3, a row was lost:
    the shard stays, disputed as ROWS_LOST.
    """
    open_counts: dict[str, tuple[RowsTaken, ...]] = {}
    disputes: dict[str, Dispute] = {}
    for shard, taking in taken.items():
        takings = (*state.taken.get(shard, ()), taking)
        if state.reference_counts.get(shard, 0):
            open_counts[shard] = takings
        elif changes.is_conserved(takings, state.shards[shard].rows) is False:
            open_counts[shard] = takings
            # It replaces a dispute over bytes: a person who ends that one has not seen this one.
            disputes[shard] = Dispute(DisputeReason.ROWS_LOST, state.time_ms)
    complete = (shard for shard in taken if shard not in open_counts)
    return replace(
        state,
        taken=state.taken.update(open_counts).discard(*complete),
        disputed=state.disputed.update(disputes),
    )


def open_disputes(
    state: TableState, shards: Iterable[str], reason: DisputeReason, job: str
) -> TableState:
    """Return the state in which shards are disputed; where one already is, `job` is added."""
    disputes = state.disputed
    for shard in shards:
        dispute = disputes.get(shard) or Dispute(reason, state.time_ms)
        jobs = (*dispute.jobs, job) if job not in dispute.jobs else dispute.jobs
        disputes = disputes.insert(shard, replace(dispute, jobs=jobs[: changes.MAX_JOBS_NAMED]))
    return replace(state, disputed=disputes)


def resolve_disputes(state: TableState, shards: Iterable[str]) -> TableState:
    """Return the state in which shards are no longer disputed.

    For shards without references, the delay before deletion starts now, so that a mistake can still
    be undone. For the others, the counts of rows taken so far are kept, and more follow.
    """
    for shard in shards:
        state = replace(state, disputed=state.disputed.discard(shard))
        if shard in state.unreferenced:
            state = replace(
                state,
                unreferenced=state.unreferenced.insert(shard, state.time_ms),
                taken=state.taken.discard(shard),
            )
    return state


def restore_violations(
    state: TableState, restore: changes.RestoreTable, earlier: TableState | None
) -> Iterator[Violation]:
    """Yield every reason why `state` cannot go back to `earlier`, the snapshot of the version.

    Only shards that the table still has can come back. A shard that was deleted never does, and a
    reset leaves none, so nothing comes back across it.
    """
    name = f"version {restore.version}"
    if earlier is None or earlier.version != restore.version or earlier.version > state.version:
        yield Violation(Rule.NOT_THE_VERSION, name)
        return
    if earlier.key_types != state.key_types:
        yield Violation(Rule.KEY_TYPES_UNFIT, name)
    for shard, references in earlier.reference_counts.items():
        if references and state.shards.get(shard) != earlier.shards[shard]:
            yield Violation(Rule.SHARD_MISSING, shard)


def restored(state: TableState, earlier: TableState, generation: int) -> TableState:
    """Return the start of a generation with the rows and sources of `earlier`, which has no jobs.

    Which shards there are, which are disputed, and since when others have been without references,
    is known by `state`: it is true of the objects, whichever version is the newest.
    """
    counts, unreferenced = earlier.reference_counts, state.unreferenced
    for shard in earlier.shards:
        if shard not in state.shards:
            counts = counts.discard(shard)
    for shard in state.shards:
        if counts.get(shard, 0):
            unreferenced = unreferenced.discard(shard)
        elif shard not in unreferenced:
            unreferenced = unreferenced.insert(shard, state.time_ms)
        if shard not in counts:
            counts = counts.insert(shard, 0)
    return replace(
        earlier,
        version=state.version,
        time_ms=state.time_ms,
        generation=generation,
        shards=state.shards,
        reference_counts=counts,
        unreferenced=unreferenced,
        taken=_taken(state, earlier, counts),
        disputed=state.disputed,
        transactions=OverlayMap(),
        last_number=state.last_number,
    )


def _taken(
    state: TableState, earlier: TableState, counts: OverlayMap[str, int]
) -> OverlayMap[str, tuple[RowsTaken, ...]]:
    """Return the counts of rows taken from shards that have references again, and the evidence of
    disputes over the others.
    """
    takings_by_shard = earlier.taken
    for shard in earlier.taken:
        if not counts.get(shard, 0):
            takings_by_shard = takings_by_shard.discard(shard)
    for shard in state.disputed:
        if not counts.get(shard, 0) and (takings := state.taken.get(shard)):
            takings_by_shard = takings_by_shard.insert(shard, takings)
    return takings_by_shard
