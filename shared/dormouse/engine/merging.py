"""Merge slices of shards into one stream in key order, without sorting;
used by compaction and queries.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import rows_within
from dormouse.arrow.statistics import row_bytes
from dormouse.arrow.types import arrow_schema, conform, gathered
from dormouse.cache import Cache
from dormouse.engine import datafusion as engine
from dormouse.engine.file_ranges import read_ranges
from dormouse.engine.merge_windows import merge_windows
from dormouse.engine.predicates import Predicate
from dormouse.engine.pruning import ValueBounds
from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import KeyRange
from dormouse.ports import StreamedObjects
from dormouse.readers.local_copies import LocalCopies, MergeWindow
from dormouse.readers.reading import RowGroups, Slice, find_row_groups
from dormouse.schema.schema import Schema
from dormouse.stored.paths import shard_path

__all__ = ["Slice", "merge_row_groups", "merge_slices"]


def merge_slices(
    objects: StreamedObjects,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of all slices in key order, streamed; all columns, or only `columns`.

    All footers that are not in `cache` are read first, so that a missing shard raises and is not
    taken for an empty one.
    Rows with equal keys come in no particular order. With `where`, only matching rows are returned,
    and row groups and pages that cannot hold any are skipped. All bytes are fetched to files in
    `scratch` and verified before they are merged.

    Raises:
        NotFoundError: a shard is gone.
        DamagedShardError: a shard is damaged.
    """
    found = find_row_groups(objects, table_id, slices, schema, cache, footers=True)
    yield from merge_row_groups(
        objects,
        table_id,
        found,
        schema,
        columns=columns,
        where=where,
        scratch=scratch,
        memory_bytes=memory_bytes,
    )


def merge_row_groups(
    objects: StreamedObjects,
    table_id: str,
    found: Sequence[RowGroups],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    scratch: Path,
    memory_bytes: int,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows as `merge_slices` does, of slices found with the footers of their shards."""
    wanted = arrow_schema(schema)
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    bounds = ValueBounds.of(where, schema)
    found = [groups for groups in bounds.pruned(found) if groups.numbers]
    if not found:
        return
    used = {*(f.name for f in schema.keys), *wanted.names, *(where.columns if where else ())}
    fields = [field for field in schema.fields if field.name in used]
    widest = max(row_bytes(groups.metadata) for groups in found)
    out_rows = engine.batch_rows(memory_bytes, 0, widest)
    spans = merge_windows([groups.metadata for groups in found], schema, memory_bytes)
    keys = [field.name for field in schema.row_keys] if len(spans) > 1 else []
    names = [*keys, *(name for name in wanted.names if name not in keys)]
    copies = LocalCopies(objects, table_id, fields, scratch, memory_bytes)
    windows = _windows(found, spans, bounds, schema)
    with closing(copies.windows(windows)) as verified:
        for window in verified:
            batch_rows = engine.batch_rows(memory_bytes, len(window.found), widest)
            merged = _merged(table_id, window, schema, names, where, bounds, batch_rows)
            for batch in rows_within(gathered(merged, out_rows), window.span, schema):
                yield conform(batch, wanted)


def _windows(
    found: Sequence[RowGroups], spans: Iterable[KeyRange], bounds: ValueBounds, schema: Schema
) -> Iterator[tuple[KeyRange, list[RowGroups]]]:
    """Yield each window with the row groups that it reads; those at its borders also hold keys
    outside of it.
    """
    for span in spans:
        parts = bounds.pruned(groups.within(span, schema) for groups in found)
        if some := [groups for groups in parts if groups.numbers]:
            yield span, some


def _merged(
    table_id: str,
    window: MergeWindow,
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
    bounds: ValueBounds,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Merge one window in a session of its own, because a session
    frees its memory only when it ends.
    """
    context = engine.session(batch_rows)
    term = None if where is None else where.expr(context)
    frames, ranges = [], {}
    for groups, local in zip(window.found, window.files, strict=True):
        wanted = KeyRange() if groups.slice.is_whole else groups.slice.range
        frame = engine.sorted_file(context, local, groups.index.names, schema, wanted)
        if term is not None:
            frame = bounds.applied(frame).filter(term)
            if engine.has_no_rows(frame):
                continue
        frames.append(frame)
        ranges[f"{local.parent.name}/{local.name}"] = groups.first_bytes
    if not frames:
        return
    plan = read_ranges(context, engine.plan_merge(frames, schema, columns), ranges)
    try:
        yield from engine.execute_plan(context, plan)
    except CorruptDataError as error:
        if where is not None:
            where.check()
        of = ", ".join(shard_path(table_id, groups.slice.shard.id) for groups in window.found)
        raise CorruptDataError(f"{error} (among {of})") from error
