"""Jobs: the record of each, the events it is folded from, metrics, and what is for Spark."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Literal

from dormouse.state.partitions import Job
from dormouse.state.state import AssignJob, TableState
from dormouse.tables.properties import Properties, SparkOptions

JobKind = Literal[
    "ingest",
    "compaction",
    "split",
    "purge",
    "export",
    "garbage",
    "sweep",
    "dispute",
    "sealing",
    "query",
]
"""The kinds of jobs. A request's record has the name of its verb instead."""

JobState = Literal[
    "",
    "waiting",
    "accepted",
    "assigned",
    "running",
    "finished",
    "failed",
    "refused",
    "cancelled",
    "damaged",
]
"""The states of a record; empty for a job of which only a later state was recorded.

A file that no job has taken up yet is ``waiting``; that is never stored."""

ENDED: Final = ("finished", "failed", "refused", "cancelled")
"""The states in which a job has ended."""

DAMAGED: Final = "damaged"
"""The state of a record that cannot be read; its reason says why. It is shown, not stored."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the tracker shows of a job, a request or a refused source.

    `state` is ``assigned``, ``running``, ``finished``, ``failed``, ``refused`` or, of a query,
    ``cancelled``; or ``accepted``, for a request whose jobs have begun. `subject` is what the job
    is about: a source's key, a partition, a table. `files` and `size_bytes` describe its input; it
    reads `rows_read` and writes `rows`. `purge_id` names the purge that it removes rows for, if
    any. Of a query, `who` is who asked, `parts` are its sub-queries, of which `parts_done` are
    done, and `requests` counts the reads of shards, of `size_bytes` together.

    The tracker derives the other fields from the sequence of records: `started_ms` is the start of
    the newest attempt and `finished_ms` its end, `attempts` counts the attempts, and
    `crashed_attempts` those since the last recorded end that began and did not record an outcome. 0
    means unknown, or not yet.
    """

    table_id: str
    job_id: str
    kind: JobKind | str
    state: JobState
    subject: str = ""
    reason: str = ""
    rows: int = 0
    updated_ms: int = 0
    files: int = 0
    size_bytes: int = 0
    rows_read: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    attempts: int = 0
    crashed_attempts: int = 0
    purge_id: str = ""
    who: str = ""
    parts: int = 0
    parts_done: int = 0
    requests: int = 0

    @property
    def is_finished(self) -> bool:
        """Return whether the job has ended, unless it is started again."""
        return self.state in ENDED

    @property
    def began_ms(self) -> int:
        """When its newest attempt started, or else when something was last recorded of it."""
        return self.started_ms or self.updated_ms

    @property
    def seconds(self) -> float | None:
        """Return the duration of the newest attempt in seconds; None if not known."""
        if not (self.started_ms and self.finished_ms):
            return None
        return (self.finished_ms - self.started_ms) / 1000

    @property
    def rows_per_second(self) -> int | None:
        """Return the rows of a second of the newest attempt; None if not known."""
        return round(self.rows / self.seconds) if self.seconds else None


# What happens to a job, as values, and the fold of these events to the record of the job.
#
# A stage says what happened: ``Started(subject="t/a.csv")``, ``Failed("no space")``. The tracker
# stores one record per job, and `fold_event` alone decides how an event changes it. A job that is
# started, fails, and is started again has 2 attempts; its record has the start of the second.

MAX_REASON_CHARACTERS = 10_000
"""Items of DynamoDB end at 400 KB, and nobody reads longer reasons."""
MAX_SUBJECT_CHARACTERS = 1024  # as many as a key of S3 has


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """Which job an event is about; `purge_id` names the purge that it removes rows for, if any."""

    table_id: str
    id: str
    kind: JobKind
    purge_id: str = ""


@dataclass(frozen=True, slots=True)
class TrackedRequest:
    """Which administrator's request an event is about; `kind` is the name of its verb."""

    table_id: str
    id: str
    kind: str
    purge_id: ClassVar[str] = ""


