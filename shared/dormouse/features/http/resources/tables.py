"""Routes of what there is of tables: schemas, properties, partitions, shards, versions, numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from dormouse.access.doors import damaged_entries, visible_tables
from dormouse.access.visible import VisibleTable
from dormouse.client.operating.status import Status
from dormouse.client.reading.versions import Version
from dormouse.features.http.calls import Call, Page, Shown
from dormouse.model.versions.as_of import parse_as_of
from dormouse.tables.table import property_sources

_Item = TypeVar("_Item")


class Column(Shown, frozen=True, kw_only=True):
    """A column. `role` is row key, sort key or value; `type` is in the short form of types."""

    name: str
    type: str
    role: str


class TableSummary(Shown, frozen=True, kw_only=True):
    """A table in a list. `created_ms` is milliseconds since 1970."""

    name: str
    id: str
    row_keys: list[str]
    sort_keys: list[str]
    columns: int
    online: bool
    created_ms: int


class TableList(Shown, frozen=True, kw_only=True):
    """Tables by name. `damaged` names those whose entries cannot be read."""

    tables: list[TableSummary]
    damaged: list[str]


class TableShown(TableSummary, frozen=True, kw_only=True):
    """A table with its columns."""

    fields: list[Column]


class Property(Shown, frozen=True, kw_only=True):
    """The value of a property, and whether it is the table's, the instance's or the default."""

    value: int | str
    set_by: Literal["table", "instance", "default"]


class Partition(Shown, frozen=True, kw_only=True):
    """A partition: the keys of `range`, written ``from..to``. `depth` counts those above it."""

    id: str
    range: str
    is_leaf: bool
    depth: int
    rows: int
    shards: int


class PartitionPage(Shown, frozen=True, kw_only=True):
    """Partitions in key order. With `next`, there are more: ask for those `after` it."""

    partitions: list[Partition]
    next: str = ""


class Shard(Shown, frozen=True, kw_only=True):
    """A shard: `live_rows` of its `rows` count; `first` and `last` are its least and last key."""

    id: str
    rows: int
    live_rows: int
    size_bytes: int
    first: str
    last: str
    partitions: list[str]
    jobs: list[str]


class ShardPage(Shown, frozen=True, kw_only=True):
    """Shards by their first key. With `next`, there are more: ask for those `after` it."""

    shards: list[Shard]
    next: str = ""


class VersionPage(Shown, frozen=True, kw_only=True):
    """Versions, the newest first. With `next`, there are more: ask for those `after` it."""

    versions: list[Version]
    next: str = ""


class PartsPage(Page, frozen=True, kw_only=True):
    """Which part of a list is wanted, of which version: its number, a tag, or an ISO 8601 time."""

    as_of: str = ""


class PartitionsPage(PartsPage, frozen=True, kw_only=True):
    """As for shards; with `all`, also partitions that are split and hold no rows."""

    all: bool = False


def list_tables(call: Call) -> TableList:
    """List the tables that the caller may use, by name."""
    seen = visible_tables(call.services, call.principal)
    damaged = sorted(error.what for error in damaged_entries(call.services, call.principal))
    return TableList(tables=[TableSummary(**_summary(each)) for each in seen], damaged=damaged)


def show_table(call: Call, table: str) -> TableShown:
    """Show a table and its columns."""
    found = call.table(table).seen
    columns = [Column(name=n, type=t, role=r) for n, t, r in found.schema.described()]
    return TableShown(**_summary(found), fields=columns)


def show_schema(call: Call, table: str) -> dict[str, Any]:
    """Return the schema of a table, in the form in which a table is created."""
    return call.table(table).seen.schema.to_json()


def show_properties(call: Call, table: str) -> dict[str, Property]:
    """Return the properties of a table, and where the value of each comes from.

    Those that may name a column are left out for callers from whom columns are hidden.
    """
    seen = call.table(table).seen
    found = seen.table
    sources = property_sources(found.own, call.instance.defaults())
    values = {name: getattr(found.properties, name) for name in sources}
    return {
        name: Property(value=values[name], set_by=source)
        for name, source in sources.items()
        if seen.is_whole or not isinstance(values[name], str)
    }


def show_status(call: Call, table: str) -> Status:
    """Return a table in numbers: rows, shards, partitions, and work that is pending."""
    return call.table(table).handle.status()


def show_metrics(call: Call, table: str) -> dict[str, float]:
    """Return the metrics that the table publishes every minute, as they are now."""
    found = call.table(table).handle.metrics()
    return {metric.title: value for metric, value in found.items()}


def list_partitions(call: Call, table: str, query: PartitionsPage) -> PartitionPage:
    """List the leaf partitions of a table in key order, and split ones that still hold rows."""
    opened = call.table(table)
    opened.check_keys()
    found = opened.handle.partitions(everything=query.all, as_of=_as_of(query))
    some, more = page_of(found, query, lambda each: each.id)
    return PartitionPage(partitions=[picked(Partition, each) for each in some], next=more)


def list_shards(call: Call, table: str, query: PartsPage) -> ShardPage:
    """List the shards of a table that have rows which count, by their first key."""
    opened = call.table(table)
    opened.check_keys()
    found = opened.handle.shards(as_of=_as_of(query))
    some, more = page_of(found, query, lambda each: each.id)
    return ShardPage(shards=[picked(Shard, each) for each in some], next=more)


def list_versions(call: Call, table: str, query: Page) -> VersionPage:
    """List the versions of a table that can be read, the newest first, each with its tags."""
    found = call.table(table).handle.versions()
    some, more = page_of(found, query, lambda each: str(each.version))
    return VersionPage(versions=list(some), next=more)


def page_of(
    items: Sequence[_Item], query: Page, name: Callable[[_Item], str]
) -> tuple[Sequence[_Item], str]:
    """Return the part of a list that is asked for, and the name of its last item if more follow.

    An item that is gone since is no place to go on from: then the list begins again.
    """
    start = 0
    if query.after:
        names = [name(item) for item in items]
        start = names.index(query.after) + 1 if query.after in names else 0
    some = items[start : start + query.limit]
    has_more = start + len(some) < len(items)
    return some, name(some[-1]) if has_more else ""


def _as_of(query: PartsPage) -> Any:
    return parse_as_of(query.as_of) if query.as_of else None


def _summary(seen: VisibleTable) -> dict[str, Any]:
    table, schema = seen.table, seen.schema
    return {
        "name": table.name,
        "id": table.id,
        "row_keys": [field.name for field in schema.row_keys],
        "sort_keys": [field.name for field in schema.sort_keys],
        "columns": len(schema.fields),
        "online": table.online,
        "created_ms": table.created_ms,
    }


_Struct = TypeVar("_Struct", bound=Shown)


def picked(kind: type[_Struct], item: object) -> _Struct:
    """Return what an answer shows of an item of the client: its fields of the same names."""
    given = {name: getattr(item, name) for name in kind.__struct_fields__}
    return kind(**{k: list(v) if isinstance(v, tuple) else v for k, v in given.items()})
