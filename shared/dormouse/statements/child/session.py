"""DataFusion as statements use it: bounded, and without any way to files, networks or changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from datafusion import (
    DataFrame,
    RuntimeEnvBuilder,
    SessionConfig,
    SessionContext,
    SQLOptions,
    col,
)

from dormouse.arrow.types import arrow_schema
from dormouse.errors import (
    DormouseError,
    InvalidRequestError,
    InvariantError,
    LimitExceededError,
)
from dormouse.schema.schema import Schema
from dormouse.sql.expressions import quoted
from dormouse.statements.child.datasets import TableDataset
from dormouse.statements.child.planning import FENCE, FENCE_ROWS, ROWS_ALONE, FileUse

_OPTIONS = {
    # names of tables and columns are what they are, as in conditions; SQL would fold them
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.catalog.information_schema": "false",
    # rows that come sorted stay sorted, instead of being dealt out and sorted again
    "datafusion.optimizer.prefer_existing_sort": "true",
    # the greatest value so far would leave out rows that max(…) FILTER (WHERE …) needs
    "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown": "false",
}
_ONLY_QUERIES = (
    SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)
_VIEWS: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.string_view(),
    pa.binary(): pa.binary_view(),
}
_TELLS_OF_THE_MACHINE = ("version",)
_NO_FIELD = re.compile(r"No field named (.+?)\.(?:\s|$)")
_IN_A_FILTER = re.compile(
    r".*Error evaluating filter predicate: (?:ArrowError\()?"
    r"(?:\w+\(\"(?P<text>.*)\"\)|(?P<kind>\w+)).*",
    re.DOTALL,
)
"""An error in a row that is tested while it is decoded."""
_VALUES = re.compile(r"'.*'|\".*\"|(?<![\w.])[-+]?\d[\w.+:-]*", re.DOTALL)
"""What may be a value in an error: a text in quotes, a number, a time."""
_LINES = re.compile(r"\n|\\n")
"""Ends of lines, as they are or as in quotes: a pattern that is none is on lines of its own."""
_MADE_ALIKE = re.compile(r"\b(?:CASE|Union|RecursiveQuery)\b")
_PREFIXES = re.compile(
    r"^(?:(?:DataFusion error|Error during planning|Schema error|SQL error|Execution error|"
    r"External error|Arrow error|Optimizer rule '\w+' failed|type_coercion|caused by)[:\s]+)+"
)


def make_functions() -> None:
    """Have DataFusion make its functions, which all sessions of a process share; no thread is
    started for that.
    """
    SessionContext()


def open_session(
    scratch: str, memory_bytes: int, threads: int, use: FileUse = ROWS_ALONE
) -> SessionContext:
    """Open a session that spills to `scratch` what takes more than `memory_bytes`."""
    runtime = (
        RuntimeEnvBuilder().with_disk_manager_specified(scratch).with_fair_spill_pool(memory_bytes)
    )
    switches = {
        "datafusion.execution.collect_statistics": use.statistics,
        "datafusion.execution.parquet.enable_page_index": use.statistics,
        # files of one partition follow each other in the order of keys
        "datafusion.execution.split_file_groups_by_statistics": use.statistics,
        # not all bounds by one option: it would set that of aggregates, now before, now after it
        "datafusion.optimizer.enable_join_dynamic_filter_pushdown": use.bounds,
        "datafusion.optimizer.enable_topk_dynamic_filter_pushdown": use.bounds,
        "datafusion.execution.parquet.pushdown_filters": use.filters,
    }
    options = {**_OPTIONS, **{name: str(is_on).lower() for name, is_on in switches.items()}}
    config = SessionConfig(options).with_target_partitions(threads)
    context = SessionContext(config, runtime)
    for function in _TELLS_OF_THE_MACHINE:
        context.deregister_udf(function)
    return context


def register(context: SessionContext, name: str, rows: TableDataset, *, fenced: bool) -> None:
    """Make a dataset known under the name of a reference; see `planning` on fences."""
    context.deregister_table(name)
    if not fenced:
        context.register_dataset(name, rows)
        return
    context.register_dataset(name + FENCE, rows)
    context.register_view(name, context.table(name + FENCE).limit(FENCE_ROWS))


def register_files(
    context: SessionContext, name: str, folder: str, schema: Schema, use: FileUse
) -> None:
    """Let DataFusion read the rows of a reference from Parquet files, each sorted by the keys.

    Texts are decoded as views, which point into the pages; `without_views` makes texts of them.
    """
    context.deregister_table(name)
    order = [col(quoted(key.name)).sort(nulls_first=False) for key in schema.keys]
    context.register_parquet(
        name,
        f"{folder}/",
        schema=pa.schema([f.with_type(_VIEWS.get(f.type, f.type)) for f in arrow_schema(schema)]),
        skip_metadata=True,
        parquet_pruning=use.statistics,
        file_sort_order=[order],
    )


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which no type is a view: a result has the same types whether rows come
    from files or from a pipe.
    """
    for number, field in enumerate(schema):
        schema = schema.set(number, _field_without_views(field))
    return schema


