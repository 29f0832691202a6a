"""compact_table: compact a table on request, not because it changed.

Jobs are assigned before the request's work is saved; `sweep` sends a lost message of one again.
They are named after the request, so a redelivery finds those that a crashed delivery assigned.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from dormouse.features.planning import assign, plan_compactions, plan_everything, within_limit
from dormouse.features.requests import (
    TABLE_RESET,
    JobCheck,
    JobOutcome,
    RequestResult,
    StoredWork,
    request_key,
)
from dormouse.features.spark_jobs import QUEUE as SPARK_QUEUE
from dormouse.jobs import FUNCTION, SPARK, JobNotes, SweepCheck, job_notes, new_run
from dormouse.messages.requests import CompactTable, Counts
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.ports import Services
from dormouse.state.jobs import compaction_queue
from dormouse.state.state import AssignJob, TableState
from dormouse.stored.paths import run_of_shard
from dormouse.tables.properties import SparkOptions
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


def compact_table(services: Services, table: Table, request: CompactTable) -> RequestResult:
    """Assign the compactions of a table, online or offline, and return their messages.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
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


# Assigned compactions that make no progress, which a sweep sends again.


def overdue_compactions(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of assigned jobs that make no progress.

    Jobs that Spark runs are left out, and jobs that are set aside where they would run.
    """
    services, table, state = check.services, check.table, check.state
    notes = job_notes(services, table.id) if len(state.jobs) else {}
    here = SPARK if services.has_spark else FUNCTION
    for job in sorted(state.jobs.values(), key=lambda job: job.id):
        note = notes.get(job.id, JobNotes())
        if job.id in check.with_spark or here in note.set_aside:
            continue
        is_due = check.is_due(max(job.assigned_ms, note.newest_ms))
        if not is_due and not check.is_lost(job.id):
            continue
        message = CompactionJob(table.id, state.generation, job.id)
        if note.set_aside and services.has_spark:  # it was too large for functions
            yield OutboundMessage(SPARK_QUEUE, message)
        else:
            yield OutboundMessage(compaction_queue(state, job, table.properties), message)
