"""Merge slices of shards into one stream in key order, without sorting: `compact` and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from dormouse.errors import CorruptDataError
from dormouse.model.keys import KeyRange
from dormouse.model.names import shard_path
from dormouse.model.schema import Schema
from dormouse.ports import Storage
from dormouse.shards import engine
from dormouse.shards.arrow import arrow_schema, conform
from dormouse.shards.predicates import Predicate
from dormouse.shards.reading import RowGroups, Slice, find_all, narrowed, read_all
from dormouse.shards.statistics import row_bytes
from dormouse.shards.steps import steps

__all__ = ["Slice", "merge_found", "merge_rows", "sort_in_memory"]


def _unseen(size_bytes: int) -> None:
    """Stand where nobody counts."""


def merge_rows(
    storage: Storage,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    memory_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of all slices in key order, streamed; all columns, or those named.

    Every footer is read first, for what is missing must not be taken for empty. Rows of equal keys
    come in no particular order. With `where`, only rows that match are given; row groups and pages
    are left out that cannot hold any.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged.
    """
    found = find_all(storage, table_id, slices, schema)
    yield from merge_found(
        storage, table_id, found, schema, columns=columns, where=where, memory_bytes=memory_bytes
    )


def merge_found(
    storage: Storage,
    table_id: str,
    found: Sequence[RowGroups],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    memory_bytes: int,
    scanned: Callable[[int], object] = _unseen,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of slices as `merge_rows` does, their footers being read.

    `scanned` is told, step by step, how many bytes the engine has read.
    """
    wanted = arrow_schema(schema)
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    found = [groups for groups in found if groups.numbers]
    if not found:
        return
    widest = max(row_bytes(groups.metadata) for groups in found)
    for step in steps([groups.metadata for groups in found], schema, memory_bytes):
        parts = [g for g in (narrowed(groups, step, schema) for groups in found) if g.numbers]
        if parts:
            batch_rows = engine.batch_rows(memory_bytes, len(parts), widest)
            for batch in _merged(
                storage, table_id, parts, schema, wanted.names, where, batch_rows, scanned
            ):
                yield conform(batch, wanted)


def _merged(
    storage: Storage,
    table_id: str,
    parts: Sequence[RowGroups],
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
    batch_rows: int,
    scanned: Callable[[int], object],
) -> Iterator[pa.RecordBatch]:
    """Merge in one session, which keeps all it has read until it ends."""
    context = engine.session(batch_rows)
    if engine.connect(context, storage):
        frames = [
            engine.sorted_file(
                context,
                engine.url(storage, shard_path(table_id, part.slice.shard.id)),
                part.index.names,
                schema,
                KeyRange() if part.slice.is_whole else part.slice.range,
            )
            for part in parts
        ]
        if where is not None:
            term = where.expr(context)
            matching = [frame.filter(term) for frame in frames]
            frames = [frame for frame in matching if not engine.has_no_rows(frame)]
        if not frames:
            return
        plan = engine.merge(frames, schema, columns)
        try:
            yield from engine.run(context, plan)
        except CorruptDataError as error:
            of = ", ".join(shard_path(table_id, part.slice.shard.id) for part in parts)
            raise CorruptDataError(f"{error} (among {of})") from error
        finally:
            scanned(engine.scanned_bytes(plan))
        return
    used = where.columns if where is not None else ()
    names = list(dict.fromkeys([*(f.name for f in schema.keys), *columns, *used]))
    read = read_all(storage, table_id, parts, schema, names)
    rows = sort_in_memory([batch for batches in read for batch in batches], schema)
    yield from rows if where is None else where.apply(rows)


def sort_in_memory(batches: Sequence[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Sort the few rows of a look-up by the keys of `schema`; stable."""
    if batches:
        rows = pa.Table.from_batches(batches)
        yield from rows.sort_by([(f.name, "ascending") for f in schema.keys]).to_batches()
