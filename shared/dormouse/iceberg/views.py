"""Views of tables with row rules: what stored rows mean, as SQL that engines run over them.

Readers of Iceberg find the stored rows of a table with rules as the table ``<name>__parts``. The
view of the table's own name applies filters first, then the aggregation, as Dormouse does whenever
it reads. It does so for each query, so that rows age off by the clock of the engine.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from dormouse.errors import InvalidRequestError
from dormouse.iceberg.metadata import uuid_of
from dormouse.schema.iceberg import iceberg_schema
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    FLOATS,
    TIMESTAMPS,
    WHOLE,
    ZONED,
    DecimalType,
    FieldType,
    Primitive,
    show_count,
    show_uuid,
)
from dormouse.sql import conditions
from dormouse.stored.paths import METADATA_SUFFIX, iceberg_prefix
from dormouse.tables.row_rules import Aggregation, RowRules, row_rules
from dormouse.tables.table import Table, published_name

# Names, literals and conditions in the SQL of engines that read views: Spark's and Trino's.
#
# Spark's parser knows backslashes in texts, Trino's doubles quotes, and they name functions
# differently. NaN equals itself in Spark and is above all else, as in Dormouse; in Trino
# comparisons with it are false. What cannot be said alike in both is refused by name, and never
# said almost.

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_COMPARED = _COMPARISONS | {"IS DISTINCT FROM", "IS NOT DISTINCT FROM", "nullif"}
_SAID = _COMPARED | {
    *conditions.ARITHMETIC,
    *conditions.TESTS,
    *("AND", "OR", "NOT", "IN", "LIKE"),
    *("coalesce", "trim", "length", "octet_length", "starts_with", "ends_with", "contains"),
}
"""What both engines do as Dormouse does. Others they do each in a way of their own: letters, times,
casts, parts of nested values."""
_PATTERN = re.compile(r"\\[\\%_]|[^\\]", re.DOTALL)
_ESCAPE = "#"


class Trino:
    """The SQL of Trino."""

    name = "trino"

    def quoted(self, name: str) -> str:
        """Return a name as an identifier."""
        return conditions.quoted(name)

    def text(self, value: str) -> str:
        """Return text as a literal."""
        return conditions.text_literal(value)

    def condition(self, expression: conditions.Expression) -> str:
        """Return a condition on rows. Raises InvalidRequestError: engines differ in it."""
        return conditions.render(expression, self._leaf, self._call)

    def since(self, column: conditions.Column, age_ms: int) -> str:
        """Return the condition that a time is less than an age ago."""
        name = self.quoted(column.name)
        if column.type is Primitive.LONG:
            return f"({name} > {self._now_ms()} - {age_ms})"
        return f"({name} > {self._ago(age_ms)})"

    def ordered(self, column: conditions.Column, *, descending: bool) -> str:
        """Return the terms that order rows by a column: nulls are least, NaN is greatest."""
        how = "DESC NULLS LAST" if descending else "ASC NULLS FIRST"
        name = self.quoted(column.name)
        terms = [f"is_nan({name})", name] if column.type in FLOATS else [name]
        return ", ".join(f"{term} {how}" for term in terms)

    def extreme(self, operation: str, column: conditions.Column) -> str:
        """Return the least or greatest value of a column that has no nulls."""
        name = self.quoted(column.name)
        if column.type not in FLOATS:
            return f"{operation}({name})"
        nan = f"CAST('NaN' AS {self.type_name(column.type)})"
        number = f"{operation}(CASE WHEN is_nan({name}) THEN NULL ELSE {name} END)"
        if operation == "max":
            return f"CASE WHEN bool_or(is_nan({name})) THEN {nan} ELSE {number} END"
        return f"coalesce({number}, {nan})"

    def type_name(self, kind: FieldType) -> str:
        """Return the name of a type of numbers."""
        names = {Primitive.INT: "INTEGER", Primitive.LONG: "BIGINT", Primitive.FLOAT: "REAL"}
        if isinstance(kind, DecimalType):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        return names.get(Primitive(kind), "DOUBLE")

    def _now_ms(self) -> str:
        return "CAST(floor(to_unixtime(current_timestamp) * 1000) AS BIGINT)"

    def _ago(self, age_ms: int) -> str:
        return f"date_add('millisecond', -{min(age_ms, _TRINO_AGE_MS)}, current_timestamp)"

    def _leaf(self, leaf: conditions.Column | conditions.Literal) -> str:
        if isinstance(leaf, conditions.Column):
            return self.quoted(leaf.name)
        value, kind = leaf.value, leaf.type
        if isinstance(value, bytes) and kind is Primitive.UUID:
            return self._uuid(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Decimal) and isinstance(kind, DecimalType):
            return f"CAST('{value:f}' AS {self.type_name(kind)})"
        if isinstance(value, float) and not math.isfinite(value):
            raise _cannot("NaN or infinity")
        if isinstance(value, float | Decimal):
            return f"CAST('{float(value)!r}' AS DOUBLE)"
        if isinstance(value, int) and kind in TIMESTAMPS:
            return self._time(value, Primitive(kind))
        return conditions.leaf_sql(leaf)

    def _time(self, count: int, kind: Primitive) -> str:
        text = show_count(count, kind).removesuffix("+00:00").replace("T", " ")
        return f"TIMESTAMP '{text}{' UTC' if kind in ZONED else ''}'"

    def _uuid(self, value: bytes) -> str:
        return f"UUID '{show_uuid(value)}'"

    def _call(self, call: conditions.Call, parts: list[str]) -> str:
        op = call.op
        if op not in _SAID:
            raise _cannot(op.partition(" ")[0])
        if op in ("IS TRUE", "IS FALSE"):
            return f"({parts[0]} IS NOT DISTINCT FROM {op.removeprefix('IS ')})"
        if op == "LIKE":
            return f"({parts[0]} LIKE {self.text(_pattern(call))} ESCAPE '{_ESCAPE}')"
        if op in conditions.ARITHMETIC:
            return self._calculated(call, parts)
        if op in _COMPARED and any(part.type in FLOATS for part in call.arguments):
            return self._with_nan(call, parts)
        if op == "trim":
            return f"trim(BOTH ' ' FROM {parts[0]})"
        return self._function(op, parts) or conditions.call_sql(call, parts)

    def _calculated(self, call: conditions.Call, parts: Sequence[str]) -> str:
        """Return a calculation in 64 bits; of Dormouse's they wrap, of engines they may fail."""
        wide = "BIGINT" if call.type in WHOLE else "DOUBLE"
        left, right = (f"CAST({part} AS {wide})" for part in parts)
        return f"({left} {self._operator(call)} {right})"

    def _operator(self, call: conditions.Call) -> str:
        return call.op

    def _with_nan(self, call: conditions.Call, parts: list[str]) -> str:
        """Return a comparison of floating numbers in which NaN is the greatest.

        A literal is never NaN, so the other side matters alone.
        """
        left, right = call.arguments
        if not isinstance(left, conditions.Literal) and not isinstance(right, conditions.Literal):
            raise _cannot(f"{call.op} of two floating columns")
        sql = conditions.call_sql(call, parts)
        if call.op in (">", ">=") and not isinstance(left, conditions.Literal):
            return f"({sql} OR is_nan({parts[0]}))"
        if call.op in ("<", "<=") and not isinstance(right, conditions.Literal):
            return f"({sql} OR is_nan({parts[1]}))"
        return sql

    def _function(self, op: str, parts: list[str]) -> str:
        """Return a function as Trino has it; nothing if that is as Dormouse has it."""
        match op:
            case "octet_length":
                return f"length(to_utf8({parts[0]}))"
            case "ends_with":
                return f"starts_with(reverse({parts[0]}), reverse({parts[1]}))"
            case "contains":
                return f"(strpos({parts[0]}, {parts[1]}) > 0)"
        return ""