Tracked = TrackedJob | TrackedRequest
"""What an event can be about."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The base of all events: what they can say about a job.

    `subject` is what the job is about, `files` and `size_bytes` describe its input. `rows_read` are
    the rows that it read, `rows` those that it wrote. Of a query: `who` asked, how many `parts` it
    has, how many are done, and how many `requests` read shards.
    """

    state: ClassVar[JobState]
    reason: str = ""
    subject: str = ""
    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    rows_read: int = 0
    who: str = ""
    parts: int = 0
    parts_done: int = 0
    requests: int = 0

    def __init_subclass__(cls, *, state: JobState) -> None:
        """Set the state of a job to which the event happened."""
        cls.state = state


class Accepted(_Event, state="accepted"):
    """A request is accepted: the jobs that it causes have begun."""


class Assigned(_Event, state="assigned"):
    """The job waits for a run, or was handed on; `reason` says where to."""


class Started(_Event, state="running"):
    """An attempt starts."""


class Finished(_Event, state="finished"):
    """The job is done; `reason` says what is remarkable about it."""


class Failed(_Event, state="failed"):
    """The attempt failed, and perhaps another follows."""


class Died(_Event, state="failed"):
    """The attempt ended by an error that no stage foresees, which counts as a crash."""


class Refused(_Event, state="refused"):
    """The request or file is invalid, and is not tried again."""


class Cancelled(_Event, state="cancelled"):
    """The job was cancelled by its owner."""


class Progressed(_Event, state="running"):
    """A part of the job is done."""


JobEvent = (
    Accepted | Assigned | Started | Progressed | Finished | Failed | Died | Refused | Cancelled
)


def fold_event(
    record: JobRecord | None, job: Tracked, event: JobEvent, at_ms: int
) -> JobRecord | None:
    """Return the record of a job after an event at `at_ms`; None if `record` stays.

    An event that is older than the record changes nothing. Nor do `Assigned` and `Progressed` if
    the job is finished: they may be recorded after that. An event without a subject, files, size,
    purge or what queries have leaves those of the record; a new attempt also leaves the rows of the
    one before, and the reason of a job that is done. Long texts are cut off.
    """
    if record is not None and record.updated_ms > at_ms:
        return None
    if record is not None and record.state == "finished" and isinstance(event, Assigned):
        return None
    if record is not None and record.is_finished and isinstance(event, Progressed):
        return None
    before = record or JobRecord(job.table_id, job.id, job.kind, "")
    starts = isinstance(event, Started)
    reason = before.reason if starts and before.state == "finished" else event.reason
    settles = isinstance(event, Finished | Failed | Refused | Cancelled)
    ends = settles or isinstance(event, Died)
    return JobRecord(
        job.table_id,
        job.id,
        job.kind,
        event.state,
        event.subject[:MAX_SUBJECT_CHARACTERS] or before.subject,
        reason[:MAX_REASON_CHARACTERS],
        rows=before.rows if starts else event.rows,
        updated_ms=at_ms,
        files=event.files or before.files,
        size_bytes=event.size_bytes or before.size_bytes,
        rows_read=before.rows_read if starts else event.rows_read,
        started_ms=at_ms if starts else before.started_ms,
        finished_ms=at_ms if ends else 0 if starts else before.finished_ms,
        attempts=before.attempts + starts,
        crashed_attempts=0 if settles else before.crashed_attempts + starts,
        purge_id=job.purge_id or before.purge_id,
        who=event.who or before.who,
        parts=event.parts or before.parts,
        parts_done=max(event.parts_done, before.parts_done),
        requests=max(event.requests, before.requests),
    )


# Every metric of a table: its name, its unit, and whether it is a gauge or a counter.
#
# The dashboard and the alarms of `template.yaml` use the same names; a test compares them.


