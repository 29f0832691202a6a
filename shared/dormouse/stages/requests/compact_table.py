"""compact_table: a table is compacted because somebody asks, not because it changed.

Jobs are assigned before the request is remembered: a lost message of one is sent again by `sweep`.
"""

from __future__ import annotations

from dormouse.messages import Outgoing
from dormouse.policy.compaction import plan_compactions, plan_full_compactions, within_limit
from dormouse.ports import Services
from dormouse.requests import CompactTable
from dormouse.stages.assigning import assign, jobs_of
from dormouse.stages.requests.named import living


def compact_table(services: Services, request: CompactTable) -> list[Outgoing]:
    """Assign the compactions, also of a table that is offline, and give their messages.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = living(services, request)
    state = services.store(table).current()
    plans = (
        plan_full_compactions(state) if request.all else plan_compactions(state, table.properties)
    )
    plans = within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
    jobs = jobs_of(services, plans)
    return list(assign(services, table, state.generation, jobs, request.spark or None))
