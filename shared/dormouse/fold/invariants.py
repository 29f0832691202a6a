"""What is true of every state of a table, as predicates that say what is broken.

A state lies over a base that was sound when it was stored. So it is enough to check what changed
since, and what that touches; the cost depends on the changes, not on the size of the table. A whole
check treats all of the state as changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from dormouse.keys.ranges import KeyRange
from dormouse.model.overlay_map import K, OverlayMap, V
from dormouse.model.partitions import ROOT, Partition, PartitionTree, partition_id_of
from dormouse.model.shards import PartitionReferences, Reference
from dormouse.model.state import TableState


def broken_invariants(state: TableState, *, whole: bool = False) -> list[str]:
    """Return a sentence for each invariant that `state` breaks; none for a sound state.

    Checks what changed since the base of the state, or the `whole` state.
    """
    if not len(state.partitions):
        return ["rows without partitions"] if len(state.shards) or len(state.jobs) else []
    return [
        *broken_tree(state.partitions, whole=whole),
        *_broken_references(state, whole),
        *_broken_jobs(state, whole),
        *_broken_counts(state, whole),
        *_broken_takings(state, whole),
        *(_broken_totals(state) if whole else ()),
    ]


def broken_tree(tree: PartitionTree, *, whole: bool = False) -> list[str]:
    """Return a sentence for each way in which the partitions fail to tile the key space.

    If every partition fits its parent and its children, and only the root has no parent, the
    partitions form a tree. They cannot form a loop, since ranges grow towards the root.
    """
    if ROOT not in tree:
        return ["there is no root partition"]
    broken = []
    if tree.get(ROOT).range != KeyRange():
        broken.append("the root does not span the key space")
    for partition_id in _touched(tree, whole):
        partition = tree.by_id.get(partition_id)
        if partition is not None:
            broken += [*_broken_parent(tree, partition), *_broken_children(tree, partition)]
    return broken


def _touched(tree: PartitionTree, whole: bool) -> set[str]:
    """Return the partitions that may no longer fit: those that changed, and their neighbours in the
    tree before and after the change.
    """
    touched: set[str] = set()
    for partition_id in _changed(tree.by_id, whole):
        before = None if whole else tree.by_id.base.get(partition_id)
        for partition in (before, tree.by_id.get(partition_id)):
            if partition is not None:
                touched.update((partition.id, partition.parent or ROOT))
                touched.update(partition.children or ())
    return touched


def _broken_parent(tree: PartitionTree, partition: Partition) -> Iterator[str]:
    if partition.id != partition_id_of(partition.range):
        yield f"partition {partition.id} has an id that does not follow from its range"
    if partition.parent is None:
        if partition.id != ROOT:
            yield f"partition {partition.id} cannot be reached from the root"
        return
    parent = tree.by_id.get(partition.parent)
    if partition.id == ROOT:
        yield "the root has a parent"
    elif parent is None or partition.id not in (parent.children or ()):
        yield f"partition {partition.id} cannot be reached from the root"


def _broken_children(tree: PartitionTree, partition: Partition) -> Iterator[str]:
    if partition.children is None:
        if partition.height:
            yield f"partition {partition.id} has no children, but a height"
        return
    left, right = (tree.by_id.get(child) for child in partition.children)
    if left is None or right is None:
        yield f"partition {partition.id} lacks a child"
        return
    middle = left.range.high
    if (
        middle is None
        or (left.range.low, right.range.high) != (partition.range.low, partition.range.high)
        or right.range.low != middle
        or left.range.is_empty()
        or right.range.is_empty()
    ):
        yield f"the children of partition {partition.id} do not tile it"
    if partition.height != 1 + max(left.height, right.height):
        yield f"partition {partition.id} has a height that does not follow from its children"
    if (left.parent, right.parent) != (partition.id, partition.id):
        yield f"a child of partition {partition.id} does not know its parent"


def _broken_references(state: TableState, whole: bool) -> Iterator[str]:
    gone = (p for p in _changed(state.partitions.by_id, whole) if p not in state.partitions)
    for partition_id in {*_changed(state.references, whole), *gone}:
        held = state.references.get(partition_id, PartitionReferences())
        if partition_id not in state.partitions:
            if held:
                yield f"there are references in partition {partition_id}, which is unknown"
            continue
        above = [state.references.get(a) for a in state.partitions.ancestors(partition_id)]
        holding_above = [h for h in above if h]
        partition = state.partitions.get(partition_id)
        for reference in held:
            yield from _broken_reference(state, partition, reference)
            if any(reference.shard in h.by_shard for h in holding_above):
                yield f"rows of shard {reference.shard} are referenced twice"
        rows = sum(reference.rows for reference in held)
        free = sum(reference.job is None for reference in held)
        if (rows, free) != (held.rows, held.free):
            yield f"the references in partition {partition_id} are miscounted"


def _broken_reference(
    state: TableState, partition: Partition, reference: Reference
) -> Iterator[str]:
    name = f"the reference of shard {reference.shard} in partition {reference.partition}"
    shard = state.shards.get(reference.shard)
    if reference.partition != partition.id:
        yield f"{name} is stored under partition {partition.id}"
    if shard is None:
        yield f"{name} has no shard"
    elif not partition.range.overlaps_span(shard.low, shard.high):
        yield f"{name} is outside the shard's keys"
    if not partition.is_leaf and reference.job is None:
        yield f"{name} is free on a split partition"
    if reference.job is not None and reference.job not in state.jobs:
        yield f"shard {reference.shard} is assigned to job {reference.job}, which is unknown"


def _broken_jobs(state: TableState, whole: bool) -> Iterator[str]:
    """Check the inputs of jobs; a job can lose an input only by a change in its partition."""
    for job in state.jobs.values():
        if whole or job.partition in state.references.changes:
            for shard in job.inputs:
                held = state.reference(job.partition, shard)
                if held is None or held.job != job.id:
                    yield f"job {job.id} has lost its input {shard}"


def _broken_counts(state: TableState, whole: bool) -> Iterator[str]:
    """Check that the reference count of each shard changed by as much as its references did."""
    grown: Counter[str] = Counter()
    for partition_id in _changed(state.references, whole):
        held = state.references.get(partition_id, PartitionReferences())
        before = _before(state.references, partition_id, whole, PartitionReferences())
        grown.update(reference.shard for reference in held)
        grown.subtract(reference.shard for reference in before)
    touched = set(grown)
    touched.update(_changed(state.shards, whole), _changed(state.unreferenced, whole))
    touched.update(_changed(state.reference_counts, whole))
    for shard in touched:
        kept = state.reference_counts.get(shard, 0)
        found = _before(state.reference_counts, shard, whole, 0) + grown[shard]
        if found != kept:
            yield f"shard {shard} has {found} references but {kept} are counted"
        if shard not in state.shards:
            if kept or shard in state.unreferenced:
                yield f"shard {shard} is counted or listed for collection but unknown"
        elif (kept == 0) != (shard in state.unreferenced):
            yield f"shard {shard} has {kept} references and is wrongly listed for collection"


def _broken_takings(state: TableState, whole: bool) -> Iterator[str]:
    """Check that counts of rows taken are kept only while rows are left to take, or for a
    dispute.
    """
    for shard_id in {*_changed(state.taken, whole), *_changed(state.shards, whole)}:
        takings, shard = state.taken.get(shard_id, ()), state.shards.get(shard_id)
        if not takings:
            continue
        if shard is None:
            yield f"rows were taken of shard {shard_id}, which is unknown"
            continue
        if not state.reference_counts.get(shard_id, 0) and shard_id not in state.disputed:
            yield f"all rows of shard {shard_id} were taken, yet the counts are still stored"
        if any(
            taking.rows is not None and not 0 <= taking.rows <= shard.rows for taking in takings
        ):
            yield f"a job took more rows from shard {shard_id} than it has"
        if len({taking.partition for taking in takings}) < len(takings):
            yield f"rows of shard {shard_id} were taken twice in one partition"
    for shard_id in {*_changed(state.disputed, whole), *_changed(state.shards, whole)}:
        if shard_id in state.disputed and shard_id not in state.shards:
            yield f"shard {shard_id} is disputed but unknown"


def _broken_totals(state: TableState) -> Iterator[str]:
    held = [(len(held), held.rows) for held in state.references.values()]
    references, rows = sum(count for count, _ in held), sum(rows for _, rows in held)
    if (references, rows) != (state.reference_count, state.rows):
        yield (
            f"the table has {references} references and {rows} rows but "
            f"{state.reference_count} and {state.rows} are counted"
        )


def _changed(entries: OverlayMap[K, V], whole: bool) -> Iterable[K]:
    """Return the keys whose entries are to be checked; some may have been deleted."""
    return entries if whole else entries.changes


def _before(entries: OverlayMap[K, V], key: K, whole: bool, default: V) -> V:
    """Return the value in the base. A whole check starts from an empty base."""
    value = None if whole else entries.base.get(key)
    return default if value is None else value
