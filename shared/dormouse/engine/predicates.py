"""Conditions as DataFusion evaluates them: pushed down into scans, or applied to batches.

The engine is given SQL made from the checked tree, never what somebody wrote. Floating numbers are
compared as PostgreSQL does: all NaNs are equal and above everything else, -0.0 equals 0.0. That
also keeps the engine from trusting a shard's statistics, which know nothing of NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext

from dormouse.arrow.row_counter import Tally
from dormouse.arrow.types import arrow_schema
from dormouse.engine import datafusion as engine
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.schema.schema import DecimalType, FieldType, Primitive, Schema
from dormouse.sql.conditions import Condition, parse_condition
from dormouse.sql.expressions import (
    ARITHMETIC,
    Call,
    Column,
    Literal,
    call_sql,
    quoted,
    render,
    text_literal,
)

FIRST_ROWS, CHUNK_ROWS, CHUNK_BYTES = 4 * 1024, 64 * 1024, 8 * 1024 * 1024
"""How much is filtered by one plan, whichever comes first: making one has its cost too. Few rows at
first, which may do already, then more and more."""

_NAN = "CAST('NaN' AS DOUBLE)"
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_WHOLE = (Primitive.INT, Primitive.LONG)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the columns of a schema, for the engine."""

    condition: Condition
    schema: Schema

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns it needs."""
        return self.condition.columns

    @property
    def sql(self) -> str:
        """The normal form, which `parse_predicate` reads."""
        return self.condition.sql

    def negated(self) -> Predicate:
        """Return the predicate that keeps just the rows which this one does not, null or false."""
        return Predicate(self.condition.negated(), self.schema)

    def expr(self, context: SessionContext) -> Expr:
        """Return the expression, of columns without a relation, to filter frames of `context`."""
        wanted = arrow_schema(self.schema)
        named = [f for f in wanted if f.name in self.columns] or [wanted.field(0)]
        columns = pa.schema(named)
        nothing = pa.RecordBatch.from_pylist([], columns)
        frame = context.create_dataframe([[nothing]])
        # a column under a name of its own has no relation
        plain = frame.select(*(engine.column(name).alias(name) for name in columns.names))
        return plain.parse_sql_expr(engine_sql(self.condition))

    def apply(
        self, batches: Iterable[pa.RecordBatch], removed: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that match, in their order; the batches have all columns it needs.

        With `removed`, those that do not match are counted, by a look of their own.
        """
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

    def check(self) -> None:
        """Evaluate it where there is no row.

        What fails then is the condition, not what was read.

        Raises:
            InvalidRequestError: the engine cannot evaluate it.
        """
        context = engine.session()
        nothing = pa.RecordBatch.from_pylist([], arrow_schema(self.schema))
        for _ in _evaluated(
            engine.frame_from_batches(context, [nothing]).filter(self.expr(context))
        ):
            pass


def parse_predicate(text: str, schema: Schema) -> Predicate:
    """Parse a condition in SQL on the columns of `schema`.

    Raises:
        InvalidRequestError: it is not allowed; the message says where and why.
    """
    return Predicate(parse_condition(text, schema), schema)


def parse_stored_predicate(text: str, schema: Schema) -> Predicate:
    """Parse a condition that was kept of a request, and was checked when that was made.

    Raises:
        InvalidRequestError: it cannot be read. The message does not quote it, and hides the one
            that does: it goes into logs and records, which values of rows must not.
    """
    try:
        return parse_predicate(text, schema)
    except InvalidRequestError:
        raise InvalidRequestError(
            "the condition that was kept of the request cannot be read any more",
            hint="ask for it again",
        ) from None


def engine_sql(condition: Condition) -> str:
    """Return a condition as SQL in which the engine has nothing to guess about types."""
    return render(condition.expression, _leaf, _call)


def _evaluated(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    """Return rows that lie in memory: whatever the engine cannot do with them, none is damaged."""
    try:
        yield from engine.execute_frame(rows)
    except CorruptDataError:  # it may quote values, also of rows
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


def _leaf(leaf: Column | Literal) -> str:
    if isinstance(leaf, Column):
        name = quoted(leaf.name)
        return _comparable(f"CAST({name} AS DOUBLE)") if leaf.type in _FLOATS else name
    return _literal(leaf.value, leaf.type)


def _literal(value: bool | int | float | Decimal | str | bytes, kind: FieldType) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    match kind:
        case Primitive.TIMESTAMP:
            return f"arrow_cast({value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case Primitive.DATE:
            return f"arrow_cast({value}, 'Date32')"
        case DecimalType(precision=precision, scale=scale):
            return f"CAST('{value:f}' AS DECIMAL({precision}, {scale}))"
        case Primitive.DOUBLE:
            return f"CAST('{float(value)!r}' AS DOUBLE)"
        case Primitive.BOOLEAN:
            return str(value).upper()
    return text_literal(value) if isinstance(value, str) else str(value)


def _call(call: Call, parts: list[str]) -> str:
    if call.op in ARITHMETIC and call.type in _WHOLE:
        parts = [f"CAST({part} AS BIGINT)" for part in parts]  # 64 bits, which wrap around
    sql = call_sql(call, parts)
    if call.op in ARITHMETIC and call.type in _FLOATS:
        return _comparable(sql)
    return sql


def _comparable(double: str) -> str:
    """Make one NaN of all, and 0.0 of -0.0."""
    return f"nanvl({double} + 0.0, {_NAN})"
