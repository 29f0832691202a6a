"""dispatch_spark: start one Spark run for a heavy job, however often its message is delivered.

Order: save the job's request, upload the package, start the run, record it, save the note of the
run. A redelivery that finds the note does nothing more, so the note comes last. A redelivery that
finds none starts the run with the same client token, made of the request's token, the attempt and
the run's parameters, so EMR returns the run that exists. A job whose newest run failed is retried
here, or fails. On an instance without Spark, functions run all jobs.
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
    age_seconds,
    fail_statement,
    finish,
    function_messages,
    input_size,
    is_early,
    is_spark_job_complete,
    release_job,
    replaced_shards,
    retry_message,
)
from dormouse.features.spark.package import upload_package
from dormouse.features.spark.requests import (
    SparkRequest,
    delete_spark_request,
    load_spark_request,
    newest_spark_run,
    save_spark_request,
    save_spark_run,
)
from dormouse.jobs.tracking import record, tracked_job
from dormouse.messages.stages import CompactionJob, OutboundMessage, SparkJob, SparkJobStep
from dormouse.model.jobs.job_events import Assigned, Failed
from dormouse.model.jobs.spark_threshold import PATIENCE_SECONDS, cluster_size
from dormouse.model.state import TableState
from dormouse.ports.services import Services, Spark, SparkRun
from dormouse.tables.table import Table


def dispatch_spark(services: Services, message: SparkJob | SparkJobStep) -> list[OutboundMessage]:
    """Start a Spark run for the job, unless it is complete, running, or was tried too often.

    A step message of a job that has failed meanwhile does nothing: it must not start the job again.

    Raises:
        ContendedError: the job is of a later generation than the state; retry later.
        UnavailableError: the state of its newest run cannot be read at the moment.
    """
    table = services.table(message.table_id)
    if table is None:
        return fail_statement(services, message.table_id, message.job_id)
    job = _job_of(services, message)
    if job is None:
        return []
    state = services.store(table).current()
    if is_early(state, job):
        raise ContendedError(f"table {table.name!r} is about to be reset")
    if is_spark_job_complete(services, state, job):
        return finish(services, table, state, job)
    if services.spark is None:
        if isinstance(job, CompactionJob):  # it stays assigned in the state; no request may be left
            delete_spark_request(services, job)
        return function_messages(services, job)
    request = save_spark_request(services, job, replaced_shards(state, job))
    attempt, run_id = newest_spark_run(services, job)
    reason = ""
    if attempt:
        run = services.spark.describe(run_id)
        if run is not None and not run.outcome:
            return []
        reason = f"run {run_id}: {run.reason or run.outcome}" if run else f"run {run_id} is unknown"
    if attempt >= table.properties.spark_attempts:
        reason = f"Spark failed {attempt} times, last in {reason}"
        return _fail(services, table, job, reason, has_run=True)
    return _start(services, services.spark, table, state, request, attempt + 1)


def _job_of(services: Services, message: SparkJob | SparkJobStep) -> SparkJob | None:
    if not isinstance(message, SparkJobStep):
        return message
    request = load_spark_request(services, message.table_id, message.job_id)
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
    files, size_bytes = input_size(services, state, job)
    size = cluster_size(size_bytes, table.properties, job.spark or None)
    generation, kind = state.generation, tracked_job(job).kind
    try:
        package = upload_package(services, spark)
        token = _token(request.token, attempt, generation, size, package)
        run = SparkRun(table.id, job.job_id, kind, generation, attempt, token, size, package)
        run_id = spark.start(run)
    except InvalidRequestError as error:
        return _fail(services, table, job, error.explanation)
    except (UnavailableError, OutcomeUnknownError) as error:
        if age_seconds(services, request) > PATIENCE_SECONDS:
            return _fail(services, table, job, error.explanation)
        reason = f"it is waiting for Spark: {error.explanation}"
        record(services, tracked_job(job), Assigned(reason=reason))
        return [retry_message(services, request)]
    record(
        services,
        tracked_job(job),
        Assigned(
            reason=f"it is with Spark: run {run_id}, attempt {attempt}",
            files=files,
            size_bytes=size_bytes,
        ),
    )
    save_spark_run(services, job, attempt, run_id)
    return []


def _token(*asked: object) -> str:
    """Return the client token of a run; EMR refuses a token used with other parameters before."""
    return blake2b(repr(asked).encode(), digest_size=16).hexdigest()


def _fail(
    services: Services, table: Table, job: SparkJob, reason: str, *, has_run: bool = False
) -> list[OutboundMessage]:
    """Fail a job, and return its dead letter.

    Its stored request is deleted, so a redriven dead letter starts from the first attempt.
    """
    record(services, tracked_job(job), Failed(reason))
    # after the record, so that a client that waits for an export finds the reason
    letters = release_job(services, job, reason, has_run=has_run)
    delete_spark_request(services, job)
    return letters
