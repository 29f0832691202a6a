"""Merge slices of shards into one stream in key order, without sorting: `compact` and queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from dormouse.model.names import shard_path
from dormouse.model.schema import Schema
from dormouse.ports import Storage
from dormouse.shards import engine
from dormouse.shards.arrow import arrow_schema, conform
from dormouse.shards.ranges import fitted, predicate
from dormouse.shards.reading import Slice, find_all, read_row_groups

__all__ = ["Slice", "merge_rows", "sort_in_memory"]


def merge_rows(
    storage: Storage,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    memory_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of all slices in key order, streamed; all columns, or those named.

    Every footer is read first, for what is missing must not be taken for empty. Rows of equal keys
    come in no particular order.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged.
    """
    wanted = arrow_schema(schema)
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    found = [g for g in find_all(storage, table_id, slices, schema) if g.numbers]
    if not found:
        return
    widest = max(groups.row_bytes for groups in found)
    context = engine.session(engine.batch_rows(memory_bytes, len(found), widest))
    if engine.connect(context, storage):
        frames = [_frame(context, storage, table_id, groups.slice, schema) for groups in found]
        merged = engine.merge(frames, schema)
        batches = engine.stream(merged.select(*(engine.column(name) for name in wanted.names)))
    else:
        names = [f.name for f in schema.keys] + wanted.names
        batches = sort_in_memory(
            (b for g in found for b in read_row_groups(storage, table_id, g, schema, names)),
            schema,
        )
    for batch in batches:
        yield conform(batch, wanted)


def sort_in_memory(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Sort the few rows of a look-up by the keys of `schema`; stable."""
    held = list(batches)
    if held:
        rows = pa.Table.from_batches(held)
        yield from rows.sort_by([(f.name, "ascending") for f in schema.keys]).to_batches()


def _frame(
    context: SessionContext, storage: Storage, table_id: str, part: Slice, schema: Schema
) -> DataFrame:
    """Give a slice as a sorted frame of the table's columns: what an older shard lacks is null."""
    frame = context.read_parquet(
        engine.url(storage, shard_path(table_id, part.shard.id)),
        schema=arrow_schema(schema),
        file_sort_order=[engine.key_order(schema)],
    )
    if part.is_whole:
        return frame
    term = predicate(fitted(part.range, schema), schema, engine.column, engine.literal)
    return frame if term is None else frame.filter(term)
