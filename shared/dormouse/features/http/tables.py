"""Routes of what there is of tables: schemas, properties, partitions, shards, versions, numbers."""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from dormouse.access import VisibleTable
from dormouse.client.contents import RowTags
from dormouse.client.instance import Instance
from dormouse.client.versions import Version
from dormouse.client.waiting import Status
from dormouse.errors import ForbiddenError, InvalidRequestError
from dormouse.features.access import check_instance, check_new_name, damaged_entries, visible_tables
from dormouse.features.delete_rows import build_deletion
from dormouse.features.http.calls import Answer, Form, HttpCall, PageQuery, ProblemError
from dormouse.features.tables import new_table_id
from dormouse.key_codec import KeyCodec
from dormouse.messages import requests
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from dormouse.ports import NO_TABLE
from dormouse.schema.row_tags import row_tags
from dormouse.schema.schema import TAGS, Schema, parse_field, parse_schema, parse_written_type
from dormouse.state.sources import READ_ENDINGS, digest_of_key
from dormouse.state.versions import parse_as_of
from dormouse.system import OwnFolder
from dormouse.tables.properties import parse_settings
from dormouse.tables.table import check_name, property_sources

_Item = TypeVar("_Item")
_Shown = TypeVar("_Shown")


class ColumnShown(Answer, frozen=True, kw_only=True):
    """A column. `role` is row key, sort key or value; `type` is in the short form of types."""

    name: str
    type: str
    role: str


class TableSummary(Answer, frozen=True, kw_only=True):
    """A table in a list. `created_ms` is milliseconds since 1970."""

    name: str
    id: str
    row_keys: list[str]
    sort_keys: list[str]
    columns: int
    online: bool
    created_ms: int


class TableList(Answer, frozen=True, kw_only=True):
    """Tables by name. `damaged` names those whose entries cannot be read."""

    tables: list[TableSummary]
    damaged: list[str]


class TableShown(TableSummary, frozen=True, kw_only=True):
    """A table with its columns."""

    fields: list[ColumnShown]


class Property(Answer, frozen=True, kw_only=True):
    """The value of a property, and whether it is the table's, the instance's or the default."""

    value: int | str
    set_by: Literal["table", "instance", "default"]


class PartitionShown(Answer, frozen=True, kw_only=True):
    """A partition: the keys of `range`, written ``from..to``. `depth` counts those above it."""

    id: str
    range: str
    is_leaf: bool
    depth: int
    rows: int
    shards: int


class ShardShown(Answer, frozen=True, kw_only=True):
    """A shard: `live_rows` of its `rows` count; `first` and `last` are its least and last key."""

    id: str
    rows: int
    live_rows: int
    size_bytes: int
    first: str
    last: str
    partitions: list[str]
    jobs: list[str]


class ListPage(Answer, Generic[_Shown], frozen=True, kw_only=True):
    """A part of a list. With `next`, there are more items: ask for those `after` it."""

    items: list[_Shown]
    next: str = ""


class PartsPage(PageQuery, frozen=True, kw_only=True):
    """Which part of a list is wanted, of which version: its number, a tag, or an ISO 8601 time."""

    as_of: str = ""


class PartitionsPage(PartsPage, frozen=True, kw_only=True):
    """As for shards; with `all`, also partitions that are split and hold no rows."""

    all: bool = False


def list_tables(call: HttpCall) -> TableList:
    """List the tables that the caller may use, by name."""
    tables = visible_tables(call.services, call.principal)
    damaged = sorted(error.what for error in damaged_entries(call.services, call.principal))
    return TableList(tables=[TableSummary(**_summary(each)) for each in tables], damaged=damaged)


def show_table(call: HttpCall, table: str) -> TableShown:
    """Show a table and its columns."""
    visible = call.table(table).seen
    columns = [ColumnShown(name=n, type=t, role=r) for n, t, r in visible.schema.described()]
    return TableShown(**_summary(visible), fields=columns)


def show_schema(call: HttpCall, table: str) -> dict[str, Any]:
    """Return the schema of a table, in the form in which a table is created."""
    return call.table(table).seen.schema.opened.to_json()


