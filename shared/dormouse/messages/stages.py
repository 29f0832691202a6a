"""The messages that stages send each other through queues, and the table of all stages.

Messages are small frozen structs, JSON on the wire.

Messages carry ids, not data: the state says what the inputs of a job are, so a message may be late,
repeated or lost without harm. Unknown fields and versions are refused, and so are ids and numbers
that Dormouse never generates: no store accepts them, however often the message is delivered.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.errors import InvalidRequestError
from dormouse.state.sources import Source, WholeNumber
from dormouse.stored.decoding import decode_json
from dormouse.tables.properties import SparkOptions

# What all messages are made of: their base, ids, and the selection of rows.

Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,999}\Z")]
"""The id of a table, job, partition, shard or similar. DynamoDB limits keys to 1 KB."""


class Message(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True
):
    """The base of all messages; `v` is the version of its form.

    A field that is added to a form later is left out if it is empty: functions of the previous
    release do not know it, and refuse a message that has it.
    """

    v: Literal[1] = 1


class OfTable(Message, frozen=True):
    """The base of messages about one table. Queues are fair among tables, by this id."""

    table_id: Id


JsonKey = tuple[object, ...]
"""A key in a message: its parts, row keys and then sort keys. `key_codec` says what each is."""


class SelectionMessage(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    kw_only=True,
):
    """Which rows and columns of a table are asked for; by default all.

    A row is selected if its key begins with one of `keys` or is in one of `ranges`, and `where` is
    true of it, which is a condition in SQL. A key is a list of parts, row keys and then sort keys.
    A range is a pair of a first key, inclusive, and a last key, exclusive, null for an open end.
    `columns` are those to return, none for all. At most `limit` rows are selected, the first in key
    order. `as_of` is a version, a tag or an ISO 8601 time, null for now.
    """

    keys: tuple[JsonKey, ...] = ()
    ranges: tuple[tuple[JsonKey | None, JsonKey | None], ...] = ()
    where: str = ""
    columns: tuple[str, ...] = ()
    limit: int | None = None
    as_of: int | str | None = None


ALL_ROWS = SelectionMessage()


# Messages about queries: what people and programs send to the queue ``queries``, and sub-queries.
#
# Everybody who may send to that queue may ask. The sender that the queue names is the one who
# asked; what the message says about that does not count. What the instance sends to itself about a
# query says who asked it; nobody else but who asked can send the same.

QueryId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")]
"""The id of a query. It is a part of paths of objects."""
ResultFormat = Literal["parquet", "arrow", "feather", "csv", "json"]
"""The formats of results; `results.formats.ResultFormat` says what each is."""
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]


class QueryLimits(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """What a query may take; one that takes more fails. Properties of the table set the most, which
    is also what null means.

    `rows` and `result_bytes` are those of its result. `read_bytes` are read of shards, `seconds`
    are from its beginning to its end. `dollars` is what its requests and functions cost on AWS, as
    far as that is counted.
    """

    rows: _Count | None = None
    result_bytes: _Count | None = None
    read_bytes: _Count | None = None
    seconds: _Count | None = None
    dollars: _Positive | None = None


class AnswerQuery(Message, frozen=True, tag="answer_query", kw_only=True):
    """Answer a query, once for each `query_id`, however often the message is delivered.

    It asks for the selected rows of `table`, or for those of a statement in `sql`, with the values
    of its parameters by name. The result is files of one format below ``queries/<query_id>/`` in
    the results bucket, and a manifest that is put last. If `to` names a queue of the instance's
    list, the result is sent there, too. With `spark`, a statement is one in Spark's dialect, which
    Spark computes on a cluster of these options. `who` is who asks: the function puts the sender
    there that SQS names.
    """

    query_id: QueryId
    table: str = ""
    selection: SelectionMessage = ALL_ROWS
    sql: str = ""
    parameters: dict[str, str | int | float | bool | None] = {}
    format: ResultFormat = "parquet"
    to: str = ""
    limits: QueryLimits = QueryLimits()
    who: str = ""
    spark: SparkOptions | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse a message that names both a table and a statement, or neither."""
        if bool(self.table) == bool(self.sql):
            raise ValueError("a query has either a table or a statement in sql")
        if self.sql and self.selection != ALL_ROWS:
            raise ValueError("a statement in sql says itself which rows it selects")
        if self.table and self.spark:
            raise ValueError("Spark computes a statement in sql; export_rows has it read a table")


