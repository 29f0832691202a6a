"""Merge slices of shards into one stream in key order, without sorting;
used by compaction and queries.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, count, groupby
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, SessionContext

from dormouse.arrow.order import OrderCheck, fit_range, rows_within, sort_in_memory
from dormouse.arrow.types import arrow_schema, conform, gathered
from dormouse.errors import BRING_BACK, CorruptDataError
from dormouse.keys import Key, KeyRange
from dormouse.ports import Cache, StreamedObjects
from dormouse.rows import datafusion as engine
from dormouse.rows import wide_rows
from dormouse.rows.datafusion import changed
from dormouse.rows.predicates import Predicate, ValueBounds
from dormouse.schema.evolution import is_same
from dormouse.schema.schema import Schema
from dormouse.shards.decoding import SMALL_BYTES, read_blocks
from dormouse.shards.local_copies import LocalCopies, LocalFile, MergeWindow
from dormouse.shards.parquet import column_paths
from dormouse.shards.reading import Blocks, Slice, find_blocks
from dormouse.storage import writing_files
from dormouse.stored.paths import shard_path

# Merge many inputs in levels: what a merge holds of its inputs is bounded, however many there are.
#
# A merge holds some rows of each input, and the row group that they are decoded from. Where that is
# too much for all inputs at once, some are merged into files first, and then these files are.
#
# For example, nine inputs of which three may be merged at once:
#
#     a b c | d e f | g h i      three merges, each into a file
#       x   |   y   |   z        one merge of the files

INPUTS_BYTES = 160 * 1024 * 1024
"""What a merge may hold of all its inputs, unless it has less memory."""
LEAST_INPUTS = 2
GROUP_ROWS, GROUP_BYTES = 16_384, 1024 * 1024
"""How many rows a row group of a file in between has, or about how many bytes of them."""
CHUNK_BYTES = 16 * 1024
"""How many bytes of each column it has at least: a column chunk takes 2.5 KB while it is written,
so those of 500 columns in row groups of a megabyte would take more than their rows."""

_Input = TypeVar("_Input")


def inputs_at_once(memory_bytes: int, input_bytes: float) -> int:
    """Return how many inputs a merge may have that holds `input_bytes` of each."""
    return max(LEAST_INPUTS, int(min(memory_bytes, INPUTS_BYTES) / max(1.0, input_bytes)))


def fan_in(inputs: int, most: int) -> int:
    """Return how many inputs to merge at once, at most `most`, so that rows are merged as seldom as
    possible, and by merges of as few inputs as possible.
    """
    levels = next(levels for levels in count(1) if most**levels >= inputs)
    return next(width for width in count(1) if width**levels >= inputs)


def merge_in_levels(
    inputs: Sequence[_Input],
    most: int,
    merge: Callable[[Sequence[_Input]], Iterable[pa.RecordBatch]],
    reopen: Callable[[Path, pa.Schema], _Input],
    scratch: Path,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all inputs in order, of which `merge` is given at most `most` at once.

    What is merged first is written to files in `scratch`; `reopen` makes inputs of these.
    """
    width, numbers = fan_in(len(inputs), most), count()
    while len(inputs) > width:
        files = []
        for at in range(0, len(inputs), width):
            local = scratch / f"merged-{next(numbers)}.parquet"
            columns = _write(local, merge(inputs[at : at + width]))
            if columns is not None:
                files.append(reopen(local, columns))
        inputs = files
    yield from merge(inputs)


def _write(local: Path, batches: Iterable[pa.RecordBatch]) -> pa.Schema | None:
    """Write rows to a file; return its columns, None without rows."""
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return None
    group_bytes = max(GROUP_BYTES, CHUNK_BYTES * len(column_paths(first.schema)))
    with writing_files(local.parent):
        writer = pq.ParquetWriter(
            local,
            first.schema,
            compression="lz4",  # scratch space is scarce, and the file is read only once
            use_dictionary=False,
            write_statistics=False,
        )
    try:
        for batch in gathered(chain([first], rows), GROUP_ROWS, group_bytes):
            with writing_files(local.parent):
                writer.write_batch(batch)
    finally:
        with writing_files(local.parent):
            writer.close()
    return first.schema


