"""Blocks of sorted rows, the form in which rows pass through Spark: opaque bytes.

A shuffle moves few large records instead of many rows, nothing is converted, and every column type
is preserved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import row_spans, sort_key
from dormouse.arrow.types import arrow_schema, slices_of_size
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Schema

BLOCKS_IN_MEMORY = 2048
"""Spark's Python workers collect up to a thousand records before they pass them on."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sorted rows as an Arrow IPC message: block `number` of the stream of `task`."""

    task: int
    number: int
    rows: bytes

    def batch(self, schema: Schema) -> pa.RecordBatch:
        """Return the rows."""
        return pa.ipc.read_record_batch(pa.py_buffer(self.rows), arrow_schema(schema))


def blocks(task: int, batches: Iterable[pa.RecordBatch], block_bytes: int) -> Iterator[Block]:
    """Yield a sorted stream in blocks of about `block_bytes`."""
    number = 0
    for batch in batches:
        for part in slices_of_size(batch, block_bytes):
            yield _block(task, number, part)
            number += 1


def route_blocks(
    stream: Iterable[Block], cuts: Sequence[Key], schema: Schema
) -> Iterator[tuple[int, Block]]:
    """Yield blocks with the number of their key range; a block that
    spans several ranges is divided.

    The ranges meet at `cuts`: each cut is the first key of the range after it. For example, with
    the cuts d and k, a block with the keys b, c, e, p becomes (0, b c), (1, e) and (2, p).
    """
    for block in stream:
        batch = block.batch(schema)
        first = bisect_right(cuts, sort_key(batch, 0, schema))
        last = bisect_right(cuts, sort_key(batch, batch.num_rows - 1, schema))
        if first == last:
            yield first, block
            continue
        spans = row_spans(batch, cuts[first:last], schema)
        starts = [0, *(start for start, _ in spans)]
        ends = [*starts[1:], batch.num_rows]
        for part, (start, end) in enumerate(zip(starts, ends, strict=True), start=first):
            if start < end:
                yield part, _block(block.task, block.number, batch.slice(start, end - start))


class Spool:
    """Blocks in a file, returned in a fixed order, whatever the order in which they were added."""

    def __init__(self, path: Path) -> None:
        """Create the file `path` and store blocks in it."""
        self._file = path.open("w+b")
        self._places: list[tuple[int, int, int, int]] = []

    def add(self, block: Block) -> None:
        """Add a block."""
        at = self._file.tell()
        self._file.write(block.rows)
        self._places.append((block.task, block.number, at, len(block.rows)))

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, task by task, each stream in its order."""
        for task, number, at, size_bytes in sorted(self._places):
            self._file.seek(at)
            yield Block(task, number, self._file.read(size_bytes))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _block(task: int, number: int, batch: pa.RecordBatch) -> Block:
    return Block(task, number, batch.serialize().to_pybytes())
