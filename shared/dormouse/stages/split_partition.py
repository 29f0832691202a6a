"""split_partition: a leaf with too many rows → two leaves, at the key that halves them.

Where to cut is known from the footers alone; no row is read. The ids of the halves follow from
the partition's own, so two splits of one leaf are one.
"""

from __future__ import annotations

from dormouse.messages import Outgoing, PartitionSplit, TableChanged
from dormouse.model.names import shard_path
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import SplitPartition
from dormouse.policy.splitting import KeyRanks, SplitPlan, plan_split
from dormouse.ports import Services
from dormouse.shards.footer import read_footer
from dormouse.stages.tracking import record, tracked
from dormouse.statestore.protocol import Rejected

MAX_FOOTERS = 50
"""The shards with most rows speak for a partition; more footers would move the cut but little."""


def split_partition(services: Services, message: PartitionSplit) -> list[Outgoing]:
    """Split the leaf unless it was split already, or has too few rows after all.

    One that is forced is split if any of its rows differ in their keys.
    """
    table = services.table(message.table_id)
    if table is None:
        return []
    state = services.store(table).current()
    partition = message.partition
    if message.generation != state.generation or partition not in state.partitions:
        return []
    # Nothing is announced for a leaf split already: every planning before that split may have sent
    # its own message, and each announcement would cause another planning.
    fewest = 2 if message.forced else table.properties.split_threshold_rows
    too_few = state.rows_in(partition) < fewest
    if not state.partitions.get(partition).is_leaf or too_few:
        return []
    job_id = f"split-{partition}"
    with tracked(services, table.id, job_id, "split", subject=partition):
        plan = _plan(services, table, state, partition, fewest)
        if isinstance(plan, str):
            record(services, table.id, job_id, "split", "finished", reason=plan)
            return []
        (outcome,) = services.store(table).commit(
            SplitPartition(partition, plan.at, plan.rows_left), generation=state.generation
        )
        late = f"not split: {outcome}" if isinstance(outcome, Rejected) else ""
        record(services, table.id, job_id, "split", "finished", reason=late)
    return [Outgoing("table-changes", TableChanged(table.id))]


def _plan(
    services: Services, table: Table, state: TableState, partition: str, fewest: int
) -> SplitPlan | str:
    """Give the plan, or the reason why there is none."""
    references = sorted(state.references_in(partition), key=lambda r: (-r.rows, r.shard))
    footers: dict[str, KeyRanks] = {}
    for reference in references[:MAX_FOOTERS]:
        shard = state.shards[reference.shard]
        path = shard_path(table.id, shard.id)
        footers[shard.id] = read_footer(services.storage, path, shard.size_bytes)
    plan = plan_split(state.partitions.get(partition).range, footers)
    if plan is None:
        return "not split: all its rows share one key"
    if len(footers) == len(references) and plan.total_rows < fewest:
        return f"not split: it holds about {plan.total_rows} rows after all"
    return plan
