"""The life of a Spark job: whether it is complete, and what happens then, for each kind of job.

The stored state decides, not the state of the Spark run: a driver may crash after its commit, and
a run that succeeded may have done nothing.
"""

from collections.abc import Iterator
from hashlib import blake2b

from dormouse import errors, jobs
from dormouse.features import spark
from dormouse.features.batch_files import look_up_sources
from dormouse.features.export import delete_export, load_export, load_manifest, task_messages
from dormouse.features.garbage import candidates, plain_files
from dormouse.features.queries import load_query
from dormouse.features.query_runs import fail, following, is_computed
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    IngestJob,
    OutboundMessage,
    SparkJob,
    SparkJobStep,
    SparkRunChanged,
    StatementJob,
    TableChanged,
)
from dormouse.ports import Services, Spark, SparkRun
from dormouse.state.jobs import (
    PATIENCE_SECONDS,
    Assigned,
    Failed,
    JobRecord,
    Refused,
    TrackedJob,
    cluster_size,
    wait_seconds,
)
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.stored.paths import dead_letter_queue
from dormouse.tables.table import Table

QUEUE = "spark-jobs"


def is_spark_job_complete(services: Services, state: TableState, job: SparkJob) -> bool:
    """Return whether a job needs no further run.

    Any job that does more than read is complete once its table was reset. A compaction is complete
    once it is no longer assigned; an export, once it has ended; a statement, once its rows are
    there or its query has ended. An ingest is complete once each source is ingested or was refused
    since the job was requested; a file refused earlier was dropped again, and is tried again.
    """
    if isinstance(job, ExportJob):
        return load_export(services, job.table_id, job.job_id) is None
    if isinstance(job, StatementJob):
        return is_computed(services, job)
    if job.generation < state.generation:
        return True
    if isinstance(job, CompactionJob):
        return job.job_id not in state.jobs
    table = services.table(job.table_id)
    if table is None or job.generation < table.generation:
        return True
    fresh = look_up_sources(services, table, job.sources).fresh(job.sources)
    if not fresh:
        return True
    request = spark.load_spark_request(services, job.table_id, job.job_id)
    return request is not None and all(_refusal(services, source, request) for source in fresh)


def input_size(services: Services, state: TableState, job: SparkJob) -> tuple[int, int]:
    """Return how many files or shards an incomplete job reads, and their bytes.

    For an export or a statement only the bytes are known; the number is 0.
    """
    match job:
        case IngestJob():
            return len(job.sources), sum(source.size_bytes for source in job.sources)
        case CompactionJob():
            inputs = state.jobs[job.job_id].inputs
            return len(inputs), sum(state.shards[shard].size_bytes for shard in inputs)
        case ExportJob():
            export = load_export(services, job.table_id, job.job_id)
            return 0, export.size_bytes if export else 0
        case StatementJob():
            query = load_query(services.results, job.query_id)
            return 0, query.size_bytes if query else 0


def function_messages(services: Services, job: SparkJob) -> list[OutboundMessage]:
    """Return the messages that make functions run a job, on an instance without Spark; they do not
    know the dialect of a statement for it.
    """
    match job:
        case IngestJob():
            return [OutboundMessage("ingest-jobs", job)]
        case CompactionJob():
            return [OutboundMessage("compaction-jobs", job)]
        case ExportJob():
            export = load_export(services, job.table_id, job.job_id)
            return task_messages(services, export) if export else []
        case StatementJob():
            return release_job(services, job, "the instance has no Spark any more", has_run=False)


def release_job(
    services: Services, job: SparkJob, reason: str, *, has_run: bool
) -> list[OutboundMessage]:
    """Release what a failed job holds, and return its dead letter.

    If Spark `has_run` the job as often as allowed, nothing starts it again automatically: the files
    of an ingest are refused, and a compaction is set aside. The compaction stays assigned: if its
    shards were released, the next planning would assign the same job again, without end. If Spark
    only did not accept the run, the sweep retries it, less and less often. An export or a query
    ends, and has no dead letter: it can be requested again.
    """
    match job:
        case ExportJob():
            export = load_export(services, job.table_id, job.job_id)
            if export is not None:
                delete_export(services, export)
            return []
        case StatementJob():
            fail(services, job, reason, errors.JobTooLargeError.__name__)
            return following(services, job)
        case CompactionJob() if has_run:
            jobs.set_aside(services, job.table_id, job.job_id, jobs.SPARK)
        case IngestJob() if has_run or len(job.sources) == 1:  # a single file has crashed before
            _refuse(services, job, reason)
    return [OutboundMessage(dead_letter_queue(QUEUE), job, reason=reason)]


def fail_statement(services: Services, table_id: str, query_id: str) -> list[OutboundMessage]:
    """Fail the query of a statement whose job was kept beside a table that was deleted, if the id
    of a job is that of such a query; return the message with which it goes on.
    """
    query = load_query(services.results, query_id)
    if query is None or not query.views:
        return []
    job = StatementJob(table_id, query.cut, query_id)
    fail(
        services, job, "a table that the statement reads was deleted", errors.NotFoundError.__name__
    )
    return following(services, job)


