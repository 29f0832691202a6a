"""Plan the state of a copy from a state of its source."""

from __future__ import annotations

from collections.abc import Mapping

from dormouse.errors import InvalidRequestError
from dormouse.features.rebuild.plan_rebuild import PlacedShard, RebuildPlan
from dormouse.fold.fold import apply
from dormouse.keys.ranges import KeyRange, prefix_successor
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry, ReleaseJob


def plan_copy(state: TableState) -> RebuildPlan:
    """Return the plan of a state with the rows, partitions and sources of `state`.

    Jobs are not copied: their inputs are free. Nor are shards that nothing references.

    Raises:
        InvalidRequestError: shards are disputed, so it is not known which rows the table has.
    """
    if state.disputed:
        raise InvalidRequestError(
            f"{len(state.disputed)} shards are disputed, so the table's rows are not certain",
            hint="`dormouse check NAME` names them and says what to do; nothing was copied",
        )
    for job in sorted(state.jobs):
        state, _ = apply(state, Entry(ReleaseJob(job), state.time_ms, state.generation))
    held: dict[str, dict[str, Reference]] = {}
    for reference in state.all_references():
        held.setdefault(reference.shard, {})[reference.partition] = reference
    tree = state.partitions
    return RebuildPlan(
        tree,
        tuple(_placed(tree, state.shards[shard], held[shard]) for shard in sorted(held)),
        tuple(sorted(state.sources)),
        (),
        state.key_types,
        state.generation,
        state.all_source_segments,
    )


def _placed(tree: PartitionTree, shard: Shard, held: Mapping[str, Reference]) -> PlacedShard:
    span = KeyRange(shard.min_key, prefix_successor(shard.max_key))
    leaves = [
        leaf.id
        for leaf in tree.leaves_overlapping(span)
        if leaf.range.overlaps_span(shard.low, shard.high)
    ]
    # A leaf of which the writer counted no rows has no reference, and had none before.
    if all(one.exact for one in held.values()) and _rows(held) == shard.rows:
        counted = tuple((leaf, held[leaf].rows) for leaf in leaves if leaf in held)
        return PlacedShard(shard, tuple(leaf for leaf, _ in counted), (), counted)
    merged = tuple(leaf for leaf in leaves if leaf not in held)
    return PlacedShard(shard, tuple(leaf for leaf in leaves if leaf in held), merged)


def _rows(held: Mapping[str, Reference]) -> int:
    return sum(reference.rows for reference in held.values())