def show_properties(call: HttpCall, table: str) -> dict[str, Property]:
    """Return the properties of a table, and where the value of each comes from.

    Those that may name a column are left out for callers from whom columns are hidden.
    """
    visible = call.table(table).seen
    newest = visible.table
    sources = property_sources(newest.own, call.instance.defaults())
    values = {name: getattr(newest.properties, name) for name in sources}
    return {
        name: Property(value=values[name], set_by=source)
        for name, source in sources.items()
        if visible.is_whole or not isinstance(values[name], str)
    }


def show_status(call: HttpCall, table: str) -> Status:
    """Return a table in numbers: rows, shards, partitions, and work that is pending."""
    return call.table(table).handle.status()


def show_metrics(call: HttpCall, table: str) -> dict[str, float]:
    """Return the metrics that the table publishes every minute, as they are now."""
    metrics = call.table(table).handle.metrics()
    return {metric.title: value for metric, value in metrics.items()}


def list_partitions(call: HttpCall, table: str, query: PartitionsPage) -> ListPage[PartitionShown]:
    """List the leaf partitions of a table in key order, and split ones that still hold rows."""
    source = call.table(table)
    source.check_keys()
    partitions = source.handle.partitions(everything=query.all, as_of=_as_of(query))
    return page_of(partitions, query, lambda each: each.id, partial(picked, PartitionShown))


def list_shards(call: HttpCall, table: str, query: PartsPage) -> ListPage[ShardShown]:
    """List the shards of a table that have rows which count, by their first key."""
    source = call.table(table)
    source.check_keys()
    shards = source.handle.shards(as_of=_as_of(query))
    return page_of(shards, query, lambda each: each.id, partial(picked, ShardShown))


def list_row_tags(call: HttpCall, table: str, query: PartsPage) -> ListPage[RowTags]:
    """List which row tags rows of a table have, and how many rows have just these."""
    source = call.table(table)
    if TAGS.name in source.seen.permission.hidden:
        raise ForbiddenError("row tags of this table are hidden from you")
    references = source.handle.row_tags(as_of=_as_of(query))
    return page_of(references, query, lambda each: row_tags(each.tags), lambda each: each)


def list_versions(call: HttpCall, table: str, query: PageQuery) -> ListPage[Version]:
    """List the versions of a table that can be read, the newest first, each with its tags."""
    versions = call.table(table).handle.versions()
    return page_of(versions, query, lambda each: str(each.version), lambda each: each)


def page_of(
    items: Sequence[_Item],
    query: PageQuery,
    name: Callable[[_Item], str],
    shown: Callable[[_Item], _Shown],
) -> ListPage[_Shown]:
    """Return the part of a list that is asked for, each item as it is `shown`; its last one is
    named if more follow.

    An item that is gone since is no place to go on from: then the list begins again.
    """
    start = 0
    if query.after:
        names = [name(item) for item in items]
        start = names.index(query.after) + 1 if query.after in names else 0
    some = items[start : start + query.limit]
    has_more = start + len(some) < len(items)
    return ListPage(items=list(map(shown, some)), next=name(some[-1]) if has_more else "")


def _as_of(query: PartsPage) -> Any:
    return parse_as_of(query.as_of) if query.as_of else None


def _summary(visible: VisibleTable) -> dict[str, Any]:
    table, schema = visible.table, visible.schema
    return {
        "name": table.name,
        "id": table.id,
        "row_keys": [field.name for field in schema.row_keys],
        "sort_keys": [field.name for field in schema.sort_keys],
        "columns": len(schema.fields),
        "online": table.online,
        "created_ms": table.created_ms,
    }


_Struct = TypeVar("_Struct", bound=Answer)


def picked(kind: type[_Struct], item: object, **others: object) -> _Struct:
    """Return what an answer shows of an item of the client: its fields of the same names, but for
    `others`, which have these values.
    """
    names = [name for name in kind.__struct_fields__ if name not in others]
    values = {name: getattr(item, name) for name in names} | others
    return kind(**{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()})


# Routes that change tables: each sends the request that the queue of administrators takes.
#
# The answer is 202, with the location of the request: it is carried out by `administer`, once,
# however often it is sent with one body under one Idempotency-Key.

IDEMPOTENCY_KEY = "idempotency-key"


