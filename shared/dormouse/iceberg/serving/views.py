"""Views of tables with row rules: what stored rows mean, as SQL that engines run over them.

Readers of Iceberg find the stored rows of a table with rules as the table ``<name>__parts``. The
view of the table's own name applies filters first, then the aggregation, as Dormouse does whenever
it reads. It does so for each query, so that rows age off by the clock of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from dormouse.errors import InvalidRequestError
from dormouse.iceberg.metadata import uuid_of
from dormouse.iceberg.serving.dialects import DIALECTS, Trino
from dormouse.iceberg.types import iceberg_schema
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, Primitive
from dormouse.sql.expressions import Column
from dormouse.stored.paths import METADATA_SUFFIX, iceberg_prefix
from dormouse.tables.row_rules import Aggregation, RowRules, row_rules
from dormouse.tables.table import Table

PARTS = "__parts"
"""The end of the name under which readers find the stored rows of a table with rules."""


@dataclass(frozen=True, slots=True)
class View:
    """The view of a table with rules: its name, that of the table of the stored rows, and the query
    over that table, by dialect.
    """

    name: str
    parts: str
    sql: Mapping[str, str]


def published_name(table: Table) -> str:
    """Return the name under which readers find the stored rows of a table."""
    has_rules = not row_rules(table.schema, table.properties).is_empty
    return table.name + PARTS if has_rules else table.name


def view_of(table: Table) -> View | None:
    """Return the view of a table; None if it needs none, or can have none."""
    parts = published_name(table)
    if parts == table.name or why_no_view(table):
        return None
    return View(table.name, parts, _queries(table, parts))


def why_no_view(table: Table) -> str:
    """Return what of the rules of a table no view can say; empty if it has or needs none."""
    try:
        _queries(table, published_name(table))
    except InvalidRequestError as error:
        return error.explanation
    return ""


def view_result(
    table: Table, view: View, root: str, namespace: str, catalog: str
) -> dict[str, Any]:
    """Return a view as clients of a REST catalog load it.

    Its metadata is no object: it follows from the table, and a change of that is a new version.
    `root` is the URI of the data root, without a slash at its end. `catalog` is the client's name
    of the catalog, without which some engines do not find what the view refers to; it may be empty.
    """
    location = f"{root}/{iceberg_prefix(table.id).rstrip('/')}"
    metadata = _metadata(table, view, location, namespace, catalog)
    name = f"view-{metadata['current-version-id']}{METADATA_SUFFIX}"
    return {"metadata-location": f"{location}/metadata/{name}", "metadata": metadata, "config": {}}


def _metadata(
    table: Table, view: View, location: str, namespace: str, catalog: str
) -> dict[str, Any]:
    """Return the metadata of a view as Iceberg's specification has it."""
    schema = {"schema-id": 0, **iceberg_schema(table.schema)}
    shown = [{"type": "sql", "sql": sql, "dialect": name} for name, sql in view.sql.items()]
    content = f"{view.name}\0{schema}\0{shown}".encode()
    number = int.from_bytes(blake2b(content, digest_size=4).digest()) >> 1
    version: dict[str, Any] = {
        "version-id": number,
        "timestamp-ms": table.created_ms,
        "schema-id": 0,
        "summary": {"engine-name": "Dormouse"},
        "default-namespace": [namespace],
        "representations": shown,
    }
    if catalog:
        version["default-catalog"] = catalog
    return {
        "view-uuid": uuid_of(f"view of {table.id}"),
        "format-version": 1,
        "location": location,
        "schemas": [schema],
        "current-version-id": number,
        "versions": [version],
        "version-log": [{"timestamp-ms": table.created_ms, "version-id": number}],
        "properties": {"comment": f"{table.name} with its filters and aggregations"},
    }


def _queries(table: Table, parts: str) -> dict[str, str]:
    """Return the query of the view by dialect.

    Raises:
        InvalidRequestError: SQL cannot say a rule of the table.
    """
    rules = row_rules(table.schema, table.properties)
    return {each.name: _query(each, table.schema, rules, parts) for each in DIALECTS}


def _query(dialect: Trino, schema: Schema, rules: RowRules, parts: str) -> str:
    columns = [dialect.quoted(field.name) for field in schema.fields]
    source = f"FROM {dialect.quoted(parts)}"
    filters = []
    if rules.age_off:
        filters.append(dialect.since(rules.age_off.column, rules.age_off.age_ms))
    if rules.where:
        filters.append(dialect.condition(rules.where.expression))
    if filters:
        source += f" WHERE {' AND '.join(filters)}"
    aggregation = rules.aggregation
    if aggregation is None:
        return f"SELECT {', '.join(columns)} {source}"
    if aggregation.kept:
        return _kept(dialect, schema, aggregation, source)
    keys = columns[: len(schema.keys)]
    folded = _folded(dialect, schema, aggregation)
    return f"SELECT {', '.join((*keys, *folded))} {source} GROUP BY {', '.join(keys)}"


def _folded(dialect: Trino, schema: Schema, aggregation: Aggregation) -> list[str]:
    """Return the value columns of rows with equal keys, combined."""
    operations = dict(aggregation.operations)
    found = []
    for field in schema.values:
        how, column = operations[field.name], Column(field.name, field.type)
        name = dialect.quoted(field.name)
        if how.startswith("map_"):
            raise InvalidRequestError(
                f"{how}({field.name}) cannot be said in the SQL of Spark and Trino, so there is no "
                "view"
            )
        if how == "sum":
            term = f"CAST(sum({name}) AS {dialect.type_name(field.type)})"
        else:
            term = dialect.extreme(how, column)
        found.append(f"{term} AS {name}")
    return found


def _kept(dialect: Trino, schema: Schema, aggregation: Aggregation, source: str) -> str:
    """Return the query of the rows with the least or greatest sort keys.

    Of rows that agree in all keys their values decide; lists, maps and structs have no order in
    SQL, and are passed over.
    """
    columns = ", ".join(dialect.quoted(field.name) for field in schema.fields)
    group = ", ".join(dialect.quoted(field.name) for field in aggregation.group_keys(schema))
    ranked = [*schema.sort_keys, *(field for field in schema.values if _has_order(field))]
    order = ", ".join(
        dialect.ordered(Column(field.name, field.type), descending=aggregation.kept == "last")
        for field in ranked
    )
    rank = dialect.quoted(_unused_name(schema.fields))
    ranks = f"row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS {rank}"
    return f"SELECT {columns} FROM (SELECT {columns}, {ranks} {source}) WHERE {rank} = 1"


def _has_order(field: Field) -> bool:
    return isinstance(field.type, Primitive | DecimalType)


def _unused_name(fields: Sequence[Field]) -> str:
    name, taken = "rank", {field.name.casefold() for field in fields}
    while name in taken:
        name += "_"
    return name