class SparkDialect(Trino):
    """The SQL of Spark, where it differs from Trino's."""

    name = "spark"

    def quoted(self, name: str) -> str:
        """Return a name as an identifier."""
        return "`" + name.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        """Return text as a literal; as its bytes, if it has what sessions can read differently."""
        if value.isprintable() and not set("'\\") & set(value):
            return f"'{value}'"
        return f"CAST(X'{value.encode().hex()}' AS STRING)"

    def ordered(self, column: conditions.Column, *, descending: bool) -> str:
        """Return the terms that order rows by a column: nulls are least, NaN is greatest."""
        how = "DESC NULLS LAST" if descending else "ASC NULLS FIRST"
        return f"{self.quoted(column.name)} {how}"

    def extreme(self, operation: str, column: conditions.Column) -> str:
        """Return the least or greatest value of a column that has no nulls."""
        return f"{operation}({self.quoted(column.name)})"

    def _now_ms(self) -> str:
        return "unix_millis(current_timestamp())"

    def _ago(self, age_ms: int) -> str:
        return f"timestamp_millis({self._now_ms()} - {min(age_ms, _SPARK_AGE_MS)})"

    def _time(self, count: int, kind: Primitive) -> str:
        text = show_count(count, kind).removesuffix("+00:00").replace("T", " ")
        return f"TIMESTAMP '{text}Z'" if kind in ZONED else f"TIMESTAMP_NTZ '{text}'"

    def _uuid(self, value: bytes) -> str:
        return f"'{show_uuid(value)}'"

    def _operator(self, call: conditions.Call) -> str:
        return "div" if call.op == "/" and call.type in WHOLE else call.op

    def _with_nan(self, call: conditions.Call, parts: list[str]) -> str:
        """Return a comparison of floating numbers, of which Spark has the same order."""
        Trino._with_nan(self, call, parts)  # what one of them cannot say, neither does
        return conditions.call_sql(call, parts)

    def _function(self, op: str, parts: list[str]) -> str:
        """Return a function as Spark has it; nothing if that is as Dormouse has it."""
        names = {"starts_with": "startswith", "ends_with": "endswith"}
        return f"{names[op]}({', '.join(parts)})" if op in names else ""