class CancelQuery(Message, frozen=True, tag="cancel_query", kw_only=True):
    """End a query that has not ended. Who asked can cancel it, as `AnswerQuery` has it, and who
    administers all tables of the instance by an access rule.
    """

    query_id: QueryId
    who: str = ""


class QueryTask(Message, frozen=True, tag="query_task"):
    """Answer one sub-query of a query that `who` asked. Both are described in the results
    bucket.
    """

    query_id: QueryId
    task: WholeNumber
    who: str = ""


QueryMessage = AnswerQuery | CancelQuery | QueryTask
"""All messages about queries."""


class IngestJob(OfTable, frozen=True, tag="ingest_job"):
    """Ingest these sources into the table, in one commit.

    With `after_all`, a person had it sent again after its file was set aside.
    """

    generation: WholeNumber
    job_id: Id
    sources: tuple[Source, ...]
    spark: SparkOptions | UnsetType = UNSET
    after_all: bool | UnsetType = UNSET


class FilesWaiting(OfTable, frozen=True, tag="files_waiting"):
    """These sources, the first of them seen at `since_ms`, are too few for a job: look for more
    later.
    """

    generation: WholeNumber
    since_ms: WholeNumber
    sources: tuple[Source, ...]


class FilesDropped(Message, frozen=True, tag="files_dropped"):
    """These files were put into the inbox of an instance in a folder. S3 sends its own form."""

    sources: tuple[Source, ...]


class TableChanged(OfTable, frozen=True, tag="table_changed"):
    """The state of the table changed, or may have: plan the jobs that are due.

    With `swept`, time has passed: also plan what is due because of its age.
    """

    swept: bool = False


class CompactionJob(OfTable, frozen=True, tag="compaction_job"):
    """Run this job. The state has its partition and inputs."""

    generation: WholeNumber
    job_id: Id
    spark: SparkOptions | UnsetType = UNSET


class PartitionSplits(OfTable, frozen=True, tag="partition_splits"):
    """Split those of these leaves that still have too many rows; with `forced`, however few they
    have.
    """

    generation: WholeNumber
    partitions: tuple[Id, ...]
    forced: bool = False


class GarbageCandidates(OfTable, frozen=True, tag="garbage_candidates"):
    """These shards lost their last reference: delete them once their delay is over. Of `files`,
    which a table with encrypted columns was to ingest, delete at once those that it has ingested.
    """

    generation: WholeNumber
    shards: tuple[Id, ...]
    files: tuple[Source, ...] = ()


class PurgeStep(OfTable, frozen=True, tag="purge_step"):
    """Continue this purge. Its request in the data bucket says what to remove.

    `begun_ms` is the time at which a sweep started this chain of steps; left out if the request
    started it.
    """

    purge_id: Id
    begun_ms: WholeNumber | UnsetType = UNSET


class ExportTask(OfTable, frozen=True, tag="export_task"):
    """Write the files of one task of an export. The task is described in the data bucket."""

    export_id: Id
    task: WholeNumber


class ExportJob(OfTable, frozen=True, tag="export_job"):
    """Do the remaining tasks of the export whose id is that of the job, and complete the export."""

    job_id: Id
    spark: SparkOptions | UnsetType = UNSET


class StatementJob(OfTable, frozen=True, tag="statement_job"):
    """Compute the statement of a query, for which Spark was asked. `table_id` is that of one of the
    tables that it names: the job is kept beside it.
    """

    job_id: Id
    query_id: QueryId
    spark: SparkOptions | UnsetType = UNSET


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


class SparkRunChanged(Message, frozen=True, tag="spark_run_changed"):
    """The state of a Spark run changed, or may have: look at it."""

    run_id: Id


SparkJob = IngestJob | CompactionJob | ExportJob | StatementJob
"""The jobs that Spark does, if they are too large for a function or a request asks for Spark.
Then `spark` has its options."""


