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
)

from dormouse.errors import (
    DormouseError,
    InvalidRequestError,
    InvariantError,
    LimitExceededError,
)
from dormouse.statements.datasets import TableDataset
from dormouse.statements.planning import FENCE, FENCE_ROWS

_OPTIONS = {
    # names of tables and columns are what they are, as in conditions; SQL would fold them
    "datafusion.sql_parser.enable_ident_normalization": "false",
    "datafusion.catalog.information_schema": "false",
    # a result has the same types whether rows come from files or from a pipe
    "datafusion.execution.parquet.schema_force_view_types": "false",
    "datafusion.execution.parquet.enable_page_index": "false",
    # bounds that are found while a plan runs would be compared with statistics; see register_files
    "datafusion.optimizer.enable_dynamic_filter_pushdown": "false",
}
_ONLY_QUERIES = (
    SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)
_TELLS_OF_THE_MACHINE = ("version",)
_NO_FIELD = re.compile(r"No field named (.+?)\.(?:\s|$)")
_PREFIXES = re.compile(
    r"^(?:(?:DataFusion error|Error during planning|Schema error|SQL error|Execution error|"
    r"External error|Arrow error|Optimizer rule '\w+' failed|type_coercion|caused by)[:\s]+)+"
)


def open_session(
    scratch: str, memory_bytes: int, threads: int, *, uses_statistics: bool
) -> SessionContext:
    """Open a session that spills to `scratch` what takes more than `memory_bytes`.

    With statistics of files, joins are planned by the numbers of rows.
    """
    runtime = (
        RuntimeEnvBuilder().with_disk_manager_specified(scratch).with_fair_spill_pool(memory_bytes)
    )
    collects = {"datafusion.execution.collect_statistics": str(uses_statistics).lower()}
    options = {**_OPTIONS, **collects}
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


def register_files(context: SessionContext, name: str, folder: str, schema: pa.Schema) -> None:
    """Let DataFusion read the rows of a reference from Parquet files.

    It leaves out no row groups by their statistics: these know nothing of NaN, which is greater
    than all other numbers, and the files are of the shards that are needed.
    """
    context.deregister_table(name)
    context.register_parquet(
        name, f"{folder}/", schema=schema, skip_metadata=True, parquet_pruning=False
    )


def plan(context: SessionContext, sql: str, parameters: Mapping[str, pa.Scalar[Any]]) -> DataFrame:
    """Return the frame of a query.

    Raises:
        ValueError: DataFusion refuses it.
    """
    return context.sql_with_options(sql, _ONLY_QUERIES, param_values=dict(parameters))


def is_panic(error: BaseException) -> bool:
    """Return whether a thread of DataFusion panicked, which is no `Exception` in the main one."""
    return type(error).__name__ == "PanicException" or " panicked with message " in str(error)


def explained(error: BaseException, columns: Iterable[str]) -> DormouseError:
    """Return an error of DataFusion as one of ours; `columns` are those that could be meant."""
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
    plain = _PREFIXES.sub("", text).split("This issue was likely caused by", 1)[0].strip()
    return InvalidRequestError(f"the statement failed: {plain[:2_000]}")
