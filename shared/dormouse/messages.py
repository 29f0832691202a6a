"""What the stages say to each other over the queues: small frozen structs, JSON on the wire.

Messages carry ids, not data: the state says what a job's inputs are, so a message can be late,
repeated or lost without being wrong. Unknown fields and versions are refused, and so are ids and
numbers that nothing here makes: no store would take them, however often the message came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.errors import InvalidRequestError
from dormouse.model.sources import Source, WholeNumber
from dormouse.stored.decoding import decode_json
from dormouse.tables.spark_options import SparkOptions

Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,999}\Z")]
"""What tables, jobs, partitions, shards and the like are called by. DynamoDB has keys of 1 KB."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """The root of all messages; `v` is the version of its form.

    A field that a form gets later is left out where it says nothing: functions about to be replaced
    know no such field, and refuse it.
    """


class OfTable(Message, frozen=True):
    """The root of messages about one table. Queues are fair among tables, by this id."""

    table_id: Id


class IngestJob(OfTable, frozen=True, tag="ingest_job"):
    """Turn these sources into rows of the table, in one commit."""

    generation: WholeNumber
    job_id: Id
    sources: tuple[Source, ...]
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class FilesWaiting(OfTable, frozen=True, tag="files_waiting"):
    """These sources, the first seen at `since_ms`, are too few for a job: look again for more."""

    generation: WholeNumber
    since_ms: WholeNumber
    sources: tuple[Source, ...]
    v: Literal[1] = 1


class TableChanged(OfTable, frozen=True, tag="table_changed"):
    """The table's state changed, or may have: plan what is due.

    `swept` says that time went by: what is due by its age alone is looked for too.
    """

    swept: bool = False
    v: Literal[1] = 1


class CompactionJob(OfTable, frozen=True, tag="compaction_job"):
    """Run this job; its partition and inputs are in the state."""

    generation: WholeNumber
    job_id: Id
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class PartitionSplits(OfTable, frozen=True, tag="partition_splits"):
    """Split those of these leaves that still have too many rows; if `forced`, however few."""

    generation: WholeNumber
    partitions: tuple[Id, ...]
    forced: bool = False
    v: Literal[1] = 1


class GarbageCandidates(OfTable, frozen=True, tag="garbage_candidates"):
    """These shards have lost their last reference: delete them when their delay is over."""

    generation: WholeNumber
    shards: tuple[Id, ...]
    v: Literal[1] = 1


class PurgeStep(OfTable, frozen=True, tag="purge_step"):
    """Go on with this purge; what it removes is in its request, in the data bucket.

    `begun_ms` is when a sweep sent the first of a chain of steps; left out where the request did.
    """

    purge_id: Id
    begun_ms: WholeNumber | UnsetType = UNSET
    v: Literal[1] = 1


class ExportTask(OfTable, frozen=True, tag="export_task"):
    """Write the files of one task of an export; what it is to do lies in the data bucket."""

    export_id: Id
    task: WholeNumber
    v: Literal[1] = 1


class ExportJob(OfTable, frozen=True, tag="export_job"):
    """Do what is left of the export whose id is the job's: all its tasks, and its end."""

    job_id: Id
    spark: SparkOptions | UnsetType = UNSET
    v: Literal[1] = 1


class RequestStep(OfTable, frozen=True, tag="request_step"):
    """See whether the jobs that a request caused have ended, and answer it then.

    `key` is that of what is kept of the request beside its table. `request_id` and `request` say
    who asked for what, should the table be gone; left out where a sweep began the chain of steps,
    at `begun_ms`.
    """

    key: Id
    request_id: str | UnsetType = UNSET
    request: str | UnsetType = UNSET
    begun_ms: WholeNumber | UnsetType = UNSET
    v: Literal[1] = 1


class SparkRunChanged(Message, frozen=True, tag="spark_run_changed"):
    """A run of Spark has ended, or may have: look at it."""

    run_id: Id
    v: Literal[1] = 1


SparkJob = IngestJob | CompactionJob | ExportJob
"""The jobs that Spark does where they are too heavy for a function, or where somebody asks for it:
then `spark` says how."""


class SparkJobStep(OfTable, frozen=True, tag="spark_job_step"):
    """Go on with this job, if Spark still has it in hand: it begins none."""

    job_id: Id
    v: Literal[1] = 1


_Wanted = TypeVar("_Wanted", bound=Message)


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """A message a stage wants sent, and to which queue of `stored.names.QUEUES`.

    `reason` says why it is given up, if it goes among a queue's dead letters.
    """

    queue: str
    message: Message
    delay_seconds: int = 0
    reason: str = ""


def encode(message: Message) -> str:
    """Return the JSON text of a message."""
    return msgspec.json.encode(message).decode()


class _Typed(msgspec.Struct):
    type: str | UnsetType = UNSET


def has_type(text: str | bytes) -> bool:
    """Return whether a text is JSON with a ``type``, as all of our messages are."""
    try:
        return decode_json(text, _Typed).type is not UNSET
    except ValueError:
        return False


def decode(text: str | bytes, kind: type[_Wanted]) -> _Wanted:
    """Parse a message of one kind.

    Raises:
        InvalidRequestError: it is not such a message; the message says where it differs.
    """
    try:
        return decode_json(text, kind)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid {kind.__name__} message: {error}") from error


def decode_spark_job(text: str | bytes) -> SparkJob | SparkJobStep:
    """Parse a job for Spark of any kind, or what asks to go on with one.

    Raises:
        InvalidRequestError: it is none; the message says where it differs.
    """
    try:
        job: SparkJob | SparkJobStep = decode_json(text, SparkJob | SparkJobStep)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid job for Spark: {error}") from error
    return job
