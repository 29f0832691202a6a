"""A reference to a table as DuckDB scans it: what bounds its rows, and the rows.

DuckDB offers the conditions of a scan while it plans. None is taken from it: DuckDB tests all rows.
But rows for which an offered condition is not true do not count, so that these bound the keys and
values that are read (`as_condition`); and where a scan has many rows, Arrow leaves them out before
DuckDB takes them.

``duckdb._sources`` is not public: its version is pinned, and `tests/unit/statements` hold what is
relied on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary, Untranslatable
from duckdb._sources.to_arrow import to_arrow

from dormouse.schema import types
from dormouse.schema.schema import TAGS, Schema
from dormouse.sql.conditions import (
    MAX_CONDITION_DEPTH,
    MAX_LIST,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    depth,
    truth,
)
from dormouse.statements.tables import TableScan, tag_key

if TYPE_CHECKING:
    import pyarrow.compute as pc


Rows: TypeAlias = Callable[[TableScan], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""Begin a scan; return the schema of its columns, and the rows."""


class TableSource(ArrowScanSource):
    """A table as a source of scans. `failure` is the first error that one of them had: DuckDB only
    passes on its text.
    """

    schema_is_stable = True

    def __init__(
        self, schema: Schema, arrow: pa.Schema, rows: Rows, bound: Condition | None = None
    ) -> None:
        """Read nothing: `rows` is called when a scan begins. `bound` is true of all that count."""
        super().__init__(None)
        self._schema, self._arrow, self._rows, self._bound = schema, arrow, rows, bound
        self._offered: list[Node] = []
        self.failure: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        """Return the schema that scans select columns of."""
        return self._arrow.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested: object | None = None) -> object:
        """Return all rows: DuckDB looks for this method, and calls `stream` instead."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        """Note a condition that all rows which count fulfil; DuckDB tests it all the same."""
        self._offered.append(predicate)
        return False

    def offered(self, names: Collection[str]) -> TableScan:
        """Return the scan that a plan has offered the conditions of: of those columns that its
        statement names, or all if it names all.
        """
        lower_names = {name.lower() for name in names}
        every = self._arrow.names
        columns = [n for n in every if "*" in lower_names or n.lower() in lower_names]
        return TableScan(tuple(columns or every[:1]), self._condition())

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Return the rows that count, with some columns, as an Arrow stream."""
        try:
            every = self._arrow.names
            names = every if columns is None else [every[at] for at in columns]
            scan = TableScan(tuple(names), self._condition(), self._test)
            schema, batches = self._rows(scan)
            reader: Any = pa.RecordBatchReader.from_batches(schema, self._watched(batches))
        except BaseException as error:
            self._fail(error)
            raise
        return reader.__arrow_c_stream__(), True

    def _test(self) -> pc.Expression | None:
        """Return the conjunction of what was offered as Arrow evaluates it, where it does so as
        DuckDB; None if there is nothing.
        """
        terms = []
        for each in self._offered:
            with suppress(Untranslatable):
                terms.append(to_arrow(each, self._arrow))
        return reduce(and_, terms) if terms else None

    def _condition(self) -> Condition | None:
        """Return the conjunction of what was offered, as far as conditions have forms for it."""
        bound = self._bound.expression if self._bound else None
        forms = [bound, *(as_condition(each, self._schema) for each in self._offered)]
        terms = list(dict.fromkeys(form for form in forms if form is not None))
        if len(terms) < 2:
            return Condition(terms[0]) if terms else None
        return Condition(truth("AND", *terms))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error


def as_condition(predicate: Node, schema: Schema) -> Expression | None:
    """Return a filter of DuckDB as an expression that is true of every row for which the filter is
    true; None if it has no such form.
    """
    try:
        term = _expression(predicate, schema)
    except (_HasNoFormError, RecursionError):
        return None
    return term if depth(term) <= MAX_CONDITION_DEPTH else None


class _HasNoFormError(Exception):
    """A filter has no form as a condition."""


def _expression(node: Node, schema: Schema) -> Expression:
    match node:
        case Binary(op="AND" | "OR" as op, left=left, right=right):
            terms = tuple(_expression(each, schema) for each in _chain(op, left, right))
            if len(terms) > MAX_LIST:
                raise _HasNoFormError
            return truth(op, *terms)
        case Unary(op="NOT", operand=operand):
            return truth("NOT", _expression(operand, schema))
        case Postfix(op="IS NULL", operand=Col() as column):
            return truth("IS NULL", _column(column, schema))
        case Postfix(op="IS NOT NULL", operand=Col() as column):
            return truth("NOT", truth("IS NULL", _column(column, schema)))
        case Binary(op=op, left=Col() as column, right=Lit() as value):
            named = _column(column, schema)
            return truth("<>" if op == "!=" else op, named, _literal(value, named.type))
        case In(operand=Col() as column, values=values) if len(values) <= MAX_LIST:
            named = _column(column, schema)
            literals = [_literal(each, named.type) for each in values if isinstance(each, Lit)]
            if len(literals) == len(values):
                return truth("IN", named, *literals)
    raise _HasNoFormError


def _chain(op: str, left: Node, right: Node) -> list[Node]:
    """Return the terms of a chain of one operator, in their order, however it is nested."""
    terms, rest = [], [right, left]
    while rest:
        node = rest.pop()
        if isinstance(node, Binary) and node.op == op:
            rest += [node.right, node.left]
        else:
            terms.append(node)
    return terms


def _column(column: Col, schema: Schema) -> Column | Call:
    if len(column.parts) != 1:  # a member of a struct
        raise _HasNoFormError
    field = schema.field_named(column.parts[0])
    if field.encrypted is not None:  # shards have no values to compare
        raise _HasNoFormError
    if key := tag_key(field.name):
        return Call("tag", (Column(TAGS.name, TAGS.type), Literal(key, TAGS.type)), field.type)
    return Column(field.name, field.type)


_SAME: dict[types.FieldType, type] = {
    types.Primitive.BOOLEAN: bool,
    types.Primitive.INT: int,
    types.Primitive.LONG: int,
    types.Primitive.STRING: str,
    types.Primitive.BYTES: bytes,
    types.Primitive.TIMESTAMP: int,
}
"""The types of constants that are the same in a condition."""


def _literal(literal: Lit, kind: types.FieldType) -> Literal:
    """Return a constant, which DuckDB gives in exactly the type of the column."""
    match kind, literal.value:
        case types.DecimalType(), Decimal() as number:
            return Literal(number, kind)
        case types.Primitive.DATE, dt.date() as day:
            return Literal(types.to_days(day), kind)
        case types.Primitive.TIME, dt.time() as clock:
            return Literal(types.clock_count(clock), kind)
        case types.Primitive.TIMESTAMP_NTZ, dt.datetime() as time:
            return Literal(types.to_microseconds(time.replace(tzinfo=dt.UTC)), kind)
        case types.Primitive(), bool() | int() | str() | bytes() as value:
            if type(value) is _SAME.get(kind):
                return Literal(value, kind)
    raise _HasNoFormError  # floats: what bounds them would have to know NaN and the sign of zero
