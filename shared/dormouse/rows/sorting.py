"""External sort: any number of rows in bounded memory, by ranges of keys instead of a merge.

Sorting is fast while the rows fit into the processor's cache. The sort therefore has two passes.
First, rows are sorted in small pieces as they arrive; each sorted piece is a run. Then samples of
the runs' keys are used to cut the key space into ranges of about one piece each, and each range is
collected from all runs and sorted. Both passes together take a third of the time of one sort of all
rows, and half of that of a sort with a merge. Runs are in memory or in files: more than a share of
the memory is spilled to a file, and the owner of the memory may have it spilled before.

For example, with pieces of three rows:

    input    d a f | c e b | a g c
    runs     a d f | b c e | a c g
    ranges   [-∞, c): a, b, a    [c, e): d, c, c    [e, ∞): f, e, g
    output   a a b | c c d | e f g

Each run is read once, from its start to its end: the rows of a range are one slice of each.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from threading import get_ident

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext

from dormouse.arrow.order import row_spans, sort_key, taken_keys
from dormouse.arrow.types import arrow_schema, conform, halved
from dormouse.arrow.values import sorted_positions, with_ties_in_order
from dormouse.keys import Key
from dormouse.rows import datafusion as engine
from dormouse.schema.schema import Schema

# Sort a piece: rows that fit into memory several times.
#
# Comparing one column is much cheaper than comparing several, and most rows differ in the first
# key column already. So DataFusion sorts by the first key column alone, and then the rows that are
# equal in it are put in order by the other key columns.

FEW_ROWS = 100
MOST_ROWS = 2**30
"""More rows than a piece has: all of a piece are one batch."""


@lru_cache(maxsize=4)
def _session(thread: int) -> SessionContext:
    """Return the session in which a thread sorts; to open one takes as long as to sort a thousand
    rows.
    """
    return engine.session(MOST_ROWS)


def sort_piece(batches: Iterable[pa.RecordBatch], schema: Schema) -> list[pa.RecordBatch]:
    """Return the rows of `batches` sorted by all keys of `schema`, whose columns come first.

    Rows with equal keys come in no particular order, but always in the same one.
    """
    table = pa.Table.from_batches(batches, arrow_schema(schema))
    pieces = table.to_batches()
    if not pieces:
        return []
    if table.num_rows <= FEW_ROWS:
        (few,) = table.combine_chunks().to_batches()
        return [few.take(sorted_positions(few.columns[: len(schema.keys)]))]
    session = _session(get_ident())
    by_first_key = engine.key_order(schema)[:1]
    frame = engine.frame_from_batches(session, pieces).sort(*by_first_key)
    rows = pa.Table.from_batches(engine.batches_of(frame.execute_stream()))
    (batch,) = rows.combine_chunks().to_batches()  # ties may lie in two batches
    batch = conform(batch, arrow_schema(schema))
    first, *others = batch.columns[: len(schema.keys)]
    if others:
        same = pc.equal(first.slice(0, len(first) - 1), first.slice(1))
        batch = with_ties_in_order(batch, same, lambda tied: [c.filter(tied) for c in others])
    return [batch]


PIECE_ROWS = 100_000
PIECE_BYTES = 8 * 1024 * 1024
"""The size of a piece: about as much as fits into a processor's cache, and never much memory."""
PIECES_IN_MEMORY = 32
BLOCKS_IN_MEMORY = 2048
"""With little memory, pieces and the blocks of files are smaller."""
SAMPLES_PER_PIECE = 32
"""About how many rows of a piece are samples, with as many bytes from each to the next: a row that
is wider than that is a sample itself. So ranges are small wherever wide rows lie."""
LEAST_SAMPLE_BYTES = 16 * 1024
"""Few rows need few samples, each of which takes as long as to sort dozens of rows."""
SHARE_HELD = 2
"""At most this fraction (1/2) of the memory holds rows; the rest is for reading, sorting and
writing."""
MAX_FILES = 64
"""The most files merged at once: one block of each is in memory."""


