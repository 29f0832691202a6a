"""What the stages say to each other over the queues: small frozen structs, JSON on the wire.

Messages carry ids, not data: the state says what a job's inputs are, so a message can be late,
repeated or lost without being wrong. Unknown fields and versions are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.model.sources import Source


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """The root of all messages; `v` is the version of its form."""


class IngestJob(Message, frozen=True, tag="ingest_job"):
    """Turn these sources into rows of the table, in one commit."""

    table_id: str
    generation: int
    job_id: str
    sources: tuple[Source, ...]
    v: Literal[1] = 1


class TableChanged(Message, frozen=True, tag="table_changed"):
    """The table's state changed, or may have: plan what is due.

    `swept` says that time went by: what is due by its age alone is looked for too.
    """

    table_id: str
    swept: bool = False
    v: Literal[1] = 1


class CompactionJob(Message, frozen=True, tag="compaction_job"):
    """Run this job; its partition and inputs are in the state."""

    table_id: str
    generation: int
    job_id: str
    v: Literal[1] = 1


class PartitionSplit(Message, frozen=True, tag="partition_split"):
    """Split this leaf if it still has too many rows; if `forced`, however few they are."""

    table_id: str
    generation: int
    partition: str
    forced: bool = False
    v: Literal[1] = 1


class GarbageCandidates(Message, frozen=True, tag="garbage_candidates"):
    """These shards have lost their last reference: delete them when their delay is over."""

    table_id: str
    generation: int
    shards: tuple[str, ...]
    v: Literal[1] = 1


class PurgeStep(Message, frozen=True, tag="purge_step"):
    """Go on with this purge; what it removes is in its request, in the data bucket."""

    table_id: str
    purge_id: str
    v: Literal[1] = 1


class ExportTask(Message, frozen=True, tag="export_task"):
    """Write the files of one task of an export; what it is to do lies in the data bucket."""

    table_id: str
    export_id: str
    task: int
    v: Literal[1] = 1


_Wanted = TypeVar("_Wanted", bound=Message)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message a stage wants sent, and to which queue of `model.names.QUEUES`."""

    queue: str
    message: Message
    delay_seconds: int = 0


def encode(message: Message) -> str:
    """Give the JSON text of a message."""
    return msgspec.json.encode(message).decode()


def decode(text: str | bytes, kind: type[_Wanted]) -> _Wanted:
    """Parse a message of one kind.

    Raises:
        InvalidRequestError: it is not such a message; the message says where it differs.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"not a valid {kind.__name__} message: {error}") from error