def _refuse(services: Services, job: IngestJob, reason: str) -> None:
    """Record each file that is not ingested as refused, so that no audit ingests it."""
    table = services.table(job.table_id)
    if table is not None:
        refusal = f"Spark failed: {reason}; to retry: dormouse dlq redrive {QUEUE}"
        for source in look_up_sources(services, table, job.sources).fresh(job.sources):
            tracked = TrackedJob(table.id, source.id, "ingest")
            jobs.record(services, tracked, Refused(refusal, subject=source.key))


def finish(
    services: Services, table: Table, state: TableState, job: SparkJob
) -> list[OutboundMessage]:
    """Delete the request of a complete job, publish its counts, and return messages to send.

    Drivers send no messages and publish no counts. Counts are published only while the request
    exists, so a redelivery publishes nothing twice. If this process crashes before it sends, the
    sweep makes up for it: it announces every table, and finds shards that can be collected.
    """
    request = spark.load_spark_request(services, job.table_id, job.job_id)
    records = _records_of_driver(services, table, request) if request is not None else []
    if not isinstance(job, ExportJob) or _is_whole(services, job):
        jobs.finalise(services, job.table_id, job.job_id)
    else:
        _record_failure(services, job)
    spark.delete_spark_request(services, job)
    for each in records:
        jobs.publish_counts(services, table.name, each)
    if isinstance(job, StatementJob):
        return following(services, job)
    freed = [s for s in request.inputs if s in state.unreferenced] if request is not None else []
    changed = OutboundMessage("table-changes", TableChanged(job.table_id))
    plain = plain_files(services, table, job) if isinstance(job, IngestJob) else []
    return [changed, *candidates(table, state, freed), *plain]


def _records_of_driver(
    services: Services, table: Table, request: spark.SparkRequest
) -> list[JobRecord]:
    """Return the records that a driver wrote of a complete job: its end, and refused files.

    Nothing if functions ran the job: they publish their counts themselves.
    """
    if services.spark is None:
        return []
    job = request.job
    record = services.tracker.get(job.table_id, job.job_id)
    records = [record] if record is not None and record.state == "finished" else []
    if isinstance(job, IngestJob):
        fresh = look_up_sources(services, table, job.sources).fresh(job.sources)
        records += filter(None, (_refusal(services, source, request) for source in fresh))
    return records


def _is_whole(services: Services, job: ExportJob) -> bool:
    """Return whether an ended export has its manifest below the prefix that its record names."""
    last = services.tracker.get(job.table_id, job.job_id)
    manifest = load_manifest(services.results, last.subject) if last and last.subject else None
    return manifest is not None and manifest.export == job.job_id


def _record_failure(services: Services, job: ExportJob) -> None:
    """Record that an export failed, if an earlier record from a fast clock hides the failure."""
    entry = services.tracker.get(job.table_id, job.job_id)
    if entry is not None and not entry.is_finished:
        reason = "it failed, and left no manifest; request it again"
        jobs.record(services, jobs.tracked_job(job), Failed(reason))


def retry_message(services: Services, request: spark.SparkRequest) -> OutboundMessage:
    """Return the message that retries a job; its delay grows with the age of the request."""
    job = request.job
    seconds = wait_seconds(age_seconds(services, request))
    return OutboundMessage(QUEUE, SparkJobStep(job.table_id, job.job_id), seconds)


def age_seconds(services: Services, request: spark.SparkRequest) -> float:
    """Return how long ago the job was first handed to Spark."""
    return (services.clock.now_ms() - request.requested_ms) / 1000


def _refusal(services: Services, source: Source, request: spark.SparkRequest) -> JobRecord | None:
    """Return the record of a file that was refused since the job was requested; None if none is."""
    last = services.tracker.get(request.job.table_id, source.id)
    is_new = last is not None and last.updated_ms >= request.requested_ms
    return last if last is not None and is_new and last.state == "refused" else None


# dispatch_spark: start one Spark run for a heavy job, however often its message is delivered.
#
# Order: save the job's request, upload the package, start the run, record it, save the note of the
# run. A redelivery that finds the note does nothing more, so the note comes last. A redelivery that
# finds none starts the run with the same client token, made of the request's token, the attempt and
# the run's parameters, so EMR returns the run that exists. A job whose newest run failed is retried
# here, or fails. On an instance without Spark, functions run all jobs.


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
    if isinstance(job, IngestJob | CompactionJob) and job.generation > state.generation:
        raise errors.ContendedError(f"table {table.name!r} is about to be reset")
    if is_spark_job_complete(services, state, job):
        return finish(services, table, state, job)
    if services.spark is None:
        if isinstance(job, CompactionJob):  # it stays assigned in the state; no request may be left
            spark.delete_spark_request(services, job)
        return function_messages(services, job)
    inputs = state.jobs[job.job_id].inputs if isinstance(job, CompactionJob) else ()
    request = spark.save_spark_request(services, job, inputs)
    attempt, run_id = spark.newest_spark_run(services, job)
    reason = ""
    if attempt:
        run = services.spark.describe(run_id)
        if run is not None and not run.outcome:
            return []
        said = run.reason or run.outcome if run else "it is unknown"
        reason = _reason(services, job, attempt, run_id, said)
    if attempt >= table.properties.spark_attempts:
        reason = f"Spark failed {attempt} times, last in {reason}"
        return _fail(services, table, job, reason, has_run=True)
    return _start(services, services.spark, table, state, request, attempt + 1)


