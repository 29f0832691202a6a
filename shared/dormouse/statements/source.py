"""A reference to a table as DuckDB scans it: which filters it takes, and the rows it returns.

DuckDB offers the conditions of a scan while it plans, and drops those that are taken from the plan.
So what is taken must be true of all rows that are returned: Arrow evaluates it, as DuckDB itself
translates it. The same conditions bound the keys and values that are read at all (`as_condition`).

``duckdb._sources`` is not public: its version is pinned, and `tests/unit/statements` hold what is
relied on.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import islice
from operator import and_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary, Untranslatable
from duckdb._sources.to_arrow import to_arrow

from dormouse.schema.schema import Schema
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    Primitive,
    clock_count,
    to_days,
    to_microseconds,
)
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
from dormouse.sql.key_bounds import exact_ranges
from dormouse.statements.tables import Scan

Rows: TypeAlias = Callable[[Scan], tuple[pa.Schema, Iterator[pa.RecordBatch]]]
"""Begin a scan; return the schema of its columns, and the rows."""


MAX_NODES = 3 * MAX_LIST
"""Filters with so many parts are left to DuckDB."""


class TableSource(ArrowScanSource):
    """A table as a source of scans. `failure` is the first error that one of them had: DuckDB only
    passes on its text.
    """

    schema_is_stable = True

    def __init__(self, schema: Schema, arrow: pa.Schema, rows: Rows) -> None:
        """Read nothing: `rows` is called when a scan begins."""
        super().__init__(None)
        self._schema, self._arrow, self._rows = schema, arrow, rows
        self._lock = threading.Lock()
        self._accepted: list[Node] = []
        self.failure: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        """Return the schema that scans select columns of."""
        return self._arrow.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested: object | None = None) -> object:
        """Return all rows: DuckDB looks for this method, and calls `stream` instead."""
        return self.stream(None, ())[0]

    def accepts(self, predicate: Node) -> bool:
        """Return whether scans can leave out the rows for which a condition is not true."""
        if len(list(islice(_nodes(predicate), MAX_NODES))) == MAX_NODES:
            return False  # DuckDB tests rows by long lists quicker
        try:
            if not self._is_range(predicate):
                to_arrow(predicate, self._arrow)
        except Untranslatable:
            return False
        self._accepted.append(predicate)
        return True

    def _is_range(self, predicate: Node) -> bool:
        """Return whether a filter bounds keys, and says no more. The first value that Arrow makes
        of one of Python imports pandas, half of the time of a look-up: these need none.
        """
        form = as_condition(predicate, self._schema)
        return form is not None and exact_ranges(Condition(form), self._schema) is not None

    def offered(self, names: Collection[str]) -> Scan:
        """Return the scan that a plan has offered the conditions of: of those columns that its
        statement names, or all if it names all.
        """
        asked = {name.lower() for name in names}
        every = self._arrow.names
        tested = {name for each in self._accepted for name in _columns(each)}
        columns = [n for n in every if "*" in asked or n.lower() in asked]
        return Scan(
            tuple(columns or every[:1]), self._condition(self._accepted), None, frozenset(tested)
        )

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Return the rows for which all filters are true, with some columns, as an Arrow stream."""
        try:
            every = self._arrow.names
            names = every if columns is None else [every[at] for at in columns]
            tested = frozenset(name for each in filters for name in _columns(each))
            test = partial(self._test, filters) if filters else None
            has_all = all(as_condition(each, self._schema) for each in filters)
            scan = Scan(tuple(names), self._condition(filters), test, tested, has_all)
            schema, batches = self._rows(scan)
            reader: Any = pa.RecordBatchReader.from_batches(schema, self._watched(batches))
        except BaseException as error:
            self._fail(error)
            raise
        return reader.__arrow_c_stream__(), True

    def _test(self, filters: Sequence[Node]) -> pc.Expression:
        """Return the conjunction of filters, as Arrow evaluates it."""
        first, *others = (to_arrow(each, self._arrow) for each in filters)
        return reduce(and_, others, first)

    def _condition(self, filters: Sequence[Node]) -> Condition | None:
        """Return the conjunction of those filters that have a form as conditions."""
        terms = [each for each in (as_condition(f, self._schema) for f in filters) if each]
        if len(terms) < 2:
            return Condition(terms[0]) if terms else None
        return Condition(Call("AND", tuple(terms), Primitive.BOOLEAN))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error


def _columns(node: Node) -> Iterator[str]:
    """Yield the names of the columns that a filter tests."""
    return (each.parts[0] for each in _nodes(node) if isinstance(each, Col))


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    rest = [node]
    while rest:
        each = rest.pop()
        yield each
        rest += each._children()


def as_condition(predicate: Node, schema: Schema) -> Expression | None:
    """Return a filter of DuckDB as an expression that is true of every row for which the filter is
    true; None if it has no such form.
    """
    try:
        found = _expression(predicate, schema)
    except (_HasNoFormError, RecursionError):
        return None
    return found if depth(found) <= MAX_CONDITION_DEPTH else None


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


def _column(column: Col, schema: Schema) -> Column:
    if len(column.parts) != 1:  # a member of a struct
        raise _HasNoFormError
    field = schema.field_named(column.parts[0])
    return Column(field.name, field.type)


def _literal(literal: Lit, kind: FieldType) -> Literal:
    """Return a constant, which DuckDB gives in exactly the type of the column."""
    value = literal.value
    match kind:
        case Primitive.BOOLEAN if isinstance(value, bool):
            return Literal(value, kind)
        case Primitive.INT | Primitive.LONG if isinstance(value, int):
            return Literal(value, kind)
        case Primitive.STRING if isinstance(value, str):
            return Literal(value, kind)
        case Primitive.BYTES if isinstance(value, bytes):
            return Literal(value, kind)
        case DecimalType() if isinstance(value, Decimal):
            return Literal(value, kind)
        case Primitive.DATE if isinstance(value, dt.date):
            return Literal(to_days(value), kind)
        case Primitive.TIME if isinstance(value, dt.time):
            return Literal(clock_count(value), kind)
        case Primitive.TIMESTAMP if isinstance(value, int):
            return Literal(value, kind)
        case Primitive.TIMESTAMP_NTZ if isinstance(value, dt.datetime):
            return Literal(to_microseconds(value.replace(tzinfo=dt.UTC)), kind)
    raise _HasNoFormError  # floats: what bounds them would have to know NaN and the sign of zero
