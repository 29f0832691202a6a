"""Record what happens to a job, for the tracker and for metrics."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from operator import add
from typing import Literal, TypeVar, cast

from dormouse import errors
from dormouse.messages import stages
from dormouse.messages.requests import Reply
from dormouse.ports import NO_TABLE, Services, Storage
from dormouse.state import jobs as records
from dormouse.state.state import TableState
from dormouse.stored.paths import JOB_NOTES, make_run_id, parse_job_note_path, set_aside_path
from dormouse.system import Ids
from dormouse.tables.table import Table, is_published

OUTCOME_UNKNOWN = "the job is over; it ended without recording an outcome"
"""The reason in the record of a job that ended without a record of its outcome."""
ALREADY_INGESTED = "already ingested: nothing was added; ask again to add the same rows once more"
"""The reason in the record of an ingest whose sources were all ingested before."""
INTERRUPTED = "the attempt was interrupted; another one follows"
FILE_REFUSED = "its file was refused"
"""The reason in the record of an ingest whose only file was refused, which has its own record."""
ISOLATED = "each file is ingested by a job of its own"
"""How the reason ends in the record of an ingest that was split into one job per file."""


_KINDS: Mapping[type[stages.SparkJob], records.JobKind] = {
    stages.IngestJob: "ingest",
    stages.CompactionJob: "compaction",
    stages.ExportJob: "export",
    stages.StatementJob: "query",
}


def tracked_job(job: stages.SparkJob) -> records.TrackedJob:
    """Return a job as the tracker knows it."""
    return records.TrackedJob(job.table_id, job.job_id, _KINDS[type(job)])


@contextmanager
def tracked(
    services: Services, job: records.TrackedJob, started: records.Started
) -> Iterator[None]:
    """Record that a job started, and how the attempt ended if the block raises.

    That a person or a signal interrupted it, or that the system failed, is no fault of the job. An
    error that is not ours may quote rows, so only its type is recorded.
    """
    try:
        record(services, job, started)  # if only its answer is lost, the job seems to run
        yield
    except errors.DormouseError as error:
        record(services, job, records.Failed(error.explanation))
        raise
    except (KeyboardInterrupt, SystemExit):
        record(services, job, records.Failed(INTERRUPTED))
        raise
    except BaseException as error:
        if isinstance(error, Exception) or errors.is_panic(error):
            ended = records.Failed if isinstance(error, OSError) else records.Died
            record(services, job, ended(f"it ended with {type(error).__name__}"))
        raise


def record(services: Services, job: records.TrackedJob, event: records.JobEvent) -> None:
    """Record what happened to a job just now, and publish its counts as metrics."""
    services.tracker.record(job, event, services.clock.now_ms())
    if services.metrics and (counts := _counts(job.kind, event)):
        table = services.tables.get(job.table_id) if job.table_id != NO_TABLE else None
        services.metrics.emit(table.name if table else NO_TABLE, counts)


def publish_counts(services: Services, table_name: str, record: records.JobRecord) -> None:
    """Publish the counts of a record as metrics."""
    if services.metrics and (counts := _counts(record.kind, record)):
        services.metrics.emit(table_name, counts)


_OUTCOMES = {
    event.state: event
    for event in (records.Accepted, records.Finished, records.Failed, records.Refused)
}
"""The event of each outcome of a request."""


def record_request(services: Services, table_id: str, reply: Reply, subject: str) -> None:
    """Record a request, as its reply describes it, under the table that it is about."""
    counts = reply.counts
    event = _OUTCOMES[reply.outcome](
        reply.reason,
        subject,
        files=counts.files,
        size_bytes=counts.size_bytes,
        rows=counts.rows or counts.removed,
    )
    request = records.TrackedRequest(table_id, reply.request_id, reply.request)
    services.tracker.record(request, event, services.clock.now_ms())


def is_isolated(record: records.JobRecord) -> bool:
    """Return whether an ingest was split into one job per file."""
    return record.reason.endswith(ISOLATED)


def finalise(services: Services, table_id: str, job_id: str, *, failed: bool = False) -> None:
    """Record that a job is over, if it ended without a record of its outcome.

    With `failed`, also if it was recorded as failed: its commit landed after all.
    """
    earlier = services.tracker.get(table_id, job_id)
    if earlier is None:
        return
    if not earlier.is_finished or (failed and earlier.state == "failed"):
        kind = cast(records.JobKind, earlier.kind)  # the record is that of a job, not of a request
        record(
            services, records.TrackedJob(table_id, job_id, kind), records.Finished(OUTCOME_UNKNOWN)
        )


def _counts(kind: str, event: records.JobEvent | records.JobRecord) -> dict[records.Metric, float]:
    """Return what an event or a record of a job adds to the metrics of its table."""
    match kind, event.state:
        case "ingest", "finished":
            return {records.Metric.ROWS_INGESTED: event.rows}
        case "compaction", "finished":
            return {records.Metric.ROWS_COMPACTED: event.rows}
        case "garbage", "finished":
            return {records.Metric.SHARDS_DELETED: event.files}
        case "ingest", "refused":
            return {records.Metric.FILES_REFUSED: 1}
        case _, "failed":
            return {records.Metric.JOBS_FAILED: 1}
    return {}


Progress = Callable[[int, int], None]
"""Called with the number of objects, such as shards, that are done, and of all."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def grouped(
    items: Iterable[_Item], most: float, *limits: tuple[Callable[[_Item], int], float]
) -> Iterator[tuple[_Item, ...]]:
    """Yield items, in order, in groups of at most `most`.

    Each limit is a size that items have, and the most of it that a group has. An item that has more
    than that is a group of its own.
    """
    group: list[_Item] = []
    sums: list[int] = []
    for item in items:
        sizes = [size(item) for size, _ in limits]
        sums = [*map(add, sums, sizes)] if group else sizes
        is_over = any(total > most_size for total, (_, most_size) in zip(sums, limits, strict=True))
        if group and (len(group) == most or is_over):
            yield tuple(group)
            group, sums = [], sizes
        group.append(item)
    if group:
        yield tuple(group)


