"""SQL conditions, evaluated by DataFusion: pushed down into scans, or applied to batches.

DataFusion is given SQL that is rendered from the validated expression tree, never a user's text.
Floating-point numbers are compared as in PostgreSQL: all NaNs are equal and greater than everything
else, and -0.0 equals 0.0. This also keeps DataFusion from using a shard's statistics of floats,
which ignore NaN.

DataFusion is imported when a predicate is evaluated: most look-ups have none, and it takes longer
to import than they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from decimal import Decimal
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.order import column_span, fit_range_to_fields, row_key
from dormouse.arrow.types import Array, Tally, arrow_schema
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.keys import KeyRange, encode_key
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    FLOATS,
    KEY_TYPES,
    UUID_BYTES,
    WHOLE,
    DecimalType,
    FieldType,
    Primitive,
)
from dormouse.shards.reading import Blocks
from dormouse.sql import conditions
from dormouse.sql.conditions import CASTS, MIRRORED, Call, Column, Condition, Expression, Literal
from dormouse.sql.key_bounds import column_bounds
from dormouse.tables.indexing import KINDS, of_call
from dormouse.tables.row_rules import RowRules

if TYPE_CHECKING:
    from datafusion import DataFrame, Expr, SessionContext


FIRST_ROWS, CHUNK_ROWS, CHUNK_BYTES = 4 * 1024, 64 * 1024, 8 * 1024 * 1024
"""How many rows or bytes are filtered by one plan, whichever limit is reached first: making a plan
has a cost. The first chunk is small, because it may be enough; the following ones double."""

SHORT = 8
"""So many terms of a junction need no brackets."""
_NAN = "CAST('NaN' AS DOUBLE)"
_MICROSECONDS = (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)
_ENGINE_TYPES: dict[FieldType, str] = {
    Primitive.TIMESTAMP: 'Timestamp(Microsecond, Some("UTC"))',
    Primitive.TIMESTAMP_NTZ: "Timestamp(Microsecond, None)",
    Primitive.TIMESTAMP_NS: 'Timestamp(Nanosecond, Some("UTC"))',
    Primitive.TIMESTAMP_NTZ_NS: "Timestamp(Nanosecond, None)",
    Primitive.DATE: "Date32",
    Primitive.TIME: "Time64(Microsecond)",
    Primitive.UUID: f"FixedSizeBinary({UUID_BYTES})",
}
"""What the engine calls the types of literals that it would otherwise take for others."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the columns of a schema, ready to be evaluated by DataFusion."""

    condition: conditions.Condition
    schema: Schema

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it reads."""
        return self.condition.columns

    @property
    def sql(self) -> str:
        """The condition in normal form, which `parse_predicate` reads."""
        return self.condition.sql

    def negated(self) -> Predicate:
        """Return the predicate that is true of exactly the rows where this one is false or null."""
        return Predicate(self.condition.negated(), self.schema)

    def expr(self, context: SessionContext) -> Expr:
        """Return the DataFusion expression, columns unqualified, to filter `context`'s frames."""
        from dormouse.rows import datafusion as engine

        kinds = {f.type for f in self.schema.fields if f.name in self.columns}
        parts = conditions.parts_of(self.condition.expression)
        has_words = any(isinstance(part, conditions.Call) and part.op == "has" for part in parts)
        if has_words or Primitive.DYNAMIC in kinds:
            from dormouse.rows.datafusion import register

            register(context)
        target = arrow_schema(self.schema)
        fields = [f for f in target if f.name in self.columns] or [target.field(0)]
        columns = pa.schema(fields)
        nothing = pa.RecordBatch.from_pylist([], columns)
        frame = context.create_dataframe([[nothing]])
        # an aliased column is unqualified
        plain = frame.select(*(engine.column(name).alias(name) for name in columns.names))
        # as SQL in which all types are explicit
        return plain.parse_sql_expr(conditions.render(self.condition.expression, _leaf, _call))

    def apply(
        self, batches: Iterable[pa.RecordBatch], removed: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, in their order; the batches must
        have all columns that it reads.

        With `removed`, the rows that do not match are counted, by evaluating the negation: a row
        that neither passes nor is counted shows that the filter lost it.
        """
        from dormouse.rows import datafusion as engine

        context = engine.session()
        term = self.expr(context)
        negated = None if removed is None else self.negated().expr(context)
        for chunk in _chunks(batches):
            schema = chunk[0].schema
            rows = engine.frame_from_batches(context, chunk)
            if removed is not None and negated is not None:
                first = engine.column(schema.names[0])
                others = rows.filter(negated).select(first)
                removed.rows += sum(batch.num_rows for batch in _evaluated(others))
            for batch in _evaluated(rows.filter(term)):
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def tested(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Array]]:
        """Yield each batch, and of which of its rows the predicate is true."""
        from dormouse.rows import datafusion as engine

        context = engine.session()
        term = self.expr(context).alias("is_true")
        for chunk in _chunks(batches):
            rows = engine.frame_from_batches(context, chunk).select(term)
            truths = pa.Table.from_batches(_evaluated(rows)).column(0).combine_chunks()
            at = 0
            for batch in chunk:
                yield batch, truths.slice(at, batch.num_rows).fill_null(False)
                at += batch.num_rows

    def check(self) -> None:
        """Evaluate the predicate on no rows, to find out whether an error was
        caused by the predicate itself.
        Raises InvalidRequestError: DataFusion cannot evaluate it.
        """
        nothing = pa.RecordBatch.from_pylist([], arrow_schema(self.schema))
        list(self.apply([nothing]))


def parse_predicate(text: str, schema: Schema) -> Predicate:
    """Parse an SQL condition on the columns of `schema`.
    Raises InvalidRequestError: it is not allowed; the message says where and why.
    """
    return Predicate(conditions.parse_condition(text, schema), schema)


def parse_stored_predicate(text: str, schema: Schema) -> Predicate:
    """Parse a condition that was stored with a request, and was
    validated when the request was made.
    Raises InvalidRequestError: it cannot be parsed. The message does not quote it, and the original
    error is suppressed: errors go to logs and records, which must not contain values of rows.
    """
    try:
        return parse_predicate(text, schema)
    except InvalidRequestError:
        raise InvalidRequestError(
            "the condition that is stored with the request cannot be parsed any more",
            hint="send the request again",
        ) from None


def _evaluated(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield rows of a frame in memory: an error of DataFusion is the condition's, not damage."""
    from dormouse.rows import datafusion as engine

    try:
        yield from engine.batches_of(rows.execute_stream())
    except CorruptDataError:  # the message may quote values of rows
        raise InvalidRequestError(
            "the condition cannot be evaluated", hint="make it simpler, or its patterns shorter"
        ) from None


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    chunk: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    most_rows = FIRST_ROWS
    for batch in batches:
        chunk.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= most_rows or size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, rows, size_bytes = [], 0, 0
            most_rows = min(2 * most_rows, CHUNK_ROWS)
    if chunk:
        yield chunk


def _leaf(leaf: conditions.Column | conditions.Literal) -> str:
    if isinstance(leaf, conditions.Column):
        name = conditions.quoted(leaf.name)
        return _comparable(f"CAST({name} AS DOUBLE)") if leaf.type in FLOATS else name
    return _literal(leaf.value, leaf.type)


def _literal(value: bool | int | float | Decimal | str | bytes, kind: FieldType) -> str:
    if kind in _ENGINE_TYPES:
        return f"arrow_cast({_plain(value)}, '{_ENGINE_TYPES[kind]}')"
    if isinstance(value, bytes):
        return _plain(value)
    match kind:
        case DecimalType(precision=precision, scale=scale):
            return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"
        case Primitive.DOUBLE:
            return f"CAST('{float(value)!r}' AS DOUBLE)"
        case Primitive.BOOLEAN:
            return str(value).upper()
    return conditions.text_literal(value) if isinstance(value, str) else str(value)


def _plain(value: bool | int | float | Decimal | str | bytes) -> str:
    return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)


