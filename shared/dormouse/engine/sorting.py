"""Sort any number of rows in bounded memory, by ranges of keys instead of a merge.

Sorting is fast as long as the rows stay in the processor's cache. So rows are sorted in small
pieces as they come, which are the runs; when all are there, samples of the runs tell where to cut
the keys into ranges as small as a piece, and each range is picked out of all runs and sorted. Both
sorts together take a third of the time of one sort of all rows, and half that of a merge. Runs may
lie in memory or in files; whoever owns the memory says when runs must go to a file.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import row_spans, sort_key
from dormouse.arrow.types import arrow_schema, conform
from dormouse.engine import datafusion as engine
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Schema

PIECE_ROWS = 100_000
PIECE_BYTES = 8 * 1024 * 1024
"""What is sorted at once: about what a processor's cache holds, and never much memory."""
PIECES_IN_MEMORY = 32
BLOCKS_IN_MEMORY = 2048
"""Little memory makes smaller pieces, and smaller blocks of files."""
SAMPLES_PER_PIECE = 32
MAX_FILES = 64
"""One block of each file is in memory while they are merged, so there are only so many."""


class Sorter:
    """Rows being sorted; `rows` counts them, `size_bytes` is what they take in memory.

    `held_bytes` is what is in memory of them right now.
    """

    def __init__(self, schema: Schema, scratch: Path, *, memory_bytes: int) -> None:
        """Start empty. Files go to `scratch`; pieces and blocks fit into `memory_bytes` well."""
        self.rows = 0
        self.size_bytes = 0
        self._schema = schema
        self._scratch = scratch
        self._largest_piece_bytes = max(1, min(PIECE_BYTES, memory_bytes // PIECES_IN_MEMORY))
        self._block_bytes = max(1, memory_bytes // BLOCKS_IN_MEMORY)
        self._loose: list[pa.RecordBatch] = []
        self._loose_bytes = 0
        self._held: list[_SortedRun] = []
        self._held_bytes = 0
        self._files: list[_SortedRun] = []

    @property
    def held_bytes(self) -> int:
        """What is in memory of the rows."""
        return self._loose_bytes + self._held_bytes

    @property
    def _piece_bytes(self) -> int:
        """What a piece takes in memory; wide rows make larger pieces of fewer rows."""
        by_rows = PIECE_ROWS * self.size_bytes // max(1, self.rows)
        return max(1, min(self._largest_piece_bytes, by_rows))

    def sampled_keys(self) -> Iterator[Key]:
        """Return the keys, sort keys included, of some rows: of one in every few hundred KiB."""
        self._settle()
        for run in (*self._held, *self._files):
            yield from (sample.key for sample in run.samples)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, in any order."""
        self.rows += batch.num_rows
        self.size_bytes += batch.nbytes
        for piece in _pieces(batch, self._piece_bytes):
            self._loose.append(piece)
            self._loose_bytes += piece.nbytes
            if self._loose_bytes >= self._piece_bytes:
                self._settle()

    def absorb(self, other: Sorter) -> None:
        """Take over all rows of another sorter of the same table, which must not be used again."""
        self.rows += other.rows
        self.size_bytes += other.size_bytes
        self._held += other._held
        self._held_bytes += other._held_bytes
        self._files += other._files
        self._loose += other._loose
        self._loose_bytes += other._loose_bytes
        if self._loose_bytes >= self._piece_bytes:
            self._settle()

    def spill(self) -> None:
        """Move what is in memory to a file."""
        self._settle()
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._files.append(self._write(held))

    def discard(self) -> None:
        """Drop all rows."""
        for run in self._files:
            run.discard()
        self._loose, self._held, self._files = [], [], []

    def sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in key order; can be read once. Rows of equal keys are in no order.

        The same rows, added alike, come in the same order every time.
        """
        self._settle()
        while len(self._files) > MAX_FILES:
            self._files.sort(key=lambda run: run.size_bytes)
            few, self._files = self._files[: MAX_FILES // 2], self._files[MAX_FILES // 2 :]
            self._files.append(self._write(few))
        yield from self._merged([*self._files, *self._held])

    def _settle(self) -> None:
        """Sort loose rows into a run."""
        if self._loose:
            loose, self._loose, self._loose_bytes = self._loose, [], 0
            for batch in _sorted(loose, self._schema):
                run = _held_run(batch, self._schema)
                self._held.append(run)
                self._held_bytes += run.size_bytes

    def _merged(self, runs: Sequence[_SortedRun]) -> Iterator[pa.RecordBatch]:
        cuts = list(_range_ends([s for run in runs for s in run.samples], self._piece_bytes))
        cursors = [_Cursor(run.blocks, cuts, self._schema) for run in runs]
        for number in range(len(cuts) + 1):
            picked = (batch for cursor in cursors for batch in cursor.rows_of(number))
            alike = number < len(cuts) and cuts[number].through
            yield from picked if alike else _sorted(picked, self._schema)

    def _write(self, runs: Sequence[_SortedRun]) -> _SortedRun:
        """Merge runs into one in a file; they are gone then."""
        with tempfile.NamedTemporaryFile(dir=self._scratch, suffix=".run", delete=False) as file:
            path = Path(file.name)
        samples: list[_Sample] = []
        options = pa.ipc.IpcWriteOptions(compression="lz4")  # scratch is small
        with pa.ipc.new_stream(str(path), arrow_schema(self._schema), options=options) as stream:
            for batch in self._merged(runs):
                for block in _pieces(batch, self._block_bytes):
                    samples.append(_Sample(sort_key(block, 0, self._schema), block.nbytes))
                    stream.write_batch(block)
        return _SortedRun(_stored(path), samples, path)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The key of a row of a run, and what the rows from there to the next sample take."""

    key: Key
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _SortedRun:
    """Sorted rows in blocks, to be read once; in a file if there is a `path`."""

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
    """Where a range ends: before the rows of `key`, or after them, and then it has no others."""

    key: Key
    through: bool = False


class _Cursor:
    """A run being read range by range: range n ends at cut n, the last at the end."""

    def __init__(
        self, blocks: Iterable[pa.RecordBatch], cuts: Sequence[_RangeEnd], schema: Schema
    ) -> None:
        self._blocks = iter(blocks)
        self._cuts = cuts
        self._schema = schema
        self._block: pa.RecordBatch | None = None
        self._given = 0
        self._first = 0
        self._ends: list[int] = []

    def rows_of(self, number: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range; to be asked for all ranges in order."""
        while (block := self._block or self._next_block(number)) is not None:
            at = number - self._first
            end = self._ends[at] if at < len(self._ends) else block.num_rows
            if end > self._given:
                yield block.slice(self._given, end - self._given)
            self._given = end
            if end < block.num_rows:
                return
            self._block = None

    def _next_block(self, number: int) -> pa.RecordBatch | None:
        """Read a block and find where in it the ranges from `number` on end."""
        block = self._block = next(self._blocks, None)
        self._given, self._first, self._ends = 0, number, []
        if block is not None:
            last = sort_key(block, block.num_rows - 1, self._schema)
            within = self._cuts[number : bisect_right(self._cuts, last, key=_key)]
            spans = row_spans(block, [cut.key for cut in within], self._schema)
            self._ends = [span[cut.through] for span, cut in zip(spans, within, strict=True)]
        return block


def _range_ends(samples: Iterable[_Sample], range_bytes: int) -> Iterator[_RangeEnd]:
    """Return the ends of ranges that take about `range_bytes` each, but for the last.

    A key whose rows are more than that gets a range of its own, which needs no sorting.
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


def _sorted(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Sort rows which are few enough to be in memory thrice."""
    table = pa.Table.from_batches(batches, arrow_schema(schema))
    pieces = table.combine_chunks().to_batches()
    if pieces:
        frame = engine.frame_from_batches(engine.session(table.num_rows), pieces)
        for batch in engine.execute_frame(frame.sort(*engine.key_order(schema))):
            yield conform(batch, arrow_schema(schema))


def _held_run(batch: pa.RecordBatch, schema: Schema) -> _SortedRun:
    step = -(-batch.num_rows // SAMPLES_PER_PIECE)
    rows = range(0, batch.num_rows, step)
    share_bytes = batch.nbytes // len(rows) + 1
    samples = [_Sample(sort_key(batch, row, schema), share_bytes) for row in rows]
    return _SortedRun([batch], samples)


def _stored(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
            yield from stream
    finally:
        path.unlink(missing_ok=True)


def _pieces(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of a batch in batches that take about `size_bytes` each."""
    pieces = max(1, batch.nbytes // size_bytes)
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(start, rows)
