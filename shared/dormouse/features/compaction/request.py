"""compact_table: compact a table on request, not because it changed.

Jobs are assigned before the request's work is saved; `sweep` sends a lost message of one again.
They are named after the request, so a redelivery finds those that a crashed delivery assigned.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from dormouse.features.planning.assign_jobs import assign
from dormouse.features.planning.compaction import (
    plan_compactions,
    within_limit,
)
from dormouse.features.planning.retention import plan_everything
from dormouse.features.requests.outcomes import TABLE_RESET, JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import request_key, resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.jobs.runs import new_run
from dormouse.messages.replies import Counts
from dormouse.messages.requests import CompactTable
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.model.jobs.spark_threshold import compaction_queue
from dormouse.model.state import TableState
from dormouse.model.transactions import AssignJob
from dormouse.ports.services import Services
from dormouse.stored.paths import run_of_shard
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table


class CompactionWork(StoredWork, frozen=True, tag="compaction"):
    """The jobs that a request assigned in this generation of the table."""

    generation: int
    jobs_assigned: tuple[str, ...]
    spark: SparkOptions | None = None

    @property
    def job_ids(self) -> list[str]:
        """Return the ids of the jobs."""
        return list(self.jobs_assigned)

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of the jobs that are still assigned."""
        state = services.store(table).current()
        return list(self._messages(table, state))

    def _messages(self, table: Table, state: TableState) -> Iterator[OutboundMessage]:
        for job_id in self.jobs_assigned:
            job = state.jobs.get(job_id)
            if job is not None and state.generation == self.generation:
                queue = compaction_queue(state, job, table.properties, self.spark)
                message = CompactionJob(table.id, self.generation, job_id, self.spark or UNSET)
                yield OutboundMessage(queue, message)

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each compaction."""
        held = check.state.jobs if check.state.generation == self.generation else {}
        for job_id in sorted(self.jobs_assigned, key=lambda job: job not in held):
            if job_id in held:
                yield check.unfinished(self.kind, job_id, check.record(job_id))
            else:
                yield self._outcome(check, job_id)

    def _outcome(self, check: JobCheck, job_id: str) -> JobOutcome:
        """Return the outcome of a job that is no longer assigned."""
        known = check.record(job_id)

        def done() -> JobOutcome:
            counts = Counts(finished=1, rows=known.rows, shards=known.files) if known else Counts()
            return JobOutcome(self.kind, job_id, counts=counts)

        if check.state.generation != self.generation and (
            known is None or known.state != "finished"
        ):
            return JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
        written = [s for s in check.state.shards.values() if run_of_shard(s.id)[0] == job_id]
        if (known is None or known.state != "finished") and written:
            if check.may_record(known):
                return check.unrecorded(self.kind, job_id, known)
            rows = sum(shard.rows for shard in written)
            return JobOutcome(self.kind, job_id, counts=Counts(finished=1, rows=rows))
        return check.ended(self.kind, job_id, known, done)


def compact_table(services: Services, request: CompactTable) -> RequestResult:
    """Assign the compactions of a table, online or offline, and return their messages.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = resolve_live_table(services, request)
    state = services.store(table).current()
    plans = (
        plan_everything(state, table.properties)
        if request.all
        else plan_compactions(state, table.properties)
    )
    plans = within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
    key = request_key(request)
    jobs = (
        AssignJob(new_run(services, table), plan.partition, plan.inputs, request_key=key)
        for plan in plans
    )
    asked = request.spark or None
    earlier = tuple(job.id for job in state.jobs.values() if job.request_key == key)
    messages = list(assign(services, table, state.generation, jobs, asked))
    assigned = (m.message.job_id for m in messages if isinstance(m.message, CompactionJob))
    work = CompactionWork(state.generation, (*sorted(earlier), *assigned), asked)
    if not work.jobs_assigned:
        return RequestResult()
    return RequestResult(work.unfinished_messages(services, table) if earlier else messages, work)
