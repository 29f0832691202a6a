"""DataFusion as Dormouse uses it: sessions, local files as sorted tables, plans that merge.

DataFusion believes what it is told about the order of a file. What it merges is checked by
whoever writes it (`writing`); a plan that would sort instead of merge is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from datafusion import (
    DataFrame,
    Expr,
    SessionConfig,
    SessionContext,
    col,
    lit,
)
from datafusion.expr import SortExpr
from datafusion.plan import ExecutionPlan
from datafusion.record_batch import RecordBatchStream

from dormouse.arrow.evolution import stored_names
from dormouse.arrow.ranges import fit_range, range_predicate
from dormouse.arrow.types import arrow_schema
from dormouse.errors import CorruptDataError, InvariantError
from dormouse.keys.ranges import KeyRange
from dormouse.schema.schema import Schema

_OPTIONS = {
    # view types would show in the batches and, through them, in what is written
    "datafusion.execution.parquet.schema_force_view_types": "false",
    # statistics of whole files serve no plan here, and cost a read of each footer beforehand
    "datafusion.execution.collect_statistics": "false",
    # what is sorted here is small: one sort, no merge of sorted batches
    "datafusion.execution.sort_in_place_threshold_bytes": str(2**40),
    "datafusion.execution.parquet.metadata_size_hint": str(64 * 1024),
}
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 16, 8192
FALSE = lit(False)
BATCHES_PER_INPUT = 4
"""How many batches of an input a merge holds: one read ahead, one at hand, and their sort keys."""


def session(batch_rows: int = MAX_BATCH_ROWS) -> SessionContext:
    """Open a session whose batches have up to `batch_rows` rows.

    One partition: more of them cost memory and CPU time, and a merge ends in one stream anyway.
    Its memory pool is not bounded: a merge cannot spill, only fail, and what it holds is batches.
    """
    config = SessionConfig(_OPTIONS).with_target_partitions(1).with_batch_size(batch_rows)
    return SessionContext(config)


def batch_rows(memory_bytes: int, inputs: int, row_bytes: float) -> int:
    """Return the length of batches with which merging so many inputs stays near `memory_bytes`.

    `row_bytes` is what a row takes in memory, on average.
    """
    batch_bytes = memory_bytes / (BATCHES_PER_INPUT * (inputs + 1))
    return max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, int(batch_bytes / max(row_bytes, 1))))


def column(name: str) -> Expr:
    """Return the column called exactly `name`."""
    return col('"' + name.replace('"', '""') + '"')


def literal(value: pa.Scalar[Any]) -> Expr:
    """Return a typed value as an expression."""
    return lit(value)


def key_order(schema: Schema) -> list[SortExpr]:
    """Return the order of rows: by the keys, ascending."""
    return [column(f.name).sort(ascending=True, nulls_first=True) for f in schema.keys]


def sorted_file(
    context: SessionContext,
    local: Path,
    names: Mapping[int, str],
    schema: Schema,
    wanted: KeyRange,
) -> DataFrame:
    """Return the rows in `wanted` of a Parquet file sorted by the keys, as columns of `schema`.

    `names` are those of its columns, by the ids of their fields; what it lacks of them is null.

    Raises:
        UnavailableError: it lacks a column that cannot be null.
    """
    stored = stored_names(names, schema.fields)
    columns = [(column, stored.get(column.name)) for column in arrow_schema(schema)]
    frame = context.read_parquet(
        local.as_uri(),  # escaped: a folder's name may look like a pattern
        schema=pa.schema([column.with_name(name) for column, name in columns if name is not None]),
        file_sort_order=[key_order(schema)],
    )
    if any(column.name != name for column, name in columns):
        frame = frame.select(*(_evolved(column, name) for column, name in columns))
    term = range_predicate(fit_range(wanted, schema), schema.keys, column, literal)
    return frame if term is None else frame.filter(term)


def _evolved(wanted: pa.Field[Any], stored_name: str | None) -> Expr:
    found = lit(None).cast(wanted.type) if stored_name is None else column(stored_name)
    return found.alias(wanted.name)


def frame_from_batches(context: SessionContext, batches: Sequence[pa.RecordBatch]) -> DataFrame:
    """Return the rows of batches of one schema, of which there is at least one."""
    return context.create_dataframe(
        [[_importable(batch) for batch in batches]], schema=batches[0].schema
    )


def _importable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose structs within structs are no slices: the engine aborts on such."""
    columns = [
        pa.concat_arrays([c.slice(0, 0), c]) if _nests_struct(c.type) else c for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _nests_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_struct(kind) and any(pa.types.is_struct(item) for item in inner):
        return True
    return any(_nests_struct(item) for item in inner)


def has_no_rows(frame: DataFrame) -> bool:
    """Return whether the terms of a frame contradict each other, so that no file need be read."""
    return frame.optimized_logical_plan().display_indent().startswith("EmptyRelation")


def plan_merge(
    frames: Sequence[DataFrame], schema: Schema, columns: Sequence[str]
) -> ExecutionPlan:
    """Plan to merge frames of one file each, sorted by the keys of `schema`, into one which is too.

    Requires: none of them `has_no_rows`, for DataFusion takes an absent file for no rows as well.
    """
    union = frames[0]
    for frame in frames[1:]:
        union = union.union(frame)
    merged = union.sort(*key_order(schema)).select(*(column(name) for name in columns))
    plan = merged.execution_plan()
    # only what steps are called: of filters, a plan quotes what they look for
    steps = [line.strip().partition(":")[0] for line in plan.display_indent().splitlines()]
    if steps.count("DataSourceExec") != len(frames):
        raise InvariantError("a local file is gone that was to be merged")
    if "SortExec" in steps:
        raise InvariantError(f"the merge would sort what is sorted already: {', '.join(steps)}")
    return plan


def execute_plan(context: SessionContext, plan: ExecutionPlan) -> Iterator[pa.RecordBatch]:
    """Run a plan of one partition, and give its batches as `execute_frame` does."""
    return _batches(context.execute(plan, 0))


def execute_frame(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Plan and run a frame, and give its batches as they come.

    Raises:
        CorruptDataError: a file is damaged.
    """
    return _batches(frame.execute_stream())


def _batches(stream: RecordBatchStream) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = next(stream, None)
        except BaseException as error:  # over damage the engine panics, and that is no Exception
            raise _translated(error) from error
        if batch is None:
            return
        yield batch.to_pyarrow()


def _translated(error: BaseException) -> BaseException:
    """Return what an error of the engine means; it has one type of its own, and one for panics."""
    text = str(error)
    if type(error).__name__ == "PanicException":
        return CorruptDataError(f"a shard is damaged, and reading it broke off: {text}")
    if type(error) is not Exception:
        return error
    if "Parquet error" in text or "Arrow error" in text:
        return CorruptDataError(f"a shard is damaged: {text}")
    return error