def map_watched(
    work: Callable[[_Item], _Result],
    items: Collection[_Item],
    threads: int,
    watch: Progress | None = None,
    *,
    done: int = 0,
) -> list[_Result]:
    """Return the results of all items, in their order; `done` are done already. If one raises, so
    does this, and those that are not begun are left.
    """
    results = []
    pool = ThreadPoolExecutor(threads)
    try:
        for result in pool.map(work, items):
            results.append(result)
            if watch is not None:
                watch(done + len(results), done + len(items))
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def new_run(services: Services, table: Table) -> str:
    """Return the id of a new run, whose shards all readers can read if the table is published, and
    have index objects if the table says so.

    A compaction is a run of its job's id: any process that runs it again writes the same encodings,
    though the property of the table changed meanwhile.
    """
    properties = table.properties
    return make_run_id(
        services.ids.new(), plain=is_published(properties), indexed=properties.index_objects == "on"
    )


# Attempts at one part of a job, a step or a task: find those that crashed.
#
# The tracker records the attempts at jobs. A job may have thousands of parts, so the attempts at
# parts are marked beside the job: one marker when an attempt begins, another when it ends or says
# why it failed. A crashed attempt leaves only the first. The markers are deleted with the job.

_BEGUN, _ENDED = ".begun", ".ended"


@contextmanager
def record_attempt(storage: Storage, ids: Ids, prefix: str) -> Iterator[None]:
    """Mark the begin and the end of an attempt at the part whose markers are below `prefix`.

    Within the block, a DormouseError counts as an end. After a crash, that marker is missing.
    """
    run = f"{prefix}{ids.new()}"
    storage.put(run + _BEGUN, b"")
    try:
        yield
    except errors.DormouseError:
        storage.put(run + _ENDED, b"")
        raise
    storage.put(run + _ENDED, b"")


