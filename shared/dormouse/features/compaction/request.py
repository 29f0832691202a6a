"""compact_table: a table is compacted because somebody asks, not because it changed.

Jobs are assigned before the request is remembered: a lost message of one is sent again by `sweep`.
They are named after the request: a delivery finds those which one that was cut off had assigned.
"""

from __future__ import annotations

from dormouse.features.planning.assign_jobs import assign
from dormouse.features.planning.compaction import (
    plan_compactions,
    plan_full_compactions,
    within_limit,
)
from dormouse.features.requests.request_names import asked_by, asked_job_id
from dormouse.features.requests.resolve_table import binding_key, living
from dormouse.features.requests.work import Begun, Compactions, messages_again
from dormouse.messages import CompactionJob
from dormouse.model.transactions import AssignJob
from dormouse.ports import Services
from dormouse.requests import CompactTable


def compact_table(services: Services, request: CompactTable) -> Begun:
    """Assign the compactions, also of a table that is offline, and have them run.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = living(services, request)
    state = services.store(table).current()
    plans = (
        plan_full_compactions(state) if request.all else plan_compactions(state, table.properties)
    )
    plans = within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
    key = binding_key(request)
    jobs = (
        AssignJob(asked_job_id(key, services.ids.new()), plan.partition, plan.inputs)
        for plan in plans
    )
    asked = request.spark or None
    earlier = tuple(job for job in state.jobs if asked_by(job) == key)
    messages = list(assign(services, table, state.generation, jobs, asked))
    assigned = (m.message.job_id for m in messages if isinstance(m.message, CompactionJob))
    work = Compactions(state.generation, (*sorted(earlier), *assigned), asked)
    if not work.jobs:
        return Begun()
    return Begun(messages_again(services, table, work) if earlier else messages, work)