class RequestAccepted(Answer, frozen=True, kw_only=True):
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
    split_points: list[list[int | float | str]] = []


class TableChange(Form, frozen=True, kw_only=True):
    """What to change of a table: exactly one kind of change. `add`, `drop`, `rename`, `units` and
    `types` are one kind and change its columns and members of structs; `properties` and `unset` are
    one, too; then a `new_name`; or whether it is `online`. Filters and aggregations that would hide
    rows are refused, with how many, unless `hide_rows` is true.
    """

    add: list[dict[str, Any]] = []
    drop: list[str] = []
    rename: dict[str, str] = {}
    units: dict[str, str] = {}
    types: dict[str, Any] = {}
    properties: dict[str, int | str] = {}
    unset: list[str] = []
    hide_rows: bool = False
    new_name: str = ""
    online: bool | None = None


class TableDeletion(Form, frozen=True, kw_only=True):
    """How a table is deleted: one with tags only if they are to be released."""

    release_tags: bool = False


class CompactionChoice(Form, frozen=True, kw_only=True):
    """Which compactions to begin: those that are due, or with `all` one of each leaf partition."""

    all: bool = False


KeyJson = int | float | str | list[int | float | str]


def key_parts(key: KeyJson) -> tuple[object, ...]:
    """Return the parts of a key, which is one value or a list of the first values."""
    return tuple(key) if isinstance(key, list) else (key,)


class RowDeletion(Form, frozen=True, kw_only=True):
    """Which rows to delete: those for which `where` is true, or that begin with one of `keys`."""

    where: str = ""
    keys: list[KeyJson] = []


class Split(Form, frozen=True, kw_only=True):
    """What to split: the leaf partitions with too many rows, or only `partition`."""

    partition: str = ""
    forced: bool = False


