"""What is true of every state a table can be in, as plain predicates that say what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dormouse.model.keys import KeyRange
from dormouse.model.partitions import ROOT, PartitionTree
from dormouse.model.state import TableState


def broken_invariants(state: TableState) -> list[str]:
    """Give a sentence for each invariant that `state` breaks; none for a sound one."""
    if not len(state.partitions):
        return ["rows without partitions"] if len(state.shards) or len(state.jobs) else []
    return [
        *broken_tree(state.partitions),
        *_broken_references(state),
        *_broken_jobs(state),
        *_broken_counts(state),
    ]


def broken_tree(tree: PartitionTree) -> list[str]:
    """Give a sentence for each way in which the partitions fail to tile the key space."""
    if ROOT not in tree:
        return ["there is no root partition"]
    root = tree.get(ROOT)
    broken = []
    if root.range != KeyRange() or root.parent is not None:
        broken.append("the root does not span the key space")
    reached, pending = 0, [root]
    while pending:
        partition = pending.pop()
        reached += 1
        if partition.children is None:
            continue
        if any(child not in tree for child in partition.children):
            broken.append(f"partition {partition.id} lacks a child")
            continue
        left, right = (tree.get(child) for child in partition.children)
        middle = left.range.max
        if (
            middle is None
            or (left.range.min, right.range.max) != (partition.range.min, partition.range.max)
            or right.range.min != middle
            or left.range.is_empty()
            or right.range.is_empty()
        ):
            broken.append(f"the children of partition {partition.id} do not tile it")
        if (left.parent, right.parent) != (partition.id, partition.id):
            broken.append(f"a child of partition {partition.id} does not know its parent")
        pending += [left, right]
        if reached > len(tree):
            return [*broken, "the partitions form a loop"]
    if reached != len(tree):
        broken.append(f"{len(tree) - reached} partitions cannot be reached from the root")
    return broken


def _broken_references(state: TableState) -> Iterator[str]:
    partitions_of: dict[str, list[str]] = {}
    for reference in state.all_references():
        name = f"the reference of shard {reference.shard} in partition {reference.partition}"
        shard = state.shards.get(reference.shard)
        if shard is None:
            yield f"{name} has no shard"
            continue
        if reference.partition not in state.partitions:
            yield f"{name} has no partition"
            continue
        partition = state.partitions.get(reference.partition)
        if not partition.range.overlaps_span(shard.min_key, shard.max_key):
            yield f"{name} lies outside the shard's keys"
        if not partition.is_leaf and reference.job is None:
            yield f"{name} waits on a split partition"
        partitions_of.setdefault(reference.shard, []).append(reference.partition)
    for shard_id, partitions in partitions_of.items():
        above = {a for p in partitions for a in state.partitions.ancestors(p)}
        if above.intersection(partitions):
            yield f"rows of shard {shard_id} are referenced twice"


def _broken_jobs(state: TableState) -> Iterator[str]:
    for reference in state.all_references():
        if reference.job is not None and reference.job not in state.jobs:
            yield f"shard {reference.shard} is assigned to job {reference.job}, which is unknown"
    for job in state.jobs.values():
        for shard in job.inputs:
            held = state.reference(job.partition, shard)
            if held is None or held.job != job.id:
                yield f"job {job.id} has lost its input {shard}"


def _broken_counts(state: TableState) -> Iterator[str]:
    counted = Counter(reference.shard for reference in state.all_references())
    for shard in state.shards:
        kept = state.reference_counts.get(shard, 0)
        if counted[shard] != kept:
            yield f"shard {shard} has {counted[shard]} references but {kept} are counted"
        if (kept == 0) != (shard in state.unreferenced):
            yield f"shard {shard} has {kept} references and is wrongly listed for collection"
    for shard in state.unreferenced:
        if shard not in state.shards:
            yield f"shard {shard} is listed for collection but unknown"