class SparkJobStep(OfTable, frozen=True, tag="spark_job_step"):
    """Continue this job if Spark still has it; this starts no new job."""

    job_id: Id


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the flow: the function of this name receives the messages of its queue.

    `takes` is the type of the messages that stages send to the queue. What others send to it is
    converted by the handler: notifications of S3, requests, events of EMR. `path` names,
    below ``dormouse.features``, what the stage does with a message: it takes `Services` and the
    message, and returns messages to send. It is imported when it is needed, so that no process
    loads the code of all stages. `overdue` names in the same way what a sweep sends again: it takes
    a `SweepCheck`, and yields messages of work that has not ended in time, as one may be lost.
    `dormouse wait` waits until nothing is left in the queues of stages that change tables. A person
    is called when a message has waited for `late_seconds`.
    """

    name: str
    queue: str
    takes: type[Message] | UnionType
    path: str
    overdue: str = ""
    changes_tables: bool = True
    late_seconds: int = 3600

    def load(self) -> Callable[..., Any]:
        """Import what the stage does."""
        return load(self.path)

    def decode(self, text: str | bytes) -> Message:
        """Parse a message that a stage sent to the queue.
        Raises InvalidRequestError: it is no such message; the error says where it differs.
        """
        try:
            message: Message = decode_json(text, self.takes)
        except ValueError as error:
            raise InvalidRequestError(f"not a valid message for {self.name}: {error}") from error
        return message


STAGES = (
    Stage(
        "batch_files", "files", FilesWaiting, "batch_files:batch_waiting_files", late_seconds=1800
    ),
    Stage("ingest", "ingest-jobs", IngestJob, "ingest:ingest_or_isolate"),
    Stage("plan_table", "table-changes", TableChanged, "planning:plan_table", late_seconds=1800),
    Stage(
        "compact",
        "compaction-jobs",
        CompactionJob,
        "compaction:compact_within_limits",
        overdue="planning:overdue_compactions",
        late_seconds=7200,
    ),
    Stage("split_partition", "partition-splits", PartitionSplits, "splitting:split_partition"),
    Stage(
        "collect_garbage",
        "gc-candidates",
        GarbageCandidates,
        "garbage:collect_garbage",
        changes_tables=False,
        late_seconds=7200,
    ),
    Stage(
        "publish_iceberg",
        "iceberg-changes",
        TableChanged,
        "publish_iceberg:publish_iceberg",
        changes_tables=False,
        late_seconds=1800,
    ),
    Stage(
        "administer",
        "admin",
        RequestStep,
        "administration:follow_request",
        overdue="administration:overdue_requests",
        changes_tables=False,
    ),
    Stage(
        "purge_rows",
        "purges",
        PurgeStep,
        "purge_rows:purge_rows",
        overdue="purge:overdue_purges",
        late_seconds=7200,
    ),
    Stage(
        "export_rows",
        "exports",
        ExportTask,
        "export_rows:export_rows",
        overdue="export:overdue_exports",
        changes_tables=False,
        late_seconds=7200,
    ),
    Stage(
        "answer_query",
        "queries",
        QueryMessage,
        "answer_query:answer_query",
        overdue="queries:overdue_queries",
        changes_tables=False,
        late_seconds=900,
    ),
    Stage(
        "dispatch_spark",
        "spark-jobs",
        SparkJob | SparkJobStep,
        "spark_jobs:dispatch_spark",
        overdue="spark_jobs:overdue_spark_jobs",
    ),
    Stage("track_spark", "spark-runs", SparkRunChanged, "spark_jobs:track_spark"),
)
"""All stages that a queue feeds, in the order of the flow. Each queue has a dead-letter queue."""
SCHEDULED = {"measure": "measure:measure", "sweep": "sweep:sweep_in_turn"}
"""The functions that a schedule invokes instead: what each does with `Services` and a table."""
SERVED = {"serve_catalog": "catalog:serve_catalog", "serve_http": "http.serve_http:serve_http"}
"""The functions that an HTTP API invokes: what each does with what it needs of the instance, and a
request."""
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
    Raises InvalidRequestError: it is not such a message; the error says where it differs.
    """
    try:
        return decode_json(text, kind)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid {kind.__name__} message: {error}") from error
