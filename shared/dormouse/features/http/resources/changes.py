"""Routes that change tables: each sends the request that the queue of administrators takes.

The answer is 202, with the location of the request: it is carried out by `administer`, once,
however often it is sent under one Idempotency-Key.
"""

from __future__ import annotations

import tempfile
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dormouse.access.doors import check_instance, check_new_name
from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError
from dormouse.features.http.calls import Call, Form, Shown
from dormouse.features.http.problems import ProblemError
from dormouse.features.tables.changing.create_table import new_table_id
from dormouse.key_forms.codec import KeyCodec
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CompactTable,
    CreateTable,
    DeleteTable,
    Redrive,
    RenameTable,
    SetOnline,
    SetProperties,
    SplitPartitions,
    is_request_id,
)
from dormouse.messages.stages import OutboundMessage
from dormouse.model.sources import READ_ENDINGS, digest_of_key
from dormouse.ports.services import NO_TABLE
from dormouse.schema.columns import parse_schema
from dormouse.schema.schema import Schema, parse_field
from dormouse.tables.properties import parse_settings
from dormouse.tables.table import check_name

IDEMPOTENCY_KEY = "idempotency-key"


class Accepted(Shown, frozen=True, kw_only=True):
    """A request that is on its way; `location` is the path that shows what became of it. `remarks`
    say of columns of a sample what they were, where the type of the table does not show it.
    """

    request_id: str
    location: str
    remarks: list[str] = []


class Sample(Form, frozen=True, kw_only=True):
    """A file like those to come, as base64 of its content: its columns become those of a table.
    `name` ends as such files do: .csv, .tsv, .txt, .json, .jsonl, .parquet, .arrow, .arrows.
    """

    name: str
    content: str


class NewTable(Form, frozen=True, kw_only=True):
    """A table to create. The schema is given in its JSON form, or as text (``id:long,
    name:string?``), or inferred from a `sample`. `row_keys` and `sort_keys` name the keys of the
    latter two, and `types` the types of columns for which the inferred one will not do.
    """

    name: str
    schema: dict[str, Any] | str | None = None
    sample: Sample | None = None
    row_keys: list[str] = []
    sort_keys: list[str] = []
    types: dict[str, str] = {}
    properties: dict[str, int | str] = {}
    split_points: list[list[int | str]] = []


class TableChange(Form, frozen=True, kw_only=True):
    """What to change of a table: exactly one kind of change. `add`, `drop`, `rename` and `units`
    are one kind and change its columns; `properties` and `unset` are one, too; then a `new_name`;
    or whether it is `online`. Filters and aggregations that would hide rows are refused, with how
    many, unless `hide_rows` is true.
    """

    add: list[dict[str, Any]] = []
    drop: list[str] = []
    rename: dict[str, str] = {}
    units: dict[str, str] = {}
    properties: dict[str, int | str] = {}
    unset: list[str] = []
    hide_rows: bool = False
    new_name: str = ""
    online: bool | None = None


class Deletion(Form, frozen=True, kw_only=True):
    """How a table is deleted: one with tags only if they are to be released."""

    release_tags: bool = False


class Compaction(Form, frozen=True, kw_only=True):
    """Which compactions to begin: those that are due, or with `all` one of each leaf partition."""

    all: bool = False


class Split(Form, frozen=True, kw_only=True):
    """What to split: the leaf partitions with too many rows, or only `partition`."""

    partition: str = ""
    forced: bool = False


