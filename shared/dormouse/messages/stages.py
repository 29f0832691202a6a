"""The messages that stages send each other through queues, and the table of all stages.

Messages are small frozen structs, JSON on the wire.

Messages carry ids, not data: the state says what the inputs of a job are, so a message may be late,
repeated or lost without harm. Unknown fields and versions are refused, and so are ids and numbers
that Dormouse never generates: no store accepts them, however often the message is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import UnionType
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.errors import InvalidRequestError
from dormouse.messages.base import ALL_ROWS as ALL_ROWS
from dormouse.messages.base import Id as Id
from dormouse.messages.base import JsonKey as JsonKey
from dormouse.messages.base import Message as Message
from dormouse.messages.base import OfTable as OfTable
from dormouse.messages.base import SelectionMessage as SelectionMessage
from dormouse.messages.queries import QueryId, QueryMessage
from dormouse.model.sources import Source, WholeNumber
from dormouse.stored.decoding import decode_json
from dormouse.tables.spark_options import SparkOptions


class IngestJob(OfTable, frozen=True, tag="ingest_job"):
    """Ingest these sources into the table, in one commit.

    With `after_all`, a person had it sent again after its file was set aside.
    """

    generation: WholeNumber
    job_id: Id
    sources: tuple[Source, ...]
    spark: SparkOptions | UnsetType = UNSET
    after_all: bool | UnsetType = UNSET
    v: Literal[1] = 1


class FilesWaiting(OfTable, frozen=True, tag="files_waiting"):
    """These sources, the first of them seen at `since_ms`, are too few for a job: look for more
    later.
    """

    generation: WholeNumber
    since_ms: WholeNumber
    sources: tuple[Source, ...]
    v: Literal[1] = 1


class FilesDropped(Message, frozen=True, tag="files_dropped"):
    """These files were put into the inbox of an instance in a folder. S3 sends its own form."""

    sources: tuple[Source, ...]
    v: Literal[1] = 1


class TableChanged(OfTable, frozen=True, tag="table_changed"):
    """The state of the table changed, or may have: plan the jobs that are due.

    With `swept`, time has passed: also plan what is due because of its age.
    """

    swept: bool = False
    v: Literal[1] = 1


class CompactionJob(OfTable, frozen=True, tag="compaction_job"):
    """Run this job. The state has its partition and inputs."""

    generation: WholeNumber
    job_id: Id
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class PartitionSplits(OfTable, frozen=True, tag="partition_splits"):
    """Split those of these leaves that still have too many rows; with `forced`, however few they
    have.
    """

    generation: WholeNumber
    partitions: tuple[Id, ...]
    forced: bool = False
    v: Literal[1] = 1


class GarbageCandidates(OfTable, frozen=True, tag="garbage_candidates"):
    """These shards lost their last reference: delete them once their delay is over."""

    generation: WholeNumber
    shards: tuple[Id, ...]
    v: Literal[1] = 1


class PurgeStep(OfTable, frozen=True, tag="purge_step"):
    """Continue this purge. Its request in the data bucket says what to remove.

    `begun_ms` is the time at which a sweep started this chain of steps; left out if the request
    started it.
    """

    purge_id: Id
    begun_ms: WholeNumber | UnsetType = UNSET
    v: Literal[1] = 1


class ExportTask(OfTable, frozen=True, tag="export_task"):
    """Write the files of one task of an export. The task is described in the data bucket."""

    export_id: Id
    task: WholeNumber
    v: Literal[1] = 1


class ExportJob(OfTable, frozen=True, tag="export_job"):
    """Do the remaining tasks of the export whose id is that of the job, and complete the export."""

    job_id: Id
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class StatementJob(OfTable, frozen=True, tag="statement_job"):
    """Compute the statement of a query, for which Spark was asked. `table_id` is that of one of the
    tables that it names: the job is kept beside it.
    """

    job_id: Id
    query_id: QueryId
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class RequestStep(OfTable, frozen=True, tag="request_step"):
    """Reply to a request if all the jobs that it caused have ended; else look again later.

    `key` is that of the stored request beside its table. `request_id` and `request` say who asked
    for what, in case the table is gone; they are left out if a sweep started the chain of steps, at
    `begun_ms`.
    """

    key: Id
    request_id: str | UnsetType = UNSET
    request: str | UnsetType = UNSET
    begun_ms: WholeNumber | UnsetType = UNSET
    v: Literal[1] = 1


class SparkRunChanged(Message, frozen=True, tag="spark_run_changed"):
    """The state of a Spark run changed, or may have: look at it."""

    run_id: Id
    v: Literal[1] = 1


SparkJob = IngestJob | CompactionJob | ExportJob | StatementJob
"""The jobs that Spark does, if they are too large for a function or a request asks for Spark.
Then `spark` has its options."""


class SparkJobStep(OfTable, frozen=True, tag="spark_job_step"):
    """Continue this job if Spark still has it; this starts no new job."""

    job_id: Id
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the flow: the function of this name receives the messages of its queue.

    `takes` is the type of the messages that stages send to the queue. What others send to it is
    converted by the handler: notifications of S3, requests, events of EMR. `path` names,
    below ``dormouse.features``, what the stage does with a message: it takes `Services` and the
    message, and returns messages to send. It is imported when it is needed, so that no process
    loads the code of all stages. `overdue` names in the same way what a sweep sends again: it takes
    a `SweepCheck`, and yields messages of work that has not ended in time, as one may be lost.
    `dormouse wait` waits until nothing is left in the queues of stages that change tables.
    """

    name: str
    queue: str
    takes: type[Message] | UnionType
    path: str
    overdue: str = ""
    changes_tables: bool = True

    def load(self) -> Callable[..., Any]:
        """Import what the stage does."""
        return load(self.path)

    def decode(self, text: str | bytes) -> Message:
        """Parse a message that a stage sent to the queue.

        Raises:
            InvalidRequestError: it is no such message; the error says where it differs.
        """
        try:
            message: Message = decode_json(text, self.takes)
        except ValueError as error:
            raise InvalidRequestError(f"not a valid message for {self.name}: {error}") from error
        return message


