"""Cut a statement, in the process that computes statements: DataFusion plans what is written of it.

The parts are taken only if they surely say what the whole says: DataFusion plans the text of the
tree that was taken apart as it plans the statement; its plan has the aggregates that were found,
and no step that is not known here; and the columns of the result have the same types.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionContext, expr
from datafusion.plan import LogicalPlan

from dormouse.arrow.inference import infer_type
from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.sql.cut.aggregates import NotCutError, Number
from dormouse.sql.cut.shape import Shape, present, read_shape
from dormouse.sql.cut.statement_cut import StatementCut
from dormouse.sql.cut.texts import PARTIALS, Texts, arguments_text
from dormouse.sql.statements import Reference, Statement, parse_statement, to_sql
from dormouse.statements.child.datasets import TableDataset
from dormouse.statements.child.session import plan, register, result_schema

_STEPS = ("TableScan", "SubqueryAlias", "Filter", "Projection", "Sort", "Limit", "Aggregate")
_DISTINCT = "Distinct"
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)


@dataclass(frozen=True, slots=True)
class CutPlanner:
    """DataFusion, with the table of the statement. `where` returns the condition that a text has
    for the rows of a reference, `exact` a text as DataFusion understands it as it is meant.
    """

    context: SessionContext
    parameters: Mapping[str, pa.Scalar[Any]]
    tables: dict[str, Schema]
    where: Callable[[str, str], str]
    exact: Callable[[str], str]

    def frame(self, sql: str) -> DataFrame:
        """Return the frame of a text.

        Raises:
            Exception: DataFusion refuses it.
        """
        return plan(self.context, self.exact(sql), self.parameters)

    def schema(self, frame: DataFrame) -> pa.Schema:
        """Return the schema that the rows of a frame will have."""
        return result_schema(self.context, frame)

    def add(self, name: str, table: Schema) -> None:
        """Make a relation known that has no rows."""
        self.tables[name] = table
        rows = TableDataset(frame_schema(arrow_schema(table)), lambda _: iter(()))
        register(self.context, name, rows, fenced=False)


def cut(
    planner: CutPlanner, statement: Statement, names: Sequence[str], time_ms: int
) -> StatementCut:
    """Return the parts of a statement on one table, as of a time; or why there are none. `names`
    are those of the columns of its result; without them, DataFusion says.

    Raises:
        Exception: DataFusion refuses the statement.
    """
    whole = planner.frame(statement.sql)
    try:
        return _cut(planner, statement, names or whole.schema().names, time_ms, whole)
    except NotCutError as error:
        return StatementCut(whole_because=str(error))
    except RecursionError:
        return StatementCut(whole_because="it is nested too deeply")


def _cut(
    planner: CutPlanner,
    statement: Statement,
    names: Sequence[str],
    time_ms: int,
    whole: DataFrame,
) -> StatementCut:
    tree = parse_statement(statement.sql).tree
    (reference,) = statement.references
    schema = planner.tables[reference.name]
    shape = read_shape(tree, [field.name for field in schema.fields])
    if _text(_planned(planner, to_sql(tree))) != _text(whole):
        raise NotCutError("its text is not understood as DataFusion understands it")
    _check_steps(whole.logical_plan(), shape)
    now, today = present(time_ms, _timestamp(planner.frame("SELECT now()").schema().field(0).type))
    shape = shape.with_time(now, today)
    arguments = _planned(planner, arguments_text(shape, reference.name))
    types = [field.type for field in planner.schema(arguments)]
    numbers = [_number(kind) for kind in types]
    texts = Texts(shape, names, numbers, _sorting(schema))
    fields = zip(planner.schema(whole), names, strict=True)
    wanted = pa.schema([field.with_name(name) for field, name in fields])
    return _confirmed(planner, texts, reference, wanted)


def _confirmed(
    planner: CutPlanner, texts: Texts, reference: Reference, wanted: pa.Schema
) -> StatementCut:
    """Return the parts whose result has the columns that are wanted."""
    text, planned = texts.partial(reference.table), texts.partial(reference.name)
    found = planner.schema(_planned(planner, planned))
    columns, final = {}, ""
    if texts.has_final:
        stored = _stored(found)
        columns = stored.to_json()
        planner.add(PARTIALS, stored)
        final = texts.final({field.name: _decimal(field.type) for field in found})
        found = planner.schema(_planned(planner, final))
    if found.names != wanted.names or found.types != wanted.types:
        raise NotCutError("its parts have other types")
    return StatementCut(
        partial=text,
        partial_names=parse_statement(text).parameters,
        where=planner.where(planned, reference.name),
        final=final,
        final_names=parse_statement(final).parameters if final else (),
        limit=texts.limit,
        columns=columns,
        schema=base64.b64encode(wanted.serialize().to_pybytes()).decode(),
    )


def _planned(planner: CutPlanner, sql: str) -> DataFrame:
    """Return the frame of a text that was made here, if there is one."""
    try:
        return planner.frame(sql)
    except Exception as error:  # DataFusion has no class of errors of its own
        raise NotCutError("its parts cannot be planned") from error


def _text(frame: DataFrame) -> str:
    """Return the plan of a frame as text, in which units such as DAY have no case."""
    return frame.logical_plan().display_indent().casefold()


def _check_steps(plan: LogicalPlan, shape: Shape) -> None:
    """Make sure that a plan has the steps and aggregates of its shape, and no others."""
    aggregates = 0
    pending = [plan]
    while pending:
        node = pending.pop()
        step = node.display().partition(":")[0]
        if step not in _STEPS and not (step == _DISTINCT and shape.is_distinct):
            raise NotCutError(f"its plan has a step {step}")
        variant = node.to_variant() if step == "Aggregate" else None
        if isinstance(variant, expr.Aggregate):
            aggregates += len(variant.aggregate_exprs()) or 1
        pending += node.inputs()
    expected = len(shape.aggregates) or int(shape.is_aggregated)
    if aggregates != expected:
        raise NotCutError("it has other aggregates than are known to be computed from parts")


def _sorting(schema: Schema) -> Sequence[str]:
    """Return the first keys whose order in shards is that of DataFusion."""
    plain = takewhile(lambda f: not f.nullable and f.type not in _FLOATS, schema.keys)
    return [field.name for field in plain]


def _number(kind: pa.DataType) -> Number:
    if pa.types.is_decimal128(kind):
        return Number(decimal=(kind.precision, kind.scale))
    return Number(is_float=pa.types.is_floating(kind), is_whole=pa.types.is_integer(kind))


def _decimal(kind: pa.DataType) -> str:
    if not pa.types.is_decimal128(kind):
        return ""
    return f"Decimal128({kind.precision}, {kind.scale})"


def _timestamp(kind: pa.DataType) -> str:
    if not isinstance(kind, pa.TimestampType):
        raise NotCutError("the present time has an unknown type")
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    return f"Timestamp(Nanosecond, {zone})"


def _stored(columns: pa.Schema) -> Schema:
    """Return the columns of partial results as those of a table, which files can have."""
    try:
        fields = [Field(f.name, infer_type(f.type), nullable=True) for f in columns]
        stored = Schema((), (), tuple(fields), is_part=True)
    except InvalidRequestError as error:
        raise NotCutError(f"a part of it {error}") from error
    if frame_schema(arrow_schema(stored)).types != columns.types:
        raise NotCutError("a part of it has a type that no table has")
    return stored