# Divide a merge into windows: ranges of keys, merged one after the other, each in bounded memory.
#
# DataFusion 55 keeps everything that it has read of a Parquet file until the file is read to its
# end (https://github.com/apache/arrow-rs/issues/9695). Each window is a merge of its own, and its
# memory is freed when it ends. The row groups at the border of two windows are read twice; their
# rows are cut from the merged stream, which is cheaper than to compare each row with the bounds of
# its window.

SHARE_OF_MEMORY = 4
"""A window reads at most this fraction (1/4) of the available memory."""
WINDOW_BYTES = 64 * 1024 * 1024
"""The largest window: two windows must fit into scratch space, and the first should be fetched
soon. Smaller windows would cost more CPU time, because row groups at their borders are read twice.
"""
GROUPS_PER_WINDOW = 4
"""The least row groups of each overlapping file in a window, if all were of the mean size: with
fewer, too many would be border row groups, which are read twice."""


def merge_windows(files: Sequence[Sequence[tuple[Key, int]]], memory_bytes: int) -> list[KeyRange]:
    """Return ascending ranges that cover all keys, each with a bounded share of the files' bytes.

    Each file is given as the least key and the size of each of its row groups. Windows are cut only
    where a row group begins, so all rows with one key are in one window.

    For example, two files with these row groups, each of 10 MB, and a budget of 30 MB:

        file A   [a … c] [c … f] [f … k] [k … z]
        file B   [b … e] [e … z]

    The first keys, sorted: a, b, c, e, f, k. Adding them up, a, b and c fill the budget, so the
    first cut is at e; e, f and k fill the second window. The windows are [-∞, e) and [e, ∞). The
    row group [c … f] is in both.
    """
    groups = [group for file in files for group in file]
    mean_bytes = sum(size_bytes for _, size_bytes in groups) // max(1, len(groups))
    open_files = max_overlap([(file[0][0], file[-1][0]) for file in files if file])
    least_bytes = GROUPS_PER_WINDOW * open_files * mean_bytes
    budget_bytes = max(min(memory_bytes // SHARE_OF_MEMORY, WINDOW_BYTES), least_bytes)
    cuts: list[Key] = []
    taken_bytes = 0
    for low, size_bytes in sorted(groups):
        if taken_bytes + size_bytes > budget_bytes and low > (cuts[-1] if cuts else ()):
            cuts.append(low)
            taken_bytes = 0
        taken_bytes += size_bytes
    ends = [*cuts, None]
    return [KeyRange(low, high) for low, high in zip([(), *cuts], ends, strict=True)]


def max_overlap(spans: Sequence[tuple[Key, Key]]) -> int:
    """Return the largest number of spans, ends included, that have a key in common."""
    events = sorted([(low, 0) for low, _ in spans] + [(high, 1) for _, high in spans])
    return max(accumulate(-1 if ends else 1 for _, ends in events), default=0)


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

    All indexes that are not in `cache` are read first, with a condition the whole footers, so that
    a missing shard raises and is not taken for an empty one. Rows with equal keys come in no
    particular order. With `where`, only matching rows are returned, and row groups and pages that
    cannot hold any are skipped. All bytes are verified before they are merged, and fetched to files
    in `scratch` unless they are in files of this machine.

    Raises:
        NotFoundError: a shard is gone.
        DamagedShardError: a shard is damaged.
    """
    footers = where is not None
    blocks = find_blocks(objects, table_id, slices, schema, cache, footers=footers)
    yield from merge_blocks(
        objects,
        table_id,
        blocks,
        schema,
        columns=columns,
        where=where,
        scratch=scratch,
        memory_bytes=memory_bytes,
        to_the_end=True,
    )


FEW_BYTES = 4 * 1024 * 1024
"""Rows of small shards that take so much are read at once, and sorted: a merge of files takes
longer to begin."""


def merged_rows(
    objects: StreamedObjects,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    *,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None,
) -> Iterator[pa.RecordBatch]:
    """Return what `merge_slices` yields of all columns; few rows of small shards are sorted.
    Raises: as that.
    """
    if all(slice.shard.size_bytes <= SMALL_BYTES for slice in slices):
        blocks = find_blocks(objects, table_id, slices, schema, cache)
        sizes = (g.index.column_bytes(n, schema.fields) for g in blocks for n in g.numbers)
        if sum(sizes) <= min(FEW_BYTES, memory_bytes // SHARE_OF_MEMORY):
            return _sorted_rows(objects, table_id, blocks, schema)
    return merge_slices(
        *(objects, table_id, slices, schema),
        scratch=scratch,
        memory_bytes=memory_bytes,
        cache=cache,
    )


def _sorted_rows(
    objects: StreamedObjects, table_id: str, blocks: Sequence[Blocks], schema: Schema
) -> Iterator[pa.RecordBatch]:
    names = [field.name for field in schema.fields]
    shards = read_blocks(objects, table_id, blocks, schema, names)
    for of_shard in shards:
        check = OrderCheck(schema)  # who sorts rows would not see that a shard is not sorted
        for batch in of_shard:
            check.see(batch)
    yield from sort_in_memory([*chain.from_iterable(shards)], schema)


def merge_blocks(
    objects: StreamedObjects,
    table_id: str,
    blocks: Sequence[Blocks],
    schema: Schema,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    scratch: Path,
    memory_bytes: int,
    to_the_end: bool = False,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield rows as `merge_slices` does, of slices found, with the footers of their shards if there
    is a condition. With `to_the_end`, they are read to the end, mostly: more is fetched at once.
    """
    target = arrow_schema(schema)
    if columns is not None:
        target = pa.schema([target.field(name) for name in columns])
    bounds = ValueBounds.of(where) if where else ValueBounds({})
    blocks = [_read(groups, where) for groups in bounds.pruned(blocks) if groups.numbers]
    if not blocks:
        return
    used = {*(f.name for f in schema.keys), *target.names, *(where.columns if where else ())}
    fields = [field for field in schema.fields if field.name in used]
    names, sizes = [field.name for field in fields], wide_rows.sizes_of(blocks, fields)
    most_rows = sum(groups.slice.shard.rows for groups in blocks)
    cut = _cut(blocks, schema)
    spans = [cut.intersection(span) for span in merge_windows(_stored(blocks, sizes), memory_bytes)]
    is_shared = to_the_end and objects.is_remote
    last = {(g.slice.shard.id, g.slice.range): g.numbers[-1] for g in blocks} if is_shared else {}
    copies = LocalCopies(objects, table_id, fields, scratch, memory_bytes, last)
    windows = _windows(blocks, spans, bounds, schema, where)
    is_long = to_the_end and len(blocks) <= engine.MOST_IN_ONE_MERGE
    most_joined = engine.MAX_JOINED_ROWS if is_long else engine.MAX_BATCH_ROWS
    plan = _MergePlan(
        *(table_id, schema, where, bounds, memory_bytes, names, sizes, most_rows, most_joined),
        is_cut=cut != KeyRange(),
    )
    with closing(copies.windows(windows)) as verified:
        for window in verified:
            for batch in rows_within(plan.rows(window), window.span, schema):
                yield conform(batch, target)


def _read(some: Blocks, where: Predicate | None) -> Blocks:
    """Return the blocks that are read for some: with a condition, which asks statistics of row
    groups, all of their row groups; else these, without a footer that describes more than them.
    """
    if where is None:
        return replace(some, index=replace(some.index, footer=None))
    return some.expanded()


def _cut(blocks: Sequence[Blocks], schema: Schema) -> KeyRange:
    """Return the range that the merged rows are cut to, instead of those of each slice.

    That is the range that all slices have, if most of their row groups lie in it: it costs less to
    merge some rows in vain than to compare each with the range, and to copy it.
    """
    ranges = {groups.slice.range for groups in blocks}
    if len(ranges) > 1 or all(groups.slice.is_whole for groups in blocks):
        return KeyRange()
    shared = fit_range(ranges.pop(), schema)
    inside = sum(
        len({*groups.numbers}.intersection(groups.index.stored.keys.within(shared)))
        for groups in blocks
    )
    return shared if 2 * inside >= sum(len(groups.numbers) for groups in blocks) else KeyRange()


def _stored(blocks: Iterable[Blocks], sizes: wide_rows.Sizes) -> list[list[tuple[Key, int]]]:
    """Return the first key and the stored size of each block, shard by shard."""
    return [
        [
            (g.index.stored.keys.first_key(n), sizes[g.slice.shard.id][group].window_bytes // count)
            for group, numbers in groupby(g.numbers, g.index.stored.layout.row_group_of)
            for count in [len(g.index.stored.layout.blocks_of(group))]
            for n in numbers
        ]
        for g in blocks
    ]


def _windows(
    blocks: Sequence[Blocks],
    spans: Iterable[KeyRange],
    bounds: ValueBounds,
    schema: Schema,
    where: Predicate | None,
) -> Iterator[tuple[KeyRange, list[Blocks]]]:
    """Yield each window with the row groups it reads; those at its borders also hold other keys."""
    for span in spans:
        parts = bounds.pruned(groups.within(span, schema) for groups in blocks)
        if some := [_read(groups, where) for groups in parts if groups.numbers]:
            yield span, some


@dataclass(frozen=True, slots=True)
class _MergePlan:
    """How the windows of a stream are merged.

    `names` are the columns that are read, all keys among them; `sizes` is what they take. All
    shards have `most_rows`; batches get up to `most_joined`. If it `is_cut`, rows outside of slices
    are cut from the result.
    """

    table_id: str
    schema: Schema
    where: Predicate | None
    bounds: ValueBounds
    memory_bytes: int
    names: Sequence[str]
    sizes: wide_rows.Sizes
    most_rows: int
    most_joined: int
    is_cut: bool

    def rows(self, window: MergeWindow) -> Iterator[pa.RecordBatch]:
        """Merge a window; its rows have all columns that are read."""
        widest = wide_rows.Widest.of(self.sizes, window.blocks)
        rows = engine.batch_rows(self.memory_bytes, 0, widest.row_bytes, self.most_joined)
        return gathered(self._merged(window, widest, rows), rows, engine.MAX_BATCH_BYTES)

    def _merged(
        self, window: MergeWindow, widest: wide_rows.Widest, joined_rows: int
    ) -> Iterator[pa.RecordBatch]:
        inputs = list(zip(window.blocks, window.files, strict=True))
        is_narrow = (
            widest.row_bytes < wide_rows.WIDE_ROW_BYTES
            and widest.uneven_bytes <= wide_rows.UNEVEN_BYTES
        )
        is_narrow = is_narrow and widest.columns <= wide_rows.MOST_COLUMNS
        if is_narrow and not any(map(self._has_older_parts, window.blocks)):
            batches_bytes = engine.BATCHES_PER_INPUT * widest.row_bytes
            most = inputs_at_once(
                self.memory_bytes,
                batches_bytes + widest.stored_bytes + widest.pages_bytes + widest.readers_bytes,
            )
            count = min(most, len(inputs))
            count += engine.merge_groups(count)
            rows = engine.batch_rows(self.memory_bytes, count, widest.row_bytes)
            sources = [self._source(*each) for each in inputs]
            # a multiple: batches of more than half of the joined length are passed on as they are
            merge = partial(self._merged_narrow, window, rows, rows * -(-joined_rows // rows))
            return merge_in_levels(sources, most, merge, self._reopened, window.scratch)
        wide = [self._wide_rows(*each) for each in inputs]
        merge_wide = partial(wide_rows.merge_rows, schema=self.schema)
        rows_bytes = wide_rows.ROWS_PER_INPUT * widest.row_bytes
        most = inputs_at_once(
            self.memory_bytes, rows_bytes + widest.stored_bytes + widest.decoded_bytes
        )
        batches = merge_in_levels(
            wide, most, merge_wide, wide_rows.WideRows.of_file, window.scratch
        )
        return batches if self.where is None else self.where.apply(batches)

    def _has_older_parts(self, blocks: Blocks) -> bool:
        """Return whether a shard has a column that is read in other parts than the table: of
        these, DataFusion finds members by name.
        """
        fields = [f for f in map(self.schema.field_named, self.names) if f.nested_ids]
        earlier = blocks.index.stored_fields(fields)
        return any(not is_same(earlier.get(field.name, field), field) for field in fields)

    def _wide_rows(self, blocks: Blocks, local: LocalFile) -> wide_rows.WideRows:
        columns = arrow_schema(self.schema)
        target = pa.schema([columns.field(name) for name in self.names])
        path = shard_path(self.table_id, blocks.slice.shard.id)
        sizes = self.sizes[blocks.slice.shard.id]
        return wide_rows.WideRows.of_shard(local, path, blocks, target, self.schema, sizes)

    def _source(self, blocks: Blocks, local: LocalFile) -> "_Source":
        name = f"{local.path.parent.name}/{local.path.name}"
        ranges = {} if local.is_part else {name: blocks.first_bytes}
        return _Source(partial(self._shard, blocks, local.path), ranges)

    def _shard(self, blocks: Blocks, local: Path, context: SessionContext) -> DataFrame | None:
        is_whole = self.is_cut or blocks.slice.is_whole
        span = KeyRange() if is_whole else blocks.slice.range
        stored = blocks.index.stored_fields(self.schema.fields)
        constants = blocks.slice.shard.constants
        frame = engine.sorted_file(context, local, stored, self.schema, span, constants)
        if self.where is None:
            return frame
        frame = self.bounds.applied(frame).filter(self.where.expr(context))
        return None if engine.has_no_rows(frame) else frame

    def _reopened(self, local: Path, columns: pa.Schema) -> "_Source":
        return _Source(
            lambda context: engine.sorted_columns(context, local, columns, self.schema), {}
        )

    def _merged_narrow(
        self, window: MergeWindow, batch_rows: int, joined_rows: int, sources: "Sequence[_Source]"
    ) -> Iterator[pa.RecordBatch]:
        """Merge in a session of its own, because a session frees its memory only when it ends."""
        context = engine.session(batch_rows, page_index=self.where is not None)
        opened = [(source.frame(context), source.ranges) for source in sources]
        frames = [frame for frame, _ in opened if frame is not None]
        if not frames:
            return
        ranges = {end: groups for frame, some in opened if frame for end, groups in some.items()}
        merge = engine.plan_merge(frames, self.schema, self.names, most_rows=self.most_rows)
        plan = changed(context, merge, ranges, joined=joined_rows)
        try:
            yield from engine.batches_of(context.execute(plan, 0))
        except CorruptDataError as error:
            if self.where is not None:
                self.where.check()
            paths = ", ".join(shard_path(self.table_id, g.slice.shard.id) for g in window.blocks)
            raise CorruptDataError(f"{error} (among {paths})", hint=BRING_BACK) from error


@dataclass(frozen=True, slots=True)
class _Source:
    """A sorted file for DataFusion: `frame` opens it in a session, and returns None if it is known
    to have no rows; `ranges` are what is read of a file, by the end of its path.
    """

    frame: Callable[[SessionContext], DataFrame | None]
    ranges: Mapping[str, range]
