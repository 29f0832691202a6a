"""What administrators ask for: messages on the ``admin`` queue, and what the command line sends.

docs/messages has a JSON schema of each, made from this file.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import UNSET, UnsetType

from dormouse.errors import InvalidRequestError
from dormouse.messages import Message, RequestStep
from dormouse.stored.decoding import decode_json
from dormouse.tables.spark_options import SparkOptions

_ID = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


def is_request_id(text: str) -> bool:
    """Return whether a request can have this id: it must be possible to show it."""
    return _ID.fullmatch(text) is not None


class _Identified(Message, frozen=True):
    request_id: str


class Request(_Identified, frozen=True, kw_only=True):
    """The root of all requests.

    What was asked by a `request_id` is done once, however often it is asked. What becomes of it is
    recorded under it, and told to the instance's queue of replies if a `reply` is asked for.
    """

    reply: bool = False

    def __post_init__(self) -> None:
        """Refuse an id that cannot be shown."""
        if not is_request_id(self.request_id):
            raise ValueError("a request_id is 1 to 128 characters, none a control one")


class CreateTable(Request, frozen=True, tag="create_table"):
    """Create a table. `schema` is in its JSON form; a split point is a list of key parts.

    With `strings_base64`, strings in split points are base64 of their UTF-8; bytes always are.
    """

    name: str
    schema: dict[str, object]
    properties: dict[str, object] = {}
    split_points: tuple[tuple[object, ...], ...] = ()
    strings_base64: bool = False
    v: Literal[1] = 1


class DeleteTable(Request, frozen=True, tag="delete_table"):
    """Delete a table with all its rows."""

    name: str
    v: Literal[1] = 1


class SetOnline(Request, frozen=True, tag="set_online"):
    """Put a table online, or take it offline: then it is neither compacted nor split."""

    name: str
    online: bool
    v: Literal[1] = 1


class RenameTable(Request, frozen=True, tag="rename_table"):
    """Return a table another name. Files are dropped for it under the new name from then on."""

    name: str
    new_name: str
    v: Literal[1] = 1


class ReinitialiseTable(Request, frozen=True, tag="reinitialise_table"):
    """Empty a table. Its partitions stay, unless `split_points` are given: then its leaf partitions
    meet at these; or with `delete_partitions`: then it has a single one.

    With a `schema` in its JSON form, the table has that one from then on; its columns get ids of
    their own. Partitions that do not fit its row keys cannot stay. Files ingested before are not
    ingested again. With `strings_base64`, strings in split points are base64 of their UTF-8; bytes
    always are.
    """

    name: str
    delete_partitions: bool = False
    split_points: tuple[tuple[object, ...], ...] = ()
    strings_base64: bool = False
    schema: dict[str, object] | UnsetType = UNSET
    v: Literal[1] = 1


class SetProperties(Request, frozen=True, tag="set_properties"):
    """Set some properties of a table, and unset others: those are the instance's again."""

    name: str
    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()
    v: Literal[1] = 1


class SetDefaults(Request, frozen=True, tag="set_defaults"):
    """Set, or unset, properties of the instance: those of all tables that set none of their own."""

    properties: dict[str, object] = {}
    unset: tuple[str, ...] = ()
    v: Literal[1] = 1


class AlterSchema(Request, frozen=True, tag="alter_schema"):
    """Add columns to a table, in their JSON form, drop some, rename some: old names to new.

    `units` say what numbers in files count in a column of times or dates, by its name before; an
    empty one takes that away.
    """

    name: str
    add: tuple[dict[str, object], ...] = ()
    drop: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    units: dict[str, str] = {}
    v: Literal[1] = 1


class PurgeRows(Request, frozen=True, tag="purge_rows"):
    """Remove all rows that match: those `where` is true of, or those whose key begins with one of
    `keys`; either is given. A key is a list of parts, row keys and then sort keys. With `spark`,
    shards are rewritten by Spark, else by the functions that compact.
    """

    name: str
    where: str = ""
    keys: tuple[tuple[object, ...], ...] = ()
    spark: SparkOptions | UnsetType | None = UNSET
    v: Literal[1] = 1


class CompactTable(Request, frozen=True, tag="compact_table"):
    """Begin the compactions of a table that are due, though it be offline. With `all`, merge what
    each leaf partition holds into one sorted run, whatever the table's strategy says. With `spark`,
    Spark does it, else what the table's properties say.
    """

    name: str
    all: bool = False
    spark: SparkOptions | UnsetType | None = UNSET
    v: Literal[1] = 1


class SplitPartitions(Request, frozen=True, tag="split_partitions"):
    """Split the leaf partitions of a table that have too many rows, though it be offline; or just
    one leaf, if `partition` names it. With `forced`, however few rows they have.
    """

    name: str
    partition: str = ""
    forced: bool = False
    v: Literal[1] = 1


class CollectGarbage(Request, frozen=True, tag="collect_garbage"):
    """Delete the shards of a table that nothing references, those whose delay is over."""

    name: str
    v: Literal[1] = 1


class ExportRows(Request, frozen=True, tag="export_rows"):
    """Write rows to Parquet files in the results bucket, below the prefix `to`.

    All rows, or those whose key begins with one of `keys` or lies in one of `ranges`: pairs of a
    first key, inclusive, and a last one, exclusive, null for an open end. A key is a list of parts,
    row keys and then sort keys. `where` is a condition that must be true of them besides, `columns`
    are those wanted, none for all, `as_of` a version or an ISO 8601 time, null for now. With
    `spark`, Spark does it, else what the table's properties say.
    """

    name: str
    to: str = ""
    ranges: tuple[tuple[tuple[object, ...] | None, tuple[object, ...] | None], ...] = ()
    keys: tuple[tuple[object, ...], ...] = ()
    where: str = ""
    columns: tuple[str, ...] = ()
    as_of: int | str | None = None
    spark: SparkOptions | UnsetType | None = UNSET
    v: Literal[1] = 1


class IngestFiles(Request, frozen=True, tag="ingest_files"):
    """Ingest what lies in the ingest bucket already, in any folder of it, into a table. Each of
    `keys` is that of an object or a folder. What the table has ingested already is left out, unless
    it is meant to be ingested `again`: then this request adds it once more, and no repetition of
    the request adds it twice. With `spark`, it is one bulk import, or a few if there are very many
    files; else what the table's properties say.
    """

    name: str
    keys: tuple[str, ...]
    spark: SparkOptions | UnsetType | None = UNSET
    again: bool = False
    v: Literal[1] = 1


class Redrive(Request, frozen=True, tag="redrive"):
    """Send dead letters of a queue back to it, those of `ids` or all there are."""

    queue: str
    ids: tuple[str, ...] = ()
    v: Literal[1] = 1


AdminRequest = (
    AlterSchema
    | CollectGarbage
    | CompactTable
    | CreateTable
    | DeleteTable
    | IngestFiles
    | SetOnline
    | RenameTable
    | ReinitialiseTable
    | SetProperties
    | SetDefaults
    | PurgeRows
    | ExportRows
    | Redrive
    | SplitPartitions
)


def verb_of(request: AdminRequest) -> str:
    """Return what a request is called wherever it is shown: its `type` on the wire."""
    return str(type(request).__struct_config__.tag)


def decode_admin(text: str | bytes) -> AdminRequest | RequestStep:
    """Parse an administrator's request of any kind, or what asks to go on with one.

    Raises:
        InvalidRequestError: it is none; the message says where it differs.
    """
    try:
        request: AdminRequest | RequestStep = decode_json(text, AdminRequest | RequestStep)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid admin message: {error}") from error
    return request