class Sorter:
    """Collects rows to sort; `rows` counts them, `size_bytes` is their uncompressed size in memory.

    `held_bytes` is the size of the rows that are in memory now.
    """

    def __init__(self, schema: Schema, scratch: Path, *, memory_bytes: int) -> None:
        """Start empty. Runs are spilled to `scratch`; pieces and blocks are
        small compared with `memory_bytes`.
        """
        self.rows = 0
        self.size_bytes = 0
        self._schema = schema
        self._scratch = scratch
        self._largest_piece_bytes = max(1, min(PIECE_BYTES, memory_bytes // PIECES_IN_MEMORY))
        self._block_bytes = max(1, memory_bytes // BLOCKS_IN_MEMORY)
        self._most_held_bytes = memory_bytes // SHARE_HELD
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._held: list[_SortedRun] = []
        self._held_bytes = 0
        self._files: list[_SortedRun] = []

    @property
    def held_bytes(self) -> int:
        """The size of the rows in memory, in bytes."""
        return self._pending_bytes + self._held_bytes

    @property
    def _piece_bytes(self) -> int:
        """The size of a piece in memory; pieces of wide rows have fewer rows."""
        by_rows = PIECE_ROWS * self.size_bytes // max(1, self.rows)
        return max(1, min(self._largest_piece_bytes, by_rows))

    def sampled_keys(self) -> Iterator[Key]:
        """Yield the keys, sort keys included, of a sample: one row in every few hundred KiB."""
        self._sort_pending()
        for run in (*self._held, *self._files):
            yield from (sample.key for sample in run.samples)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, in any order; spill what is in memory if it is too much."""
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes
        for piece in halved(batch, self._piece_bytes):
            self._pending.append(piece)
            self._pending_bytes += piece.nbytes
            if self._pending_bytes >= self._piece_bytes:
                self._sort_pending()
        if self.held_bytes > self._most_held_bytes:
            self.spill()

    def add_sorted(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add rows that are sorted already, batch by batch: they are a run as they are."""
        self.rows += sum(batch.num_rows for batch in batches)
        self.size_bytes += sum(batch.nbytes for batch in batches)
        run = _held_run(batches, self._piece_bytes // SAMPLES_PER_PIECE, self._schema)
        self._held.append(run)
        self._held_bytes += run.size_bytes

    def absorb(self, other: Sorter) -> None:
        """Take over all rows of another sorter of the same table, which is not used afterwards."""
        self.rows += other.rows
        self.size_bytes += other.size_bytes
        self._held += other._held
        self._held_bytes += other._held_bytes
        self._files += other._files
        self._pending += other._pending
        self._pending_bytes += other._pending_bytes
        if self._pending_bytes >= self._piece_bytes:
            self._sort_pending()

    def spill(self) -> None:
        """Write the rows in memory to a file."""
        self._sort_pending()
        if self._held:
            batches, self._held, self._held_bytes = self._held, [], 0
            self._files.append(self._write(batches))

    def discard(self) -> None:
        """Drop all rows and delete their files."""
        for run in self._files:
            run.discard()
        self._pending, self._held, self._files = [], [], []

    def sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in key order, once. Rows with equal keys come in no particular order.

        The order is deterministic: the same rows, added in the same way, come in the same order.
        """
        self._sort_pending()
        while len(self._files) > MAX_FILES:
            self._files.sort(key=lambda run: run.size_bytes)
            few, self._files = self._files[: MAX_FILES // 2], self._files[MAX_FILES // 2 :]
            self._files.append(self._write(few))
        yield from self._merged([*self._files, *self._held])

    def _sort_pending(self) -> None:
        if self._pending:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            for batch in sort_piece(pending, self._schema):
                sample_bytes = max(LEAST_SAMPLE_BYTES, batch.nbytes // SAMPLES_PER_PIECE)
                run = _held_run([batch], sample_bytes, self._schema)
                self._held.append(run)
                self._held_bytes += run.size_bytes

    def _merged(self, runs: Sequence[_SortedRun]) -> Iterator[pa.RecordBatch]:
        ends = list(_range_ends([s for run in runs for s in run.samples], self._piece_bytes))
        if len(runs) == 1 and not ends:  # one piece, which is sorted
            yield from runs[0].blocks
            return
        pa.default_memory_pool().release_unused()  # what reading took, which sorting hardly needs
        cursors = [_Cursor(run.blocks, ends, self._schema) for run in runs]
        for number in range(len(ends) + 1):
            picked = (batch for cursor in cursors for batch in cursor.rows_of(number))
            is_one_key = number < len(ends) and ends[number].through
            yield from picked if is_one_key else sort_piece(picked, self._schema)

    def _write(self, runs: Sequence[_SortedRun]) -> _SortedRun:
        """Merge runs into one run in a file; the given runs are consumed."""
        with tempfile.NamedTemporaryFile(dir=self._scratch, suffix=".run", delete=False) as file:
            path = Path(file.name)
        samples: list[_Sample] = []
        options = pa.ipc.IpcWriteOptions(compression="lz4")  # scratch space is scarce
        with pa.ipc.new_stream(str(path), arrow_schema(self._schema), options=options) as stream:
            for batch in self._merged(runs):
                for block in halved(batch, self._block_bytes):
                    samples.append(_Sample(sort_key(block, 0, self._schema), block.nbytes))
                    stream.write_batch(block)
        return _SortedRun(_stored(path), samples, path)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The key of a row of a run, and the size of the rows from there to the next sample."""

    key: Key
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _SortedRun:
    """Sorted rows in blocks, which can be read once; in the file `path` if that is set."""

    blocks: Iterable[pa.RecordBatch]
    samples: Sequence[_Sample]
    path: Path | None = None

    @property
    def size_bytes(self) -> int:
        return sum(sample.size_bytes for sample in self.samples)

    def discard(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _RangeEnd:
    """The end of a range: before the rows with `key`; with `through`, after them.

    A range that ends `through` a key holds only rows with that key.
    """

    key: Key
    through: bool = False


class _Cursor:
    """Reads one run range by range: range n ends at end n, the last one where the run ends."""

    def __init__(
        self, blocks: Iterable[pa.RecordBatch], ends: Sequence[_RangeEnd], schema: Schema
    ) -> None:
        self._blocks = iter(blocks)
        self._range_ends = ends
        self._schema = schema
        self._block: pa.RecordBatch | None = None
        self._row = 0
        self._first = 0
        self._ends: list[int] = []

    def rows_of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of range `number`; ranges must be read in order."""
        while (block := self._block or self._next_block(number)) is not None:
            at = number - self._first
            end = self._ends[at] if at < len(self._ends) else block.num_rows
            if end > self._row:
                yield block.slice(self._row, end - self._row)
            self._row = end
            if end < block.num_rows:
                return
            self._block = None

    def _next_block(self, number: int) -> pa.RecordBatch | None:
        """Read the next block, and find where in it the ranges from `number` on end."""
        block = self._block = next(self._blocks, None)
        self._row, self._first, self._ends = 0, number, []
        if block is not None:
            last = sort_key(block, block.num_rows - 1, self._schema)
            within = self._range_ends[number : bisect_right(self._range_ends, last, key=_key)]
            spans = row_spans(block, [end.key for end in within], self._schema)
            self._ends = [span[end.through] for span, end in zip(spans, within, strict=True)]
        return block


def _range_ends(samples: Iterable[_Sample], range_bytes: int) -> Iterator[_RangeEnd]:
    """Yield the ends of ranges of about `range_bytes` each; the last range has no end.

    A key whose rows alone exceed `range_bytes` gets a range of its own, which needs no sorting.

    For example, samples of 4 bytes each with the keys a, b, c, c, c, c, d and `range_bytes` of 10:
    a and b fit into one range (8 bytes). The samples of c take 16 bytes, so an end before c and an
    end through c are yielded. d is in the last range.
    """
    taken_bytes = 0
    for key, group in groupby(sorted(samples, key=_key), key=_key):
        size_bytes = sum(sample.size_bytes for sample in group)
        if taken_bytes + size_bytes > range_bytes:
            yield _RangeEnd(key)
            taken_bytes = 0
        if size_bytes > range_bytes:
            yield _RangeEnd(key, through=True)
        else:
            taken_bytes += size_bytes


def _key(item: _Sample | _RangeEnd) -> Key:
    return item.key


def _held_run(batches: Sequence[pa.RecordBatch], sample_bytes: int, schema: Schema) -> _SortedRun:
    """Return sorted rows as a run, with a sample about each `sample_bytes`."""
    samples: list[_Sample] = []
    for batch in batches:
        starts, sizes = zip(*_parts(batch, 0, batch.nbytes, sample_bytes), strict=True)
        samples += map(_Sample, taken_keys(batch, starts, schema.keys), sizes)
    return _SortedRun(batches, samples)


def _parts(
    batch: pa.RecordBatch, first: int, size_bytes: int, part_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield where parts of a batch begin, whose first row has the number `first`, and their sizes:
    about `part_bytes`, or half as much again, unless it is one row.
    """
    if batch.num_rows <= 1 or size_bytes <= 3 * part_bytes // 2:
        yield first, size_bytes
        return
    rows = max(1, batch.num_rows * part_bytes // size_bytes)
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        yield from _parts(part, first + start, part.nbytes, part_bytes)


def _stored(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
            yield from stream
    finally:
        path.unlink(missing_ok=True)