STAGES = (
    Stage("batch_files", "files", FilesWaiting, "ingest.batch_files:batch_waiting_files"),
    Stage("ingest", "ingest-jobs", IngestJob, "ingest.isolate_files:ingest_or_isolate"),
    Stage("plan_table", "table-changes", TableChanged, "planning.plan_table:plan_table"),
    Stage(
        "compact",
        "compaction-jobs",
        CompactionJob,
        "compaction.compact_in_steps:compact_within_limits",
        overdue="compaction.overdue:overdue_compactions",
    ),
    Stage(
        "split_partition",
        "partition-splits",
        PartitionSplits,
        "splitting.split_partition:split_partition",
    ),
    Stage(
        "collect_garbage",
        "gc-candidates",
        GarbageCandidates,
        "garbage.collect_garbage:collect_garbage",
        changes_tables=False,
    ),
    Stage(
        "publish_iceberg",
        "iceberg-changes",
        TableChanged,
        "publishing.publish_iceberg:publish_iceberg",
        changes_tables=False,
    ),
    Stage(
        "administer",
        "admin",
        RequestStep,
        "administration.follow_request:follow_request",
        overdue="administration.overdue:overdue_requests",
        changes_tables=False,
    ),
    Stage(
        "purge_rows",
        "purges",
        PurgeStep,
        "purge.purge_rows:purge_rows",
        overdue="purge.overdue:overdue_purges",
    ),
    Stage(
        "export_rows",
        "exports",
        ExportTask,
        "export.export_rows:export_rows",
        overdue="export.overdue:overdue_exports",
        changes_tables=False,
    ),
    Stage(
        "answer_query",
        "queries",
        QueryMessage,
        "queries.answer_query:answer_query",
        overdue="queries.overdue:overdue_queries",
        changes_tables=False,
    ),
    Stage(
        "dispatch_spark",
        "spark-jobs",
        SparkJob | SparkJobStep,
        "spark.dispatch_spark:dispatch_spark",
        overdue="spark.overdue:overdue_spark_jobs",
    ),
    Stage("track_spark", "spark-runs", SparkRunChanged, "spark.track_spark:track_spark"),
)
"""All stages that a queue feeds, in the order of the flow. Each queue has a dead-letter queue."""
SCHEDULED = {"measure": "sweep.measure:measure", "sweep": "sweep.sweep:sweep"}
"""The functions that a schedule invokes instead: what each does with `Services` and a table."""
SERVED = {
    "serve_catalog": "catalog.serve_catalog:serve_catalog",
    "serve_http": "http.serve_http:serve_http",
}
"""The functions that an HTTP API invokes: what each does with what it needs of the instance, and a
request."""
CONNECTED = {"serve_websocket": "websocket.serve_websocket:serve_websocket"}
"""The functions that a WebSocket API invokes: what each does with an instance, and what happens to
a connection."""
QUEUES = tuple(stage.queue for stage in STAGES)
STAGE_OF = {stage.queue: stage for stage in STAGES}
"""The stage that each queue feeds."""


def load(path: str) -> Callable[..., Any]:
    """Import a function of a feature, ``module:function`` below ``dormouse.features``."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"dormouse.features.{module}"), name)
    return function


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """A message that a stage wants to send, and its queue of `QUEUES`.

    `reason` says why the message failed, if the queue is a dead-letter queue.
    """

    queue: str
    message: Message
    delay_seconds: int = 0
    reason: str = ""


def encode(message: Message) -> str:
    """Return the JSON text of a message."""
    return msgspec.json.encode(message).decode()


_Wanted = TypeVar("_Wanted", bound=Message)


class _Typed(msgspec.Struct):
    type: str | UnsetType = UNSET


def has_type(text: str | bytes) -> bool:
    """Return whether a text is JSON with a ``type``, as all of our messages are."""
    try:
        return decode_json(text, _Typed).type is not UNSET
    except ValueError:
        return False


def decode(text: str | bytes, kind: type[_Wanted]) -> _Wanted:
    """Parse a message of one type.

    Raises:
        InvalidRequestError: it is not such a message; the error says where it differs.
    """
    try:
        return decode_json(text, kind)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid {kind.__name__} message: {error}") from error