class Letters(Form, frozen=True, kw_only=True):
    """Which dead letters are meant: those of `ids`, or without any, all of the queue."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1000)] = []


def create_table(call: Call, body: NewTable) -> Accepted:
    """Create a table, from a schema or from a sample of its rows."""
    name = check_name(body.name)
    check_new_name(call.services, call.principal, name)
    properties: dict[str, object] = dict(body.properties)
    parse_settings(properties)
    schema, remarks = _schema(call, body, properties)
    points = tuple(map(tuple, body.split_points))
    KeyCodec(schema).split_points_from_json(points)
    request = CreateTable(_id(call), name, schema.to_json(), properties, points)
    accepted = send(call.instance, request, new_table_id(request))
    return msgspec.structs.replace(accepted, remarks=remarks)


def change_table(call: Call, table: str, body: TableChange) -> Accepted:
    """Change a table: its columns, its properties, its name, or whether it is online."""
    table_id, key = _administered(call, table), _id(call)
    columns = body.add, body.drop, body.rename, body.units
    kinds: dict[str, AdminRequest] = {}
    if any(columns):
        for number, field in enumerate(body.add, start=1):
            parse_field(field, f"field {number} of add")
        kinds["columns"] = AlterSchema(
            key, table, tuple(body.add), tuple(body.drop), body.rename, body.units
        )
    if body.properties or body.unset:
        given: dict[str, object] = dict(body.properties)
        parse_settings(given)
        if not body.hide_rows:
            call.instance.check_hidden(table, {**dict.fromkeys(body.unset), **given})
        kinds["properties"] = SetProperties(key, table, given, tuple(body.unset))
    if body.new_name:
        check_new_name(call.services, call.principal, body.new_name)
        kinds["new_name"] = RenameTable(key, table, body.new_name)
    if body.online is not None:
        kinds["online"] = SetOnline(key, table, body.online)
    if len(kinds) != 1:
        found = ", ".join(kinds) or "none"
        raise ProblemError(
            422, f"a request makes one kind of change, not {found}", hint="send one request each"
        )
    (request,) = kinds.values()
    return send(call.instance, request, table_id)


def delete_table(call: Call, table: str, query: Deletion) -> Accepted:
    """Delete a table with all its rows. Files dropped for it stay in the ingest bucket."""
    table_id = _administered(call, table)
    return send(call.instance, DeleteTable(_id(call), table, query.release_tags), table_id)


def compact_table(call: Call, table: str, body: Compaction) -> Accepted:
    """Begin the compactions of a table that are due, or one of each leaf partition."""
    table_id = _administered(call, table)
    return send(call.instance, CompactTable(_id(call), table, body.all), table_id)


def split_partitions(call: Call, table: str, body: Split) -> Accepted:
    """Split the leaf partitions of a table that have too many rows, or one of them."""
    table_id = _administered(call, table)
    request = SplitPartitions(_id(call), table, body.partition, body.forced)
    return send(call.instance, request, table_id)


def redrive_dead_letters(call: Call, queue: str, body: Letters) -> Accepted:
    """Send dead letters back to their queue."""
    from dormouse.features.dead_letters.dead_letters import resolve_queue

    check_instance(call.services, call.principal, "administer")
    request = Redrive(_id(call), resolve_queue(queue), tuple(body.ids))
    return send(call.instance, request, NO_TABLE)


def send(instance: Instance, request: AdminRequest, table_id: str) -> Accepted:
    """Send a request to the queue of administrators, and return where it is followed."""
    instance.queues.send([OutboundMessage("admin", request)])
    location = f"/requests/{table_id}.{request.request_id}"
    return Accepted(request_id=request.request_id, location=location)


def idempotency_key(call: Call) -> str:
    """Return the header of that name as the digits of a digest, which any path can have; empty if
    there is none.

    Raises:
        ProblemError: it is there and empty, too long, or not printable.
    """
    if IDEMPOTENCY_KEY not in call.request.headers:
        return ""
    given = call.header(IDEMPOTENCY_KEY)
    if not is_request_id(given):
        raise ProblemError(
            400, "an Idempotency-Key has 1 to 128 printable characters", hint="send another one"
        )
    return digest_of_key(given)


def _administered(call: Call, name: str) -> str:
    """Return the id of a table that the caller may administer."""
    return call.table(name, "administer").handle.table.id


def _id(call: Call) -> str:
    return idempotency_key(call) or call.instance.services.ids.new()


def _schema(
    call: Call, body: NewTable, properties: Mapping[str, object]
) -> tuple[Schema, list[str]]:
    """Return the schema of a new table, and what is to be said of its columns."""
    if (body.schema is None) == (body.sample is None):
        raise InvalidRequestError(
            "a new table needs a schema or a sample", hint="give one of the two"
        )
    if body.sample is not None:
        return _inferred(call, body, body.sample, properties)
    if isinstance(body.schema, str):
        return parse_schema(body.schema, body.row_keys, body.sort_keys), []
    if body.row_keys or body.sort_keys or body.types:
        raise InvalidRequestError("a schema in its JSON form names the keys and types itself")
    return Schema.from_json(body.schema), []


def _inferred(
    call: Call, body: NewTable, sample: Sample, properties: Mapping[str, object]
) -> tuple[Schema, list[str]]:
    from dormouse.client.ingesting.inferring import infer_schema

    ending = next((end for end in READ_ENDINGS if sample.name.lower().endswith(end)), "")
    if not ending:
        raise InvalidRequestError(
            "the name of the sample has no known ending", hint=f"known: {', '.join(READ_ENDINGS)}"
        )
    try:
        content = b64decode(sample.content, validate=True)
    except ValueError as error:
        raise InvalidRequestError("the content of the sample is not base64") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sample{ending}"
        path.write_bytes(content)
        if call.instance.computing is not None:
            call.instance.computing.check_sample(path, properties)
        found = infer_schema(path, body.row_keys, body.sort_keys, body.types, properties=properties)
        return found.schema, found.remarks