def _field_without_views(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_without_views(field.type))


def _without_views(kind: pa.DataType) -> pa.DataType:
    match kind:
        case pa.StructType():
            return pa.struct([_field_without_views(field) for field in kind])
        case pa.MapType():
            return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
        case pa.ListType():
            return pa.list_(_field_without_views(kind.value_field))
        case pa.LargeListType():
            return pa.large_list(_field_without_views(kind.value_field))
    return {view: plain for plain, view in _VIEWS.items()}.get(kind, kind)


def plan(context: SessionContext, sql: str, parameters: Mapping[str, pa.Scalar[Any]]) -> DataFrame:
    """Return the frame of a query.

    Raises:
        ValueError: DataFusion refuses it.
    """
    return context.sql_with_options(sql, _ONLY_QUERIES, param_values=dict(parameters))


def result_schema(context: SessionContext, frame: DataFrame) -> pa.Schema:
    """Return the schema that the rows of a frame will have. Its own has the types of the first of
    several queries, or branches of CASE, before they are made alike.
    """
    if not _MADE_ALIKE.search(frame.logical_plan().display_indent()):
        return frame.schema()
    return context.create_dataframe_from_logical_plan(frame.optimized_logical_plan()).schema()


def is_panic(error: BaseException) -> bool:
    """Return whether a thread of DataFusion panicked, which is no `Exception` in the main one."""
    return type(error).__name__ == "PanicException" or " panicked with message " in str(error)


def explained(
    error: BaseException, columns: Iterable[str], *, of_rows: bool = False
) -> DormouseError:
    """Return an error of DataFusion as one of ours; `columns` are those that could be meant.

    One `of_rows`, that is, from running a plan, may quote values of rows, which no error has.
    """
    text = str(error)
    if missing := _NO_FIELD.search(text):
        name = missing[1].replace('"', "").rpartition(".")[2]
        near = get_close_matches(name, list(columns), 1)
        hint = f"did you mean {near[0]}?" if near else "columns: " + ", ".join(columns)
        return InvalidRequestError(f"there is no column {missing[1]}", hint=hint)
    if "Resources exhausted" in text:
        return LimitExceededError(
            "the statement needs more memory than it may use, even with spilling",
            hint="ask for less at once, or give it more memory",
        )
    if is_panic(error):
        return InvariantError(
            f"DataFusion broke the statement off: {text[:2_000]}",
            hint="texts of more than 2 GiB in 8,192 rows are too much: ask for shorter ones",
        )
    if within := _IN_A_FILTER.fullmatch(text):
        text = within["text"] or re.sub(r"(?<!^)(?=[A-Z])", " ", within["kind"]).capitalize()
    plain = _PREFIXES.sub("", text).split("This issue was likely caused by", 1)[0].strip()
    if of_rows:
        plain = _LINES.split(_VALUES.sub("…", plain), 1)[0].rstrip("(: ")
    return InvalidRequestError(f"the statement failed: {plain[:2_000]}")