class Letters(Form, frozen=True, kw_only=True):
    """Which dead letters are meant: those of `ids`, or without any, all of the queue."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1000)] = []


def create_table(call: HttpCall, body: NewTable) -> RequestAccepted:
    """Create a table, from a schema or from a sample of its rows."""
    name = check_name(body.name)
    check_new_name(call.services, call.principal, name)
    properties: dict[str, object] = dict(body.properties)
    parse_settings(properties)
    schema, remarks = _schema(call, body, properties)
    points = tuple(map(tuple, body.split_points))
    KeyCodec(schema).split_points_from_json(points)
    request = requests.CreateTable(_id(call), name, schema.to_json(), properties, points)
    accepted = send(call.instance, request, new_table_id(request.request_id))
    return msgspec.structs.replace(accepted, remarks=remarks)


def change_table(call: HttpCall, table: str, body: TableChange) -> RequestAccepted:
    """Change a table: its columns, its properties, its name, or whether it is online."""
    table_id, key = _administered(call, table), _id(call)
    columns = body.add, body.drop, body.rename, body.units, body.types
    kinds: dict[str, requests.AdminRequest] = {}
    if any(columns):
        for number, field in enumerate(body.add, start=1):
            parse_field(field, f"field {number} of add")
        for path, kind in body.types.items():
            parse_written_type(kind, f"the new type of {path!r}")
        kinds["columns"] = requests.AlterSchema(
            key, table, tuple(body.add), tuple(body.drop), body.rename, body.units, body.types
        )
    if body.properties or body.unset:
        settings: dict[str, object] = dict(body.properties)
        parse_settings(settings)
        if not body.hide_rows:
            call.instance.check_hidden(table, {**dict.fromkeys(body.unset), **settings})
        kinds["properties"] = requests.SetProperties(key, table, settings, tuple(body.unset))
    if body.new_name:
        check_new_name(call.services, call.principal, body.new_name)
        kinds["new_name"] = requests.RenameTable(key, table, body.new_name)
    if body.online is not None:
        kinds["online"] = requests.SetOnline(key, table, body.online)
    if len(kinds) != 1:
        names = ", ".join(kinds) or "none"
        raise ProblemError(
            422, f"a request makes one kind of change, not {names}", hint="send one request each"
        )
    (request,) = kinds.values()
    return send(call.instance, request, table_id)


def delete_table(call: HttpCall, table: str, query: TableDeletion) -> RequestAccepted:
    """Delete a table with all its rows. Files dropped for it stay in the ingest bucket."""
    table_id = _administered(call, table)
    return send(call.instance, requests.DeleteTable(_id(call), table, query.release_tags), table_id)


def compact_table(call: HttpCall, table: str, body: CompactionChoice) -> RequestAccepted:
    """Begin the compactions of a table that are due, or one of each leaf partition."""
    table_id = _administered(call, table)
    return send(call.instance, requests.CompactTable(_id(call), table, body.all), table_id)


def delete_rows(call: HttpCall, table: str, body: RowDeletion) -> RequestAccepted:
    """Hide rows of a table from all readers; what comes later is not affected."""
    source = call.table(table, "write")
    selection = SelectionMessage(keys=tuple(map(key_parts, body.keys)), where=body.where)
    request = requests.DeleteRows(_id(call), table, selection)
    handle, now_ms = source.handle, call.services.clock.now_ms()
    # only to refuse what it would be refused for
    build_deletion(handle.table, request.request_id, selection, now_ms, source.seen.permission)
    return send(call.instance, request, handle.table.id)


def split_partitions(call: HttpCall, table: str, body: Split) -> RequestAccepted:
    """Split the leaf partitions of a table that have too many rows, or one of them."""
    table_id = _administered(call, table)
    request = requests.SplitPartitions(_id(call), table, body.partition, body.forced)
    return send(call.instance, request, table_id)


def redrive_dead_letters(call: HttpCall, queue: str, body: Letters) -> RequestAccepted:
    """Send dead letters back to their queue."""
    from dormouse.features.dead_letters import resolve_queue

    check_instance(call.services, call.principal, "administer")
    request = requests.Redrive(_id(call), resolve_queue(queue), tuple(body.ids))
    return send(call.instance, request, NO_TABLE)


def send(instance: Instance, request: requests.AdminRequest, table_id: str) -> RequestAccepted:
    """Send a request to the queue of administrators, and return where it is followed."""
    instance.queues.send([OutboundMessage("admin", request)])
    location = f"/requests/{table_id}.{request.request_id}"
    return RequestAccepted(request_id=request.request_id, location=location)


def idempotency_key(call: HttpCall) -> str:
    """Return the header of that name as the digits of a digest, which any path can have; empty if
    there is none.
    Raises ProblemError: it is there and empty, too long, or not printable.
    """
    if IDEMPOTENCY_KEY not in call.request.headers:
        return ""
    key = call.header(IDEMPOTENCY_KEY)
    if not requests.is_request_id(key):
        raise ProblemError(
            400, "an Idempotency-Key has 1 to 128 printable characters", hint="send another one"
        )
    return digest_of_key(key)


def _administered(call: HttpCall, name: str) -> str:
    """Return the id of a table that the caller may administer."""
    return call.table(name, "administer").handle.table.id


def _id(call: HttpCall) -> str:
    """Return the id of a request. One of another path or body is another one, whatever its key."""
    if not (key := idempotency_key(call)):
        return call.instance.services.ids.new()
    asked = call.request
    told = key, asked.method, asked.path, asked.query_string, asked.body.hex()
    return digest_of_key(" ".join(told))


def _schema(
    call: HttpCall, body: NewTable, properties: Mapping[str, object]
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
    call: HttpCall, body: NewTable, sample: Sample, properties: Mapping[str, object]
) -> tuple[Schema, list[str]]:
    from dormouse.client.inferring import infer_schema

    ending = next((end for end in READ_ENDINGS if sample.name.lower().endswith(end)), "")
    if not ending:
        raise InvalidRequestError(
            "the name of the sample has no known ending", hint=f"known: {', '.join(READ_ENDINGS)}"
        )
    try:
        content = b64decode(sample.content, validate=True)
    except ValueError as error:
        raise InvalidRequestError("the content of the sample is not base64") from error
    settings = call.instance.settings_of(properties)
    with OwnFolder() as folder:
        path = Path(folder) / f"sample{ending}"
        path.write_bytes(content)
        if call.instance.computing is not None:
            call.instance.computing.check_sample(path, settings)
        guess = infer_schema(path, body.row_keys, body.sort_keys, body.types, properties=settings)
        return guess.schema, guess.remarks