def crashed_attempts(storage: Storage, prefix: str) -> list[str]:
    """Return the newest attempts at a part, in a row, that crashed or are still running.

    A part may take many attempts, each of which makes progress and may crash at another place.
    """
    paths = {item.path for item in storage.list(prefix)}
    starts = (path.removesuffix(_BEGUN) for path in paths if path.endswith(_BEGUN))
    newest_first = sorted(starts, reverse=True)
    return list(takewhile(lambda run: run + _ENDED not in paths, newest_first))


def clear_crashes(storage: Storage, prefix: str) -> None:
    """Mark all attempts as ended, so that a person who knows of the crashes can have it retried."""
    for run in crashed_attempts(storage, prefix):
        storage.put(run + _ENDED, b"")


# What a sweep knows when it looks for work of a table whose message may be lost.
#
# Each stage of `messages.STAGES` that stores its work names a function, `overdue`, which gets a
# `SweepCheck` and yields the messages to send again.


def unknown(job_id: str) -> bool:
    """Return False: nobody can say whether a message of a job is lost."""
    return False


@dataclass(frozen=True, slots=True)
class SweepCheck:
    """One table in one sweep.

    `is_due` says whether work that began at a time is due to be sent again. `is_lost` says whether
    no queue has a message of a job, where queues can be looked into: it is then due at once.
    `spark_jobs` has the times at which Spark was asked for its jobs; `with_spark` also has jobs of
    which that cannot be read. Errors of stored work that is damaged are added to `damaged`: the
    sweep raises them after it has done everything else.
    """

    services: Services
    table: Table
    state: TableState
    is_due: Callable[[int], bool]
    spark_jobs: Mapping[str, int]
    with_spark: Set[str]
    is_lost: Callable[[str], bool] = unknown
    damaged: list[errors.DormouseError] = field(default_factory=list)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Do something; the sweep goes on if that fails because something is damaged or lost."""
        try:
            yield
        except (errors.CorruptDataError, errors.NotFoundError) as error:
            self.damaged.append(error)


# The retry policy: retry soon at first, then with growing intervals (backoff).
#
# What fails for good must not slow down what would succeed, nor fill the queue with copies of its
# own message. Intervals follow from the time since the beginning, so nobody has to count attempts.

MAX_RECEIVES = 3
"""How often a function receives a message before it moves to the dead-letter queue; the template
says the same."""
MAX_PAUSE_FACTOR = 24
"""The longest pause between retries, as a multiple of the retry interval: a day for the default
of an hour."""
SWEEP_SECONDS = 5 * 60
"""The interval of the sweep; the template says the same."""
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 30, 60 * 60


def is_retry_due(begun_ms: int, since_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether a retry of what began at `begun_ms` became due after `since_ms` and up to now.

    Retries are due 1, 2, 4, 8 … intervals of `retry_ms` after the beginning, so each pause is as
    long as all before it together; from `MAX_PAUSE_FACTOR` intervals on, also at each multiple of
    that time. With an interval of an hour: after 1, 2, 4, 8, 16, 24, 32 and 48 hours. With an
    interval of 0, a retry is always due.
    """
    if retry_ms <= 0:
        return True

    def times_due(by_ms: int) -> int:
        waits = max(0, by_ms - begun_ms) // retry_ms
        return waits.bit_length() + waits // MAX_PAUSE_FACTOR

    return times_due(now_ms) > times_due(since_ms)


