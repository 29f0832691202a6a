"""dispatch_spark: a heavy job → a run of Spark, started once.

Order: the request of the job, the run, its note, the record. Each run is started with a token made
of the request's and the attempt, so a delivery that comes again finds the run it had begun. A job
whose newest run failed is tried again here, or given up: then it goes among the dead letters, and
a compaction's shards are free for other jobs. An instance without Spark does all in functions.
"""

from __future__ import annotations

from hashlib import blake2b

from dormouse.errors import (
    ContendedError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.messages import CompactionJob, IngestJob, Outgoing, SparkJob, TableChanged
from dormouse.model.names import dead_letters
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import ReleaseJob
from dormouse.policy.spark import PATIENCE_SECONDS, cluster_size, wait_seconds
from dormouse.ports import Services, Spark, SparkRun
from dormouse.stages.spark_requests import (
    SparkRequest,
    forget,
    keep_request,
    keep_run,
    newest_run,
)
from dormouse.stages.spark_work import age_seconds, finish, is_settled, kind_of
from dormouse.stages.tracking import record

QUEUE = "spark-jobs"


def dispatch_spark(services: Services, job: SparkJob) -> list[Outgoing]:
    """Have Spark do the job, unless it is done, being done, or was tried too often.

    Raises:
        ContendedError: the job is of a generation that is still to come; it should come again.
        UnavailableError: how its newest run stands cannot be told for now.
    """
    table = services.table(job.table_id)
    if table is None:
        return []
    if services.spark is None:
        return [Outgoing("ingest-jobs" if isinstance(job, IngestJob) else "compaction-jobs", job)]
    state = services.store(table).current()
    if job.generation > state.generation:
        raise ContendedError(f"table {table.name!r} is about to be emptied")
    if is_settled(services, state, job):
        return finish(services, job)
    request = keep_request(services, job)
    attempt, run_id = newest_run(services, job)
    reason = ""
    if attempt:
        run = services.spark.look(run_id)
        if run is not None and not run.outcome:
            return []
        reason = f"run {run_id}: {run.reason or run.outcome}" if run else f"run {run_id} is unknown"
    if attempt >= table.properties.spark_attempts:
        reason = f"Spark failed {attempt} times, last in {reason}"
        return _give_up(services, table, state, job, reason)
    return _start(services, services.spark, table, state, request, attempt + 1)


def _start(
    services: Services,
    spark: Spark,
    table: Table,
    state: TableState,
    request: SparkRequest,
    attempt: int,
) -> list[Outgoing]:
    job = request.job
    input_bytes = _input_bytes(state, job)
    token = blake2b(f"{request.token} {attempt}".encode(), digest_size=16).hexdigest()
    size = cluster_size(input_bytes, table.properties)
    kind = kind_of(job)
    run = SparkRun(table.id, job.job_id, kind, state.generation, attempt, token, size)
    try:
        run_id = spark.start(run)
    except InvalidRequestError as error:
        return _give_up(services, table, state, job, error.explanation)
    except (UnavailableError, OutcomeUnknownError) as error:
        if age_seconds(services, request) > PATIENCE_SECONDS:
            return _give_up(services, table, state, job, error.explanation)
        reason = f"it waits for Spark: {error.explanation}"
        record(services, table.id, job.job_id, kind, "assigned", reason=reason)
        return [Outgoing(QUEUE, job, wait_seconds(age_seconds(services, request)))]
    record(
        services,
        table.id,
        job.job_id,
        kind,
        "assigned",
        reason=f"it is with Spark: run {run_id}, attempt {attempt}",
        files=len(job.sources)
        if isinstance(job, IngestJob)
        else len(state.jobs[job.job_id].inputs),
        size_bytes=input_bytes,
    )
    keep_run(services, job, attempt, run_id)
    return []


def _give_up(
    services: Services, table: Table, state: TableState, job: SparkJob, reason: str
) -> list[Outgoing]:
    """Give a job up. All that is kept of it goes: who sends it back has it tried from the start."""
    if isinstance(job, CompactionJob):
        services.store(table).commit(ReleaseJob(job.job_id), generation=state.generation)
    record(services, table.id, job.job_id, kind_of(job), "failed", reason=reason)
    forget(services, job)
    return [
        Outgoing(dead_letters(QUEUE), job, reason=reason),
        Outgoing("table-changes", TableChanged(table.id)),
    ]


def _input_bytes(state: TableState, job: SparkJob) -> int:
    if isinstance(job, IngestJob):
        return sum(source.size_bytes for source in job.sources)
    return sum(state.shards[shard].size_bytes for shard in state.jobs[job.job_id].inputs)
