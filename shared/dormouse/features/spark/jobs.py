"""The life of a Spark job: whether it is complete, and what happens then, for each kind of job.

The stored state decides, not the state of the Spark run: a driver may crash after its commit, and
a run that succeeded may have done nothing.
"""

from __future__ import annotations

from dormouse.errors import JobTooLargeError, NotFoundError
from dormouse.features.export.manifests import load_manifest
from dormouse.features.export.stored import (
    delete_export,
    load_export,
    task_messages,
    unfinished_tasks,
)
from dormouse.features.garbage.collect_garbage import candidates
from dormouse.features.ingest.known_sources import look_up_sources
from dormouse.features.queries.by_spark import fail, following, is_computed
from dormouse.features.queries.stored import load_query
from dormouse.features.spark.requests import SparkRequest, delete_spark_request, load_spark_request
from dormouse.jobs.crashes import SPARK, set_aside
from dormouse.jobs.tracking import finalise, publish_counts, record, tracked_job
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    IngestJob,
    OutboundMessage,
    SparkJob,
    SparkJobStep,
    StatementJob,
    TableChanged,
)
from dormouse.model.jobs.job_events import Failed, Refused, TrackedJob
from dormouse.model.jobs.spark_threshold import wait_seconds
from dormouse.model.sources import Source
from dormouse.model.state import TableState
from dormouse.ports.services import JobRecord, Services
from dormouse.stored.names import dead_letter_queue
from dormouse.tables.table import Table

QUEUE = "spark-jobs"


def is_early(state: TableState, job: SparkJob) -> bool:
    """Return whether a job is of a later generation of its table than the state."""
    return _generation(job, state) > state.generation


def _generation(job: SparkJob, state: TableState) -> int:
    """Return the generation of its table that a job is for; what only reads is for any."""
    return state.generation if isinstance(job, ExportJob | StatementJob) else job.generation


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
    left = look_up_sources(services, table, job.sources).fresh(job.sources)
    request = load_spark_request(services, job.table_id, job.job_id) if left else None
    return (
        not left
        or request is not None
        and all(_was_refused(services, source, request) for source in left)
    )


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
            return (
                task_messages(export, unfinished_tasks(services, export) or [0]) if export else []
            )
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
            fail(services, job, reason, JobTooLargeError.__name__)
            return following(services, job)
        case CompactionJob() if has_run:
            set_aside(services, job.table_id, job.job_id, SPARK)
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
    fail(services, job, "a table that the statement reads was deleted", NotFoundError.__name__)
    return following(services, job)


def _refuse(services: Services, job: IngestJob, reason: str) -> None:
    """Record each file that is not ingested as refused, so that no audit ingests it."""
    table = services.table(job.table_id)
    if table is not None:
        refusal = f"Spark failed: {reason}; to retry: dormouse dlq redrive {QUEUE}"
        for source in look_up_sources(services, table, job.sources).fresh(job.sources):
            key = source.key
            record(
                services, TrackedJob(table.id, source.id, "ingest"), Refused(refusal, subject=key)
            )


def replaced_shards(state: TableState, job: SparkJob) -> tuple[str, ...]:
    """Return the input shards of an assigned compaction; none for other jobs."""
    assigned = state.jobs.get(job.job_id) if isinstance(job, CompactionJob) else None
    return assigned.inputs if assigned else ()


def finish(
    services: Services, table: Table, state: TableState, job: SparkJob
) -> list[OutboundMessage]:
    """Delete the request of a complete job, publish its counts, and return messages to send.

    Drivers send no messages and publish no counts. Counts are published only while the request
    exists, so a redelivery publishes nothing twice. If this process crashes before it sends, the
    sweep makes up for it: it announces every table, and finds shards that can be collected.
    """
    request = load_spark_request(services, job.table_id, job.job_id)
    finished = _records_of_driver(services, table, request) if request is not None else []
    if not isinstance(job, ExportJob) or _is_whole(services, job):
        finalise(services, job.table_id, job.job_id)
    else:
        _record_failure(services, job)
    delete_spark_request(services, job)
    for each in finished:
        publish_counts(services, table.name, each)
    if isinstance(job, StatementJob):
        return following(services, job)
    freed = [s for s in request.inputs if s in state.unreferenced] if request is not None else []
    changed = OutboundMessage("table-changes", TableChanged(job.table_id))
    return [changed, *candidates(table, state, freed)]


def _records_of_driver(services: Services, table: Table, request: SparkRequest) -> list[JobRecord]:
    """Return the records that a driver wrote of a complete job: its end, and refused files.

    Nothing if functions ran the job: they publish their counts themselves.
    """
    if services.spark is None:
        return []
    job = request.job
    ended = services.tracker.get(job.table_id, job.job_id)
    found = [ended] if ended is not None and ended.state == "finished" else []
    if isinstance(job, IngestJob):
        left = look_up_sources(services, table, job.sources).fresh(job.sources)
        records = (services.tracker.get(job.table_id, source.id) for source in left)
        found += [each for each in records if each is not None and _is_refusal(each, request)]
    return found


def _is_whole(services: Services, job: ExportJob) -> bool:
    """Return whether an ended export has its manifest below the prefix that its record names."""
    known = services.tracker.get(job.table_id, job.job_id)
    manifest = load_manifest(services.results, known.subject) if known and known.subject else None
    return manifest is not None and manifest.export == job.job_id


def _record_failure(services: Services, job: ExportJob) -> None:
    """Record that an export failed, if an earlier record from a fast clock hides the failure."""
    known = services.tracker.get(job.table_id, job.job_id)
    if known is not None and not known.is_finished:
        reason = "it failed, and left no manifest; request it again"
        record(services, tracked_job(job), Failed(reason))


def retry_message(services: Services, request: SparkRequest) -> OutboundMessage:
    """Return the message that retries a job; its delay grows with the age of the request."""
    job = request.job
    seconds = wait_seconds(age_seconds(services, request))
    return OutboundMessage(QUEUE, SparkJobStep(job.table_id, job.job_id), seconds)


def age_seconds(services: Services, request: SparkRequest) -> float:
    """Return how long ago the job was first handed to Spark."""
    return (services.clock.now_ms() - request.requested_ms) / 1000


def _was_refused(services: Services, source: Source, request: SparkRequest) -> bool:
    known = services.tracker.get(request.job.table_id, source.id)
    return known is not None and _is_refusal(known, request)


def _is_refusal(known: JobRecord, request: SparkRequest) -> bool:
    """Return whether a record says that a file was refused since the job was requested."""
    return known.state == "refused" and known.updated_ms >= request.requested_ms