def is_chain_expired(begun_ms: int, requested_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether a chain of messages is too old to continue.

    The chain was begun at `begun_ms` for a request of `requested_ms`. When it expires, the sweep
    has had twice the time it needs to begin another one, in case a message of this one was lost.
    """
    age_ms = max(begun_ms - requested_ms, retry_ms)
    pause_ms = max(min(age_ms, MAX_PAUSE_FACTOR * retry_ms), SWEEP_SECONDS * 1000)
    return now_ms - begun_ms > 2 * pause_ms


def backoff_ms(attempts: int) -> int:
    """Return how long to wait after `attempts` failures: twice as long each, up to a limit."""
    doublings = min(max(attempts - 1, 0), 16)
    return min(MIN_BACKOFF_SECONDS << doublings, MAX_BACKOFF_SECONDS) * 1000


def permanent_failure(error: BaseException) -> str:
    """Return why a retry after this error is useless; an empty string if it may succeed.

    An error that is not a DormouseError may quote rows in its text, so it is never shown.
    """
    if isinstance(error, ExceptionGroup):
        reasons = [permanent_failure(each) for each in error.exceptions]
        return "; ".join(reasons) if all(reasons) else ""
    if not isinstance(error, errors.DormouseError):
        return ""
    may_pass = isinstance(error, errors.UnavailableError | errors.OutcomeUnknownError)
    is_refused = isinstance(error, errors.ServiceRefusedError)
    return "" if may_pass and not is_refused else error.explanation


# Decide what happens to a job whose attempts crash: out of time, out of memory, or by a bug.
#
# A function that is cut off records nothing, and the tracker shows the attempt as still running.
# After `CRASH_LIMIT` such attempts in a row, the same job is not tried again in the same place. An
# instance with Spark gives it to Spark. Without Spark, `features.ingest` splits an ingest into
# one job per file, and `features.compaction_steps` cuts a compaction by key. What cannot be made
# smaller is set aside: a dead letter says once what to do, and only a person starts the job again
# in that place.

CRASH_LIMIT = 2
"""One crashed attempt may be bad luck. A message moves to the dead letters after three receives."""
CRASHED = f"{CRASH_LIMIT} attempts crashed, out of time or memory"
FUNCTION: Literal["function"] = "function"
SPARK: Literal["spark"] = "spark"
WHOLE: Literal["whole"] = "whole"
"""Not as a whole in one function; without Spark, steps may do it."""
Place = Literal["function", "spark", "whole"]


def has_crashed(services: Services, table_id: str, job_id: str) -> bool:
    """Return whether the newest attempts at a job crashed, so that another would be useless.

    An attempt that still runs counts as crashed if the job is delivered twice more meanwhile.
    """
    record = services.tracker.get(table_id, job_id)
    return record is not None and record.crashed_attempts >= CRASH_LIMIT


def hand_to_spark(
    services: Services, job: stages.SparkJob, reason: str
) -> list[stages.OutboundMessage]:
    """Return the message that gives a job to Spark. Requires that the instance has Spark.

    A compaction whose attempts crashed is set aside as a whole, also if Spark fails it.
    """
    if isinstance(job, stages.CompactionJob) and reason == CRASHED:
        set_aside(services, job.table_id, job.job_id, WHOLE)
    record(services, tracked_job(job), records.Assigned(f"handed to Spark: {reason}"))
    return [stages.OutboundMessage("spark-jobs", job)]


def set_aside(services: Services, table_id: str, job_id: str, place: Place) -> None:
    """Mark that a job that stays assigned is not retried automatically in this place."""
    services.storage.put(set_aside_path(table_id, job_id, place), b"")


@dataclass(frozen=True, slots=True)
class JobNotes:
    """What is stored about a job: where it is set aside, its last progress, and the paths."""

    set_aside: frozenset[str] = frozenset()
    newest_ms: int = 0
    paths: tuple[str, ...] = ()


def job_notes(services: Services, table_id: str) -> Mapping[str, JobNotes]:
    """Return what is stored about a table's jobs that were too large for a function, by job id."""
    notes: dict[str, JobNotes] = {}
    for item in services.storage.list(JOB_NOTES.prefix(table_id)):
        job_id, name = parse_job_note_path(item.path)
        before = notes.get(job_id, JobNotes())
        place = name.removeprefix("set-aside-")
        aside = {place} - {name}  # a step's note names no place
        notes[job_id] = JobNotes(
            before.set_aside | aside,
            max(before.newest_ms, item.modified_ms),
            (*before.paths, item.path),
        )
    return notes