_TRINO_AGE_MS = 63 * 10**12
"""The longest age that Trino's times can go back from now: to the first year."""
_SPARK_AGE_MS = 9 * 10**15
"""The longest age that Spark's times can go back from now."""

DIALECTS: Sequence[Trino] = (SparkDialect(), Trino())
"""The dialects in which views are given."""


def _pattern(call: conditions.Call) -> str:
    """Return the pattern of LIKE with an escape character that no parser of texts changes."""
    pattern = call.arguments[1]
    assert isinstance(pattern, conditions.Literal) and isinstance(pattern.value, str)
    parts = _PATTERN.findall(pattern.value)
    if "".join(parts) != pattern.value:
        raise _cannot("LIKE with a backslash before a plain character")
    escaped = {"\\%": f"{_ESCAPE}%", "\\_": f"{_ESCAPE}_", "\\\\": "\\", _ESCAPE: 2 * _ESCAPE}
    return "".join(escaped.get(part, part) for part in parts)


def _cannot(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} in a filter is understood by each engine in its own way, so there is no view"
    )


@dataclass(frozen=True, slots=True)
class View:
    """The view of a table with rules: its name, that of the table of the stored rows, and the query
    over that table, by dialect.
    """

    name: str
    parts: str
    sql: Mapping[str, str]


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
    """Return the view's query by dialect. Raises InvalidRequestError: SQL cannot say a rule."""
    rules = row_rules(table.schema, table.properties).after_publishing()
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
    columns = []
    for field in schema.values:
        how, column = operations[field.name], conditions.Column(field.name, field.type)
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
        columns.append(f"{term} AS {name}")
    return columns


def _kept(dialect: Trino, schema: Schema, aggregation: Aggregation, source: str) -> str:
    """Return the query of the rows with the least or greatest sort keys.

    Of rows that agree in all keys their values decide; lists, maps and structs have no order in
    SQL, and are passed over.
    """
    columns = ", ".join(dialect.quoted(field.name) for field in schema.fields)
    group = ", ".join(dialect.quoted(field.name) for field in aggregation.group_keys(schema))
    have_order = [each for each in schema.values if isinstance(each.type, Primitive | DecimalType)]
    order = ", ".join(
        dialect.ordered(
            conditions.Column(field.name, field.type), descending=aggregation.kept == "last"
        )
        for field in (*schema.sort_keys, *have_order)
    )
    rank = dialect.quoted(_unused_name(schema.fields))
    ranks = f"row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS {rank}"
    return f"SELECT {columns} FROM (SELECT {columns}, {ranks} {source}) WHERE {rank} = 1"


def _unused_name(fields: Sequence[Field]) -> str:
    name, names = "rank", {field.name.casefold() for field in fields}
    while name in names:
        name += "_"
    return name
