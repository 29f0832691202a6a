"""The transactions that make a planned state, and the state that they make."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.errors import InvariantError
from dormouse.features.rebuild.plan_rebuild import RebuildPlan
from dormouse.features.tables.versions import REBUILDING
from dormouse.fold.fold import apply
from dormouse.fold.invariants import broken_invariants
from dormouse.model.partitions import ROOT
from dormouse.model.shards import NewShard
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    Entry,
    InitialisePartitions,
    ReplaceShards,
    ResetTable,
    Transaction,
)

SHARDS_PER_TRANSACTION = 1000
SOURCES_PER_TRANSACTION = 10_000


def rebuild_transactions(plan: RebuildPlan) -> Iterator[Transaction]:
    """Yield the transactions that make the planned state from an empty log, in order.

    A shard is added with all its rows. Where they were merged into other shards, a compaction
    without outputs removes them again. So the state knows shards that nothing references, and
    garbage collection deletes them.

    Example: shard r-0 is live in leaf 1 and merged in leaf 0. It is added to the root, which gives
    it a reference in each leaf. Then job rebuild-merged-0 replaces r-0 in leaf 0 by no shards.
    """
    yield InitialisePartitions(plan.tree.splits, plan.key_types)
    if plan.generation:
        yield ResetTable(plan.generation, plan.tree.splits)
    if plan.segments:
        yield AdoptSegments(plan.segments)
    for start in range(0, len(plan.sources), SOURCES_PER_TRANSACTION):
        chunk = plan.sources[start : start + SOURCES_PER_TRANSACTION]
        yield AddShards(f"{REBUILDING}sources-{start}", chunk, ())
    for start in range(0, len(plan.shards), SHARDS_PER_TRANSACTION):
        placed = plan.shards[start : start + SHARDS_PER_TRANSACTION]
        new = (NewShard(item.shard, item.counted or ((ROOT, item.shard.rows),)) for item in placed)
        yield AddShards(f"{REBUILDING}shards-{start}", (), tuple(new))
    merged: dict[str, list[str]] = {}
    for item in plan.shards:
        for leaf in item.merged:
            merged.setdefault(leaf, []).append(item.shard.id)
    for leaf, shards in sorted(merged.items()):
        job = f"{REBUILDING}merged-{leaf}"
        yield AssignJob(job, leaf, tuple(shards))
        yield ReplaceShards(job, leaf, tuple(shards), ())


def planned_state(plan: RebuildPlan, now_ms: int) -> TableState:
    """Return the state that the transactions of a plan make.

    Raises:
        InvariantError: a transaction is rejected, or the state breaks an invariant or has other
            live rows than planned.
    """
    state = TableState()
    broken: list[str] = []
    for transaction in rebuild_transactions(plan):
        state, verdict = apply(state, Entry(transaction, now_ms, state.generation))
        broken += map(str, verdict.violations)
    broken += broken_invariants(state, whole=True)
    live = {(leaf, item.shard.id) for item in plan.shards for leaf in item.live}
    if live != {(r.partition, r.shard) for r in state.all_references()}:
        broken.append("it references other rows than planned")
    if broken:
        raise InvariantError(f"the plan of a rebuild is unsound: {'; '.join(broken[:5])}")
    return state
