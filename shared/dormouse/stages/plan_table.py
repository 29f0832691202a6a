"""plan_table: a table changed → the splits and compactions that are due.

Order: jobs are assigned in the state first, then sent. A crash in between leaves assigned jobs
without a message, which ``sweep`` sends again; two planners at once cannot assign one shard twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.messages import CompactionJob, Outgoing, PartitionSplit, TableChanged
from dormouse.model.row_rules import row_rules
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import AssignJob
from dormouse.policy.compaction import CompactionPlan, plan_compactions
from dormouse.policy.retention import plan_rewrites
from dormouse.policy.splitting import splits_due
from dormouse.ports import Services
from dormouse.statestore.protocol import Committed

JOBS_PER_COMMIT = 100


def plan_table(services: Services, message: TableChanged) -> list[Outgoing]:
    """Give the messages for what is due; nothing for a table that is offline or gone."""
    table = services.table(message.table_id)
    if table is None:
        return []
    store = services.store(table)
    store.maintain()  # first: were it to fail after jobs were assigned, they would go unsent
    if not table.online:
        return []
    state = store.current()
    splits = [
        Outgoing("partition-splits", PartitionSplit(table.id, state.generation, partition))
        for partition in splits_due(state, table.properties.split_threshold_rows)
    ]
    plans = plan_compactions(state, table.properties)
    age_off = row_rules(table.schema, table.properties).age_off if message.swept else None
    if age_off is not None:  # looks at every shard, so not after each change
        now_ms = services.clock.now_ms()
        plans += plan_rewrites(state, table.properties, age_off.age_ms, now_ms, plans)
    return splits + assign(services, table, state, plans)


def assign(
    services: Services, table: Table, state: TableState, plans: Sequence[CompactionPlan]
) -> list[Outgoing]:
    """Assign jobs of these plans; give the messages of those which no other planner forestalled."""
    jobs = [AssignJob(services.ids.new(), plan.partition, plan.inputs) for plan in plans]
    sent = []
    for start in range(0, len(jobs), JOBS_PER_COMMIT):
        chunk = jobs[start : start + JOBS_PER_COMMIT]
        outcomes = services.store(table).commit(*chunk, generation=state.generation)
        sent += [
            Outgoing("compaction-jobs", CompactionJob(table.id, state.generation, job.job))
            for job, outcome in zip(chunk, outcomes, strict=True)
            if isinstance(outcome, Committed)
        ]
    return sent