def _call(call: conditions.Call, parts: list[str]) -> str:
    if any(part.type is Primitive.DYNAMIC for part in call.arguments):
        from dormouse.rows.datafusion import document_sql

        if (sql := document_sql(call, parts)) is not None:
            return sql
    if call.op in ("AND", "OR"):
        is_listed = any(_is_equality(term) or _listed(term) for term in call.arguments)
        return (
            conditions.call_sql(call, _kept_apart(call, parts))
            if is_listed
            else _halved(call.op, parts)
        )
    if call.op in conditions.ARITHMETIC and call.type in WHOLE:
        parts = [f"CAST({part} AS BIGINT)" for part in parts]  # 64 bits, which wrap around
    if call.op in conditions.CASTS:
        sql = _cast(call, parts[0])
    elif call.op in ("FIELD", "VALUE", "ELEMENT"):
        sql = f"{'array_element' if call.op == 'ELEMENT' else 'get_field'}({parts[0]}, {parts[1]})"
    elif call.op == "tag":
        sql = _tag(call, parts[0])
    elif call.op in ("SHIFT", "date_trunc"):
        sql = _calculated_time(call, parts)
    else:
        sql = conditions.call_sql(call, parts)
        if call.op == "EXTRACT YEAR":  # DataFusion compares times with the year's, if there are any
            sql = f"greatest({sql})"
    if call.op in conditions.ARITHMETIC and call.type in FLOATS:
        return _comparable(sql)
    if call.type in FLOATS and call.op in (*conditions.CASTS, "FIELD", "VALUE", "ELEMENT"):
        return _comparable(f"CAST({sql} AS DOUBLE)")
    return sql


