"""What the stages say to each other over the queues: small frozen structs, JSON on the wire.

Messages carry ids, not data: the state says what a job's inputs are, so a message can be late,
repeated or lost without being wrong. Unknown fields and versions are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

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
    v: int = 1


class TableChanged(Message, frozen=True, tag="table_changed"):
    """The table's state changed, or may have: plan what is due."""

    table_id: str
    v: int = 1


class CompactionJob(Message, frozen=True, tag="compaction_job"):
    """Run this job; its partition and inputs are in the state."""

    table_id: str
    generation: int
    job_id: str
    v: int = 1


class PartitionSplit(Message, frozen=True, tag="partition_split"):
    """Split this leaf if it still has too many rows."""

    table_id: str
    generation: int
    partition: str
    v: int = 1


class GarbageCandidates(Message, frozen=True, tag="garbage_candidates"):
    """These shards have lost their last reference: delete them when their delay is over."""

    table_id: str
    generation: int
    shards: tuple[str, ...]
    v: int = 1


class CreateTable(Message, frozen=True, tag="create_table"):
    """Create a table. `schema` is in its JSON form; a split point is a list of key parts.

    With `strings_base64`, strings in split points are base64 of their UTF-8; bytes always are.
    """

    request_id: str
    name: str
    schema: dict[str, object]
    properties: dict[str, object] = {}
    split_points: tuple[tuple[object, ...], ...] = ()
    strings_base64: bool = False
    v: int = 1


class DeleteTable(Message, frozen=True, tag="delete_table"):
    """Delete a table with all its rows."""

    request_id: str
    name: str
    v: int = 1


class SetOnline(Message, frozen=True, tag="set_online"):
    """Put a table online, or take it offline: then it is neither compacted nor split."""

    request_id: str
    name: str
    online: bool
    v: int = 1


class RenameTable(Message, frozen=True, tag="rename_table"):
    """Give a table another name. Files are dropped for it under the new name from then on."""

    request_id: str
    name: str
    new_name: str
    v: int = 1


class ReinitialiseTable(Message, frozen=True, tag="reinitialise_table"):
    """Empty a table. Its partitions stay, or become those of `split_points`, if any are given.

    Files ingested before are not ingested again. With `strings_base64`, strings in split points
    are base64 of their UTF-8; bytes always are.
    """

    request_id: str
    name: str
    keep_partitions: bool = True
    split_points: tuple[tuple[object, ...], ...] = ()
    strings_base64: bool = False
    v: int = 1


class SetProperties(Message, frozen=True, tag="set_properties"):
    """Set some properties of a table, and unset others: those are the instance's again."""

    request_id: str
    name: str
    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()
    v: int = 1


class SetDefaults(Message, frozen=True, tag="set_defaults"):
    """Set, or unset, properties of the instance: those of all tables that set none of their own."""

    request_id: str
    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()
    v: int = 1


class PurgeRows(Message, frozen=True, tag="purge_rows"):
    """Remove all rows that match: those `where` is true of, or those whose key begins with one of
    `keys`; either is given. A key is a list of parts, as a split point."""

    request_id: str
    name: str
    where: str = ""
    keys: tuple[tuple[object, ...], ...] = ()
    v: int = 1


class PurgeStep(Message, frozen=True, tag="purge_step"):
    """Go on with this purge; what it removes is in its request, in the data bucket."""

    table_id: str
    purge_id: str
    v: int = 1


class Redrive(Message, frozen=True, tag="redrive"):
    """Send dead letters of a queue back to it, those of `ids` or all there are."""

    request_id: str
    queue: str
    ids: tuple[str, ...] = ()
    v: int = 1


class AlterSchema(Message, frozen=True, tag="alter_schema"):
    """Add columns to a table, in their JSON form, drop some, rename some: old names to new."""

    request_id: str
    name: str
    add: tuple[dict[str, object], ...] = ()
    drop: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    v: int = 1


AdminRequest = (
    AlterSchema
    | CreateTable
    | DeleteTable
    | SetOnline
    | RenameTable
    | ReinitialiseTable
    | SetProperties
    | SetDefaults
    | PurgeRows
    | Redrive
)

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


def decode_admin(text: str | bytes) -> AdminRequest:
    """Parse an administrator's request of any kind.

    Raises:
        InvalidRequestError: it is none; the message says where it differs.
    """
    try:
        request: AdminRequest = msgspec.json.decode(text, type=AdminRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"not a valid admin message: {error}") from error
    return request