def _job_of(services: Services, message: SparkJob | SparkJobStep) -> SparkJob | None:
    if not isinstance(message, SparkJobStep):
        return message
    request = spark.load_spark_request(services, message.table_id, message.job_id)
    return None if request is None else request.job


def _start(
    services: Services,
    options: Spark,
    table: Table,
    state: TableState,
    request: spark.SparkRequest,
    attempt: int,
) -> list[OutboundMessage]:
    job = request.job
    files, size_bytes = input_size(services, state, job)
    size = cluster_size(size_bytes, table.properties, job.spark or None)
    generation, kind = state.generation, jobs.tracked_job(job).kind
    try:
        package = spark.upload_package(services, options)
        # EMR refuses a token that it was given with other parameters before
        parameters = request.token, attempt, generation, size, package
        token = blake2b(repr(parameters).encode(), digest_size=16).hexdigest()
        run = SparkRun(table.id, job.job_id, kind, generation, attempt, token, size, package)
        run_id = options.start(run)
    except errors.InvalidRequestError as error:
        return _fail(services, table, job, error.explanation)
    except (errors.UnavailableError, errors.OutcomeUnknownError) as error:
        if age_seconds(services, request) > PATIENCE_SECONDS:
            return _fail(services, table, job, error.explanation)
        reason = f"it is waiting for Spark: {error.explanation}"
        jobs.record(services, jobs.tracked_job(job), Assigned(reason=reason))
        return [retry_message(services, request)]
    jobs.record(
        services,
        jobs.tracked_job(job),
        Assigned(
            reason=f"it is with Spark: run {run_id}, attempt {attempt}",
            files=files,
            size_bytes=size_bytes,
        ),
    )
    spark.save_spark_run(services, job, attempt, run_id)
    return []


def _fail(
    services: Services, table: Table, job: SparkJob, reason: str, *, has_run: bool = False
) -> list[OutboundMessage]:
    """Fail a job, and return its dead letter.

    Its stored request is deleted, so a redriven dead letter starts from the first attempt.
    """
    jobs.record(services, jobs.tracked_job(job), Failed(reason))
    # after the record, so that a client that waits for an export finds the reason
    letters = release_job(services, job, reason, has_run=has_run)
    spark.delete_spark_request(services, job)
    return letters


def _reason(services: Services, job: SparkJob, attempt: int, run_id: str, said: str) -> str:
    """Return why a run failed: what its driver recorded of it, else what EMR has `said`, who knows
    an exit code.
    """
    last = services.tracker.get(job.table_id, job.job_id)
    prefix = f"attempt {attempt}, run {run_id}: "
    recorded = last.reason if last is not None and last.state == "failed" else said
    return prefix + recorded.removeprefix(prefix)


# track_spark: handle the end of a Spark run: finish its job, or retry it.
#
# An event only names a run, whose state is then read from EMR and from the table. So events may be
# repeated, late or out of order, and the sweep makes up for a lost one. Drivers have no access to
# queues, so the messages that follow from a commit are sent here.


def track_spark(services: Services, message: SparkRunChanged) -> list[OutboundMessage]:
    """Finish the job of a run if it is complete, else retry it.
    Raises UnavailableError: EMR does not return the state of the run; retry the message.
    """
    run = services.spark.describe(message.run_id) if services.spark else None
    if run is None or not run.outcome:
        return []
    table = services.table(run.table_id)
    if table is None:  # the step fails the query of a statement
        return [OutboundMessage(QUEUE, SparkJobStep(run.table_id, run.job_id))]
    request = spark.load_spark_request(services, run.table_id, run.job_id)
    if request is None:  # who deleted it may have crashed before the change was announced
        return [OutboundMessage("table-changes", TableChanged(table.id))]
    job = request.job
    state = services.store(table).current()
    if is_spark_job_complete(services, state, job):
        return finish(services, table, state, job)
    newest, _ = spark.newest_spark_run(services, job)
    if run.attempt < newest:
        return []  # a late event: the next attempt has started
    said = run.reason or (
        "it succeeded, but did not commit its job" if run.outcome == "succeeded" else "it failed"
    )
    reason = _reason(services, job, run.attempt, message.run_id, said)
    jobs.record(services, jobs.tracked_job(job), Failed(reason))
    return [retry_message(services, request)]


def overdue_spark_jobs(check: jobs.SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each Spark job that is due: the event that its run ended may be lost."""
    for job_id, requested_ms in check.spark_jobs.items():
        if check.is_due(requested_ms):
            yield OutboundMessage(QUEUE, SparkJobStep(check.table.id, job_id))