def _halved(op: str, parts: list[str]) -> str:
    """Return a junction with brackets around its halves: DataFusion would nest its terms as deeply
    as there are some, and take time with the square of that.
    """
    if len(parts) <= SHORT:
        return f"({f' {op} '.join(parts)})"
    middle = len(parts) // 2
    return f"({_halved(op, parts[:middle])} {op} {_halved(op, parts[middle:])})"


def _kept_apart(junction: conditions.Call, parts: list[str]) -> list[str]:
    """Return the terms of a junction, with a function around each test by a list that follows
    another one of the same operand: DataFusion makes one of both, and forgets that the operand may
    be null.
    """
    tested: list[conditions.Expression] = []
    terms = []
    for term, part in zip(junction.arguments, parts, strict=True):
        operand = _listed(term)
        terms.append(f"greatest({part})" if operand in tested else part)
        tested += [] if operand is None else [operand]
    return terms


def _listed(term: conditions.Expression) -> conditions.Expression | None:
    """Return what a term compares with each value of a list; None if it does not."""
    match term:
        case conditions.Call("NOT", (inner,)):
            return _listed(inner)
        case conditions.Call("IN", (operand, *_)):
            return operand
        case conditions.Call("OR", terms):
            operands = [t.arguments[0] if _is_equality(t) else _listed(t) for t in terms]
            return operands[0] if all(operand == operands[0] for operand in operands) else None
    return None


def _is_equality(term: conditions.Expression) -> TypeGuard[conditions.Call]:
    return isinstance(term, conditions.Call) and term.op == "="


def _cast(call: conditions.Call, part: str) -> str:
    """Return a cast that cannot fail: of times, only those of the years 1 to 9999 are cast.

    A function stands around it: DataFusion 55 casts what a bare cast is compared with instead, also
    where the cast loses, so that 19.50 cast to INT was greater than 19.
    """
    (inner,) = call.arguments
    if call.type in _MICROSECONDS:  # from nanoseconds, which had been these
        return f"arrow_cast({part}, '{_ENGINE_TYPES[call.type]}')"
    is_boolean = call.type is Primitive.BOOLEAN
    sql = (
        conditions.call_sql(call, [part])
        if is_boolean
        else f"TRY_CAST({part} AS {conditions.sql_type(call.type)})"
    )
    if conditions.is_time(inner.type):
        sql = _within(part, inner, conditions.time_limits(inner.type), sql)
    return f"greatest({sql})"


def _tag(call: conditions.Call, tags: str) -> str:
    """Return what follows the key in the text of row tags, up to the next one (`row_tags`)."""
    key = call.arguments[1]
    assert isinstance(key, conditions.Literal) and isinstance(key.value, str)
    begin = conditions.text_literal(f"\n{key.value}=")
    rest = f"split_part({tags}, {begin}, 2)"
    return f"nullif(split_part({rest}, '\n', 1), '')"


def _calculated_time(call: conditions.Call, parts: list[str]) -> str:
    """Return a calculation with a time that cannot fail: one too early or too late is null."""
    if call.op == "date_trunc":
        time = call.arguments[1]
        limits = conditions.truncation_limits(time.type)
        return _within(parts[1], time, limits, f"date_trunc({parts[0]}, {parts[1]})")
    time, by = call.arguments
    assert isinstance(by, conditions.Literal)
    limits = conditions.shift_limits(time.type, conditions.parse_interval(str(by.value)))
    return _within(parts[0], time, limits, f"({parts[0]} + INTERVAL {parts[1]})")


def _within(part: str, time: conditions.Expression, limits: tuple[int, int], sql: str) -> str:
    first, last = (_literal(limit, time.type) for limit in limits)
    return f"CASE WHEN {part} BETWEEN {first} AND {last} THEN {sql} END"


def _comparable(double: str) -> str:
    """Return SQL that maps all NaNs to one NaN, and -0.0 to 0.0."""
    return f"nanvl({double} + 0.0, {_NAN})"