class Metric(Enum):
    """A metric as CloudWatch knows it: name and unit.

    Those up to `ICEBERG_LAG_SECONDS` are gauges: the newest value applies. The ones after it are
    counters of events: values are added up. `UNREGISTERED` is a gauge of the instance: the number
    of ids in the data bucket that belong to no known table.
    """

    SHARDS = ("Shards", "Count")
    ROWS = ("Rows", "Count")
    REFERENCES = ("References", "Count")
    PARTITIONS = ("Partitions", "Count")
    LEAF_PARTITIONS = ("LeafPartitions", "Count")
    REFERENCES_PER_LEAF = ("ReferencesPerLeaf", "Count")
    JOBS_ASSIGNED = ("JobsAssigned", "Count")
    OLDEST_JOB_AGE_SECONDS = ("OldestJobAge", "Seconds")
    GARBAGE_SHARDS = ("GarbageShards", "Count")
    DISPUTED_SHARDS = ("DisputedShards", "Count")
    LOG_LENGTH = ("LogLength", "Count")
    ICEBERG_LAG_SECONDS = ("IcebergLag", "Seconds")
    ROWS_INGESTED = ("RowsIngested", "Count")
    ROWS_COMPACTED = ("RowsCompacted", "Count")
    SHARDS_DELETED = ("ShardsDeleted", "Count")
    FILES_REFUSED = ("FilesRefused", "Count")
    JOBS_FAILED = ("JobsFailed", "Count")
    UNREGISTERED = ("Unregistered", "Count")

    @property
    def title(self) -> str:
        """The metric's name in CloudWatch."""
        return self.value[0]

    @property
    def unit(self) -> str:
        """The metric's unit, as CloudWatch spells it."""
        return self.value[1]


# Decide which jobs Spark does, how large a cluster each gets, and when a job is retried.

LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 30, 900
WAITS_PER_AGE = 8
"""A job waits for this fraction of its age: short waits at first, long ones later."""
PATIENCE_SECONDS = 24 * 60 * 60
"""A job from which Spark accepts nothing for this long moves to the dead-letter queue: a person
has to look."""


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The most executors of a job, and the size of each; the driver is as large as one of them."""

    executors: int
    executor_cores: int
    executor_memory_bytes: int


def ingest_queue(
    input_bytes: int, properties: Properties, options: SparkOptions | None = None
) -> str:
    """Return the queue of an ingest with this much input."""
    least = properties.ingest_spark_bytes
    return "spark-jobs" if options or (least and input_bytes >= least) else "ingest-jobs"


def compaction_queue(
    state: TableState,
    job: Job | AssignJob,
    properties: Properties,
    options: SparkOptions | None = None,
) -> str:
    """Return the queue of a compaction, by what it reads; without Spark, that of functions."""
    heavy = options or is_heavy_compaction(state, job, properties)
    return "spark-jobs" if heavy else "compaction-jobs"


def is_heavy_compaction(state: TableState, job: Job | AssignJob, properties: Properties) -> bool:
    """Return whether a compaction reads more than one function should."""
    least = properties.compaction_spark_bytes
    return bool(least) and compaction_bytes(state, job) >= least


def compaction_bytes(state: TableState, job: Job | AssignJob) -> int:
    """Return about how many stored bytes of a job's inputs lie in its partition."""
    size_bytes = 0
    for name in job.inputs:
        rows = sum(each.rows for each in state.references_below(job.partition, name))
        if rows:
            shard = state.shards[name]
            size_bytes += shard.size_bytes * min(rows, shard.rows) // max(shard.rows, 1)
    return size_bytes


def cluster_size(
    input_bytes: int, properties: Properties, options: SparkOptions | None = None
) -> ClusterSize:
    """Return the cluster for a job with this much input: an executor for each share, up to a limit.

    What `options` says overrides the properties. Spark adds and removes executors with tasks, so
    the number is an upper limit.
    """
    options = options or SparkOptions()
    share = -(-input_bytes // properties.spark_executor_input_bytes)
    return ClusterSize(
        executors=options.spark_executors or min(max(share, 1), properties.spark_executors),
        executor_cores=options.spark_executor_cores or properties.spark_executor_cores,
        executor_memory_bytes=options.spark_executor_memory_bytes
        or properties.spark_executor_memory_bytes,
    )


def wait_seconds(age_seconds: float) -> int:
    """Return how long a job of this age waits for its next attempt."""
    return max(LEAST_WAIT_SECONDS, min(MOST_WAIT_SECONDS, int(age_seconds / WAITS_PER_AGE)))
