"""dispatch_spark: a heavy job → a run of Spark, started once.

Order: the request of the job, the package, the run, the record, the note of the run. A delivery
that comes again and finds the note leaves the run alone, so all else is done before. One that finds
none asks for the run by the same token, made of the request's, the attempt and what is asked for,
and is given the run it had begun. A job whose newest run failed is tried again here, or given up.
An instance without Spark does all in functions.
"""

from __future__ import annotations

from hashlib import blake2b

from dormouse.errors import (
    ContendedError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.features.spark.jobs import (
    abandon,
    again,
    age_seconds,
    finish,
    in_functions,
    input_of,
    is_early,
    is_settled,
    kind_of,
    replaced_by,
)
from dormouse.features.spark.package import bring_package
from dormouse.features.spark.requests import (
    SparkRequest,
    forget,
    keep_request,
    keep_run,
    newest_run,
    spark_request,
)
from dormouse.jobs.tracking import record
from dormouse.messages import CompactionJob, OutboundMessage, SparkJob, SparkJobStep
from dormouse.model.spark_threshold import PATIENCE_SECONDS, cluster_size
from dormouse.model.state import TableState
from dormouse.ports import Services, Spark, SparkRun
from dormouse.tables.table import Table


def dispatch_spark(services: Services, message: SparkJob | SparkJobStep) -> list[OutboundMessage]:
    """Have Spark do the job, unless it is done, being done, or was tried too often.

    A message to go on with a job that was given up meanwhile does nothing: it must not begin anew.

    Raises:
        ContendedError: the job is of a generation that is still to come; it should come again.
        UnavailableError: how its newest run stands cannot be told for now.
    """
    table = services.table(message.table_id)
    job = _job_of(services, message) if table is not None else None
    if table is None or job is None:
        return []
    state = services.store(table).current()
    if is_early(state, job):
        raise ContendedError(f"table {table.name!r} is about to be emptied")
    if is_settled(services, state, job):
        return finish(services, table, state, job)
    if services.spark is None:
        if isinstance(job, CompactionJob):  # the state has it, and nobody else is to wait for Spark
            forget(services, job)
        return in_functions(services, job)
    request = keep_request(services, job, replaced_by(state, job))
    attempt, run_id = newest_run(services, job)
    reason = ""
    if attempt:
        run = services.spark.describe(run_id)
        if run is not None and not run.outcome:
            return []
        reason = f"run {run_id}: {run.reason or run.outcome}" if run else f"run {run_id} is unknown"
    if attempt >= table.properties.spark_attempts:
        reason = f"Spark failed {attempt} times, last in {reason}"
        return _give_up(services, table, job, reason, has_run=True)
    return _start(services, services.spark, table, state, request, attempt + 1)


def _job_of(services: Services, message: SparkJob | SparkJobStep) -> SparkJob | None:
    if not isinstance(message, SparkJobStep):
        return message
    request = spark_request(services, message.table_id, message.job_id)
    return None if request is None else request.job


def _start(
    services: Services,
    spark: Spark,
    table: Table,
    state: TableState,
    request: SparkRequest,
    attempt: int,
) -> list[OutboundMessage]:
    job = request.job
    files, size_bytes = input_of(services, state, job)
    size = cluster_size(size_bytes, table.properties, job.spark or None)
    generation, kind = state.generation, kind_of(job)
    try:
        package = bring_package(services, spark)
        token = _token(request.token, attempt, generation, size, package)
        run = SparkRun(table.id, job.job_id, kind, generation, attempt, token, size, package)
        run_id = spark.start(run)
    except InvalidRequestError as error:
        return _give_up(services, table, job, error.explanation)
    except (UnavailableError, OutcomeUnknownError) as error:
        if age_seconds(services, request) > PATIENCE_SECONDS:
            return _give_up(services, table, job, error.explanation)
        reason = f"it waits for Spark: {error.explanation}"
        record(services, table.id, job.job_id, kind, "assigned", reason=reason)
        return [again(services, request)]
    record(
        services,
        table.id,
        job.job_id,
        kind,
        "assigned",
        reason=f"it is with Spark: run {run_id}, attempt {attempt}",
        files=files,
        size_bytes=size_bytes,
    )
    keep_run(services, job, attempt, run_id)
    return []


def _token(*asked: object) -> str:
    """Return the token of a run. EMR refuses one that came with another request before."""
    return blake2b(repr(asked).encode(), digest_size=16).hexdigest()


def _give_up(
    services: Services, table: Table, job: SparkJob, reason: str, *, has_run: bool = False
) -> list[OutboundMessage]:
    """Return a job up. All that is kept of it goes: who sends it back has it tried from the
    start."""
    record(services, table.id, job.job_id, kind_of(job), "failed", reason=reason)
    # after the record: who waits for an export then finds why it ended
    letters = abandon(services, job, reason, has_run=has_run)
    forget(services, job)
    return letters