def apply_row_rules(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    now_ms: int,
    removed: Tally | None = None,
    hides_in: Sequence[KeyRange] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass the filters, with each group aggregated to
    one row; sorted like `batches`.

    In a table that keeps the latest rows, tombstones are in place of those that do not pass. If
    ranges of keys are given, `rules.kept` is true of all rows outside of them, which saves the
    test.

    `batches` have all columns of `schema`, or at least those that `rules.needed` names; the result
    has the same columns. `removed` counts the rows that a filter removes, and all rows but one of
    each group.
    """
    rows = iter(batches)
    if rules.kept is not None and hides_in is not None:
        of_kept = RowRules(None, None, rules.aggregation, rules.kept)
        test = partial(_filtered, schema=schema, rules=of_kept, now_ms=now_ms, removed=removed)
        rows = _tested_within(rows, hides_in, schema, test)
        rules = replace(rules, kept=None)
    rows = _filtered(rows, schema, rules, now_ms, removed)
    return rows if rules.aggregation is None else aggregated(rows, schema, rules, removed)


def _filtered(
    rows: Iterator[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    now_ms: int,
    removed: Tally | None,
) -> Iterator[pa.RecordBatch]:
    condition = rules.filter_at(now_ms)
    if condition is None:
        return rows
    where = Predicate(condition, schema)
    if not rules.keeps_latest or not rules.aggregation:
        return where.apply(rows, removed)
    from dormouse.rows.aggregation import with_tombstones

    return with_tombstones(rows, schema, rules.aggregation.by, where, now_ms)


def _tested_within(
    batches: Iterable[pa.RecordBatch],
    ranges: Sequence[KeyRange],
    schema: Schema,
    test: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield sorted batches, those that may have rows in some ranges as a test leaves them."""

    def is_within(batch: pa.RecordBatch) -> bool:
        low, high = (encode_key(row_key(batch, at, schema)) for at in (0, batch.num_rows - 1))
        return any(span.overlaps_span(low, high) for span in ranges)

    for is_tested, some in groupby((each for each in batches if each.num_rows), is_within):
        if is_tested:
            yield from test(some)
        else:
            yield from some


def aggregated(
    rows: Iterable[pa.RecordBatch], schema: Schema, rules: RowRules, removed: Tally | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield one row for each group of sorted rows, by rules that aggregate."""
    from dormouse.rows.aggregation import aggregate_groups, latest_rows  # most tables need neither

    assert rules.aggregation is not None
    reduce_rows = latest_rows if rules.keeps_latest else aggregate_groups
    return reduce_rows(rows, schema, rules.aggregation, removed)


# Row groups skipped by a condition on value columns, so that they are not even fetched.
#
# A condition bounds single columns, and the statistics of a row group show whether any of its
# values is within the bounds. DataFusion gets the same bounds as filters, and skips the same row
# groups.

_BOUNDED = KEY_TYPES - {Primitive.BYTES, Primitive.UUID}
"""The column types whose statistics have the same meaning in DataFusion and here."""


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """The range of values of each bounded column in any row that matches a condition."""

    ranges: Mapping[Field, KeyRange]

    @staticmethod
    def of(where: Predicate) -> ValueBounds:
        """Return the bounds that a condition sets for columns."""
        ranges = {}
        for field in where.schema.fields:
            if field.name in where.columns and field.type in _BOUNDED:
                bounds = column_bounds(where.condition, field)
                if bounds is not None:
                    ranges[field] = fit_range_to_fields(bounds, [field])
        return ValueBounds(ranges)

    def pruned(self, blocks: Iterable[Blocks]) -> Iterator[Blocks]:
        """Yield `blocks` without those of row groups whose statistics exclude a matching row."""
        for groups in blocks:
            if not self.ranges:
                yield groups
                continue
            places = _places(groups, self.ranges)
            layout = groups.index.stored.layout
            matching = {
                number
                for number in groups.row_groups
                if self._may_match(groups.index.metadata.row_group(number), places)
            }
            numbers = [n for n in groups.numbers if layout.row_group_of(n) in matching]
            yield replace(groups, numbers=numbers)

    def applied(self, frame: DataFrame) -> DataFrame:
        """Return `frame`, filtered by the bounds."""
        from dormouse.rows import datafusion as engine

        for field, span in self.ranges.items():
            if span.is_empty():
                return frame.filter(engine.FALSE)
            term = engine.range_predicate(span, [field])
            frame = frame if term is None else frame.filter(term)
        return frame

    def _may_match(
        self, group: pq.RowGroupMetaData, places: Mapping[Field, tuple[FieldType, int]]
    ) -> bool:
        for field, (kind, at) in places.items():
            span = column_span(group, at, field, kind)
            if span is not None and not self.ranges[field].overlaps_span(*map(encode_key, span)):
                return False
        return True


def _places(blocks: Blocks, fields: Iterable[Field]) -> dict[Field, tuple[FieldType, int]]:
    """Return the type and the Parquet column of each field in a shard, none of which is nested;
    fields that the shard lacks are left out.
    """
    columns = blocks.index.stored.columns
    places = {field: columns[field.id] for field in fields if field.id in columns}
    return {field: (column.field.type, at) for field, (column, at) in places.items()}


# Conditions on what is in documents as conditions on the columns that shards have of it.
#
# A condition on a path is true of the same rows if it is of the column of all values of the kind
# that it compares; where it is not true, it may be false instead of null, or the other way around.
# So it is only replaced where that makes no difference.


_COMPARISONS = ("=", "<", "<=", ">", ">=", "IN", "IS NOT DISTINCT FROM")
"""What is true of no value of another kind than the constants', and of nothing that is absent."""


def on_shredded(where: Predicate, shards: Sequence[Blocks] | None = None) -> Predicate:
    """Return a predicate that is true of the same rows and reads columns of values at paths, as far
    as all `shards` have them; without these, as if all shards had.
    """
    if not _reads_documents(where):
        return where
    of_shards = [blocks.index.stored.columns for blocks in shards or ()]

    def is_usable(target: Field) -> bool:
        return all(
            target.id in columns and columns[target.id][0].name == target.name
            for columns in of_shards
        )

    replacing = _Replacing(where.schema, is_usable)
    expression = replacing.of_truth(where.condition.expression)
    if not replacing.fields:
        return where
    schema = where.schema.with_values(*replacing.fields.values())
    return Predicate(Condition(expression), schema)


def _reads_documents(where: Predicate) -> bool:
    columns = where.columns
    return any(f.type is Primitive.DYNAMIC for f in where.schema.fields if f.name in columns)


@dataclass
class _Replacing:
    """Replaces what can be; `fields` are the columns that are read instead, by name."""

    schema: Schema
    is_usable: Callable[[Field], bool]
    fields: dict[str, Field] = attribute(default_factory=dict)

    def of_truth(self, expression: Expression) -> Expression:
        """Return an expression that is true where `expression` is."""
        match expression:
            case Call("AND" | "OR" | "IS TRUE", terms):
                return replace(expression, arguments=tuple(map(self.of_truth, terms)))
            case Call("NOT", (Call("IS TRUE", (inner,)) as test,)):
                is_true = replace(test, arguments=(self.of_truth(inner),))
                return replace(expression, arguments=(is_true,))
            case Call(op, (Call("PATH") as path, *constants)) if op in _COMPARISONS:
                return self._comparison(expression, path, constants)
            case Call(op, (Literal() as constant, Call("PATH") as path)) if op in _COMPARISONS:
                turned = replace(expression, op=MIRRORED.get(op, op))
                return self._comparison(turned, path, [constant])
        return self.of_value(expression)

    def of_value(self, expression: Expression) -> Expression:
        """Return an expression of the same value."""
        match expression:
            case Call(op, (Call("PATH") as path,), kind) if op in CASTS and kind in KINDS:
                return self._column(path, Primitive(kind)) or expression
            case Call("PATH"):
                return expression
            case Call(arguments=arguments):
                return replace(expression, arguments=tuple(map(self.of_value, arguments)))
        return expression

    def _comparison(self, test: Call, path: Call, constants: Sequence[Expression]) -> Expression:
        from dormouse.sql.operands import compared  # other conditions need none of it

        kinds = {_kind(each) for each in constants}
        (kind, *others) = kinds
        column = None if others or kind is None else self._column(path, kind)
        try:
            operands = compared([column, *constants]) if column else []
        except InvalidRequestError:  # a number that no decimal holds together with a long
            operands = []
        return replace(test, arguments=tuple(operands)) if operands else test

    def _column(self, path: Call, kind: Primitive) -> Column | None:
        documents = path.arguments[0]
        if not any(Column(f.name, f.type) == documents for f in self.schema.fields):
            return None  # a column that was dropped since a deletion named it
        target = of_call(path, self.schema, kind).field
        if not self.is_usable(target):
            return None
        self.fields[target.name] = target
        return Column(target.name, kind)


def _kind(constant: Expression) -> Primitive | None:
    """Return the type of the column with which a constant is compared."""
    match constant:
        case Literal(bool()):
            return Primitive.BOOLEAN
        case Literal(int() | Decimal()):
            return Primitive.LONG
        case Literal(str()):
            return Primitive.STRING
    return None
