"""What becomes of a job that Spark is to do: whether it is settled, and what is done then.

What is stored decides, not what Spark says of a run: a driver may die after its commit, and one
that ends well may have done nothing. All that differs from one kind of job to another is here.
"""

from __future__ import annotations

from dormouse.features.export.manifests import load_manifest
from dormouse.features.export.stored import (
    delete_export,
    load_export,
    task_messages,
    unfinished_tasks,
)
from dormouse.features.garbage.collect_garbage import candidates
from dormouse.features.ingest.known_sources import look_up_sources
from dormouse.features.spark.requests import SparkRequest, forget, spark_request
from dormouse.jobs.crashes import SPARK, set_aside
from dormouse.jobs.tracking import finalise, publish_counts, record
from dormouse.messages import (
    CompactionJob,
    ExportJob,
    IngestJob,
    OutboundMessage,
    SparkJob,
    SparkJobStep,
    TableChanged,
)
from dormouse.model.job_records import JobKind
from dormouse.model.sources import Source
from dormouse.model.spark_threshold import wait_seconds
from dormouse.model.state import TableState
from dormouse.ports import JobRecord, Services
from dormouse.stored.names import dead_letter_queue
from dormouse.tables.table import Table

QUEUE = "spark-jobs"


def kind_of(job: SparkJob) -> JobKind:
    """Return what the tracker calls such a job."""
    match job:
        case IngestJob():
            return "ingest"
        case CompactionJob():
            return "compaction"
        case ExportJob():
            return "export"


def is_early(state: TableState, job: SparkJob) -> bool:
    """Return whether a job is of a generation of its table that is still to come."""
    return not isinstance(job, ExportJob) and job.generation > state.generation


def is_settled(services: Services, state: TableState, job: SparkJob) -> bool:
    """Return whether nothing is left to do of a job.

    That is so if its table was emptied since; if a compaction is assigned no more; if each source
    of an ingest is ingested, or was refused since Spark was given the job (a file that was refused
    before was dropped again, and is to be judged again); and if an export has ended. To an export
    it does not matter what became of its table.
    """
    if isinstance(job, ExportJob):
        return load_export(services, job.table_id, job.job_id) is None
    if job.generation < state.generation:
        return True
    if isinstance(job, CompactionJob):
        return job.job_id not in state.jobs
    table = services.table(job.table_id)
    if table is None or job.generation < table.generation:
        return True
    left = look_up_sources(services, table, job.sources).fresh(job.sources)
    request = spark_request(services, job.table_id, job.job_id) if left else None
    return (
        not left
        or request is not None
        and all(_was_refused(services, source, request) for source in left)
    )


def input_of(services: Services, state: TableState, job: SparkJob) -> tuple[int, int]:
    """Return how many files, or shards, a job that is not settled reads, and their bytes.

    Of an export only the bytes are known.
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


def in_functions(services: Services, job: SparkJob) -> list[OutboundMessage]:
    """Return the messages that have functions do a job, where there is no Spark."""
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


def abandon(
    services: Services, job: SparkJob, reason: str, *, has_run: bool
) -> list[OutboundMessage]:
    """Let go of what a job holds that is given up, and return its dead letter.

    What Spark `has_run` as often as it may is not begun again by itself: the files of an ingest are
    refused, and a compaction is set aside. A compaction stays assigned in any case. Were its shards
    set free, the next planning would merge them just so, without end. If Spark only did not take
    it, the sweep has it tried again, more and more rarely. An export ends, as one does that
    functions give up: nothing is left to send back, and who wants it asks for it again.
    """
    match job:
        case ExportJob():
            export = load_export(services, job.table_id, job.job_id)
            if export is not None:
                delete_export(services, export)
            return []
        case CompactionJob() if has_run:
            set_aside(services, job.table_id, job.job_id, SPARK)
        case IngestJob() if has_run or len(job.sources) == 1:  # one is of a function that crashed
            _refuse(services, job, reason)
    return [OutboundMessage(dead_letter_queue(QUEUE), job, reason=reason)]


def _refuse(services: Services, job: IngestJob, reason: str) -> None:
    """Record of each file that is not ingested that it will not be, so that no audit begins it."""
    table = services.table(job.table_id)
    if table is not None:
        told = f"Spark gave it up: {reason}; for another try: dormouse dlq redrive {QUEUE}"
        for source in look_up_sources(services, table, job.sources).fresh(job.sources):
            key = source.key
            record(services, table.id, source.id, "ingest", "refused", subject=key, reason=told)


def replaced_by(state: TableState, job: SparkJob) -> tuple[str, ...]:
    """Return the shards that a job replaces; none unless it is a compaction that is assigned."""
    assigned = state.jobs.get(job.job_id) if isinstance(job, CompactionJob) else None
    return assigned.inputs if assigned else ()


def finish(
    services: Services, table: Table, state: TableState, job: SparkJob
) -> list[OutboundMessage]:
    """Forget a job that is settled, count it, and return the messages that follow from it.

    No driver sends or counts anything. What is forgotten is counted no more, so a message that
    comes again counts nothing twice; if this process dies before it sends, the sweep makes up for
    it: it announces every table, and finds the shards that nobody named for collection.
    """
    request = spark_request(services, job.table_id, job.job_id)
    told = _told_by_driver(services, table, request) if request is not None else []
    if not isinstance(job, ExportJob) or _is_whole(services, job):
        finalise(services, job.table_id, job.job_id)
    else:
        _tell_given_up(services, job)
    forget(services, job)
    for each in told:
        publish_counts(services, table.name, each)
    freed = [s for s in request.inputs if s in state.unreferenced] if request is not None else []
    changed = OutboundMessage("table-changes", TableChanged(job.table_id))
    return [changed, *candidates(table, state, freed)]


def _told_by_driver(services: Services, table: Table, request: SparkRequest) -> list[JobRecord]:
    """Return what a driver recorded of a job that is settled: how it ended, and refused files.

    Nothing where functions did the job, which count for themselves.
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
    """Return whether an export that is over has its manifest where the tracker says it goes."""
    known = services.tracker.get(job.table_id, job.job_id)
    manifest = load_manifest(services.results, known.subject) if known and known.subject else None
    return manifest is not None and manifest.export == job.job_id


def _tell_given_up(services: Services, job: ExportJob) -> None:
    """Record that an export failed, if a record by a clock that is ahead hides that it did."""
    known = services.tracker.get(job.table_id, job.job_id)
    if known is not None and not known.is_finished:
        reason = "it was given up, and left no manifest; ask for it again"
        record(services, job.table_id, job.job_id, "export", "failed", reason=reason)


def again(services: Services, request: SparkRequest) -> OutboundMessage:
    """Return the message that has a job tried again, later the older it is."""
    job = request.job
    seconds = wait_seconds(age_seconds(services, request))
    return OutboundMessage(QUEUE, SparkJobStep(job.table_id, job.job_id), seconds)


def age_seconds(services: Services, request: SparkRequest) -> float:
    """Return how long ago a job was first given to Spark."""
    return (services.clock.now_ms() - request.requested_ms) / 1000


def _was_refused(services: Services, source: Source, request: SparkRequest) -> bool:
    known = services.tracker.get(request.job.table_id, source.id)
    return known is not None and _is_refusal(known, request)


def _is_refusal(known: JobRecord, request: SparkRequest) -> bool:
    """Return whether a record says that a file was refused since Spark was given the job."""
    return known.state == "refused" and known.updated_ms >= request.requested_ms
