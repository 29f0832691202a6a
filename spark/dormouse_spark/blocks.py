"""Blocks of sorted rows, the form in which rows pass through Spark: opaque bytes. Before they are
cut into blocks, sorted rows are in a file of the executor that read them.

A shuffle moves few large records instead of many rows, nothing is converted, and every column type
is preserved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import row_spans, sort_key
from dormouse.arrow.types import arrow_schema
from dormouse.keys import Key
from dormouse.schema.schema import Schema

BLOCKS_IN_MEMORY = 2048
"""Spark's Python workers collect up to a thousand records before they pass them on."""
ALIGNED_BYTES = 64
"""Rows are read where they are in a file of blocks if each block begins at a multiple of this."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Sorted rows as an Arrow IPC message: block `number` of the stream of `task`."""

    task: int
    number: int
    rows: bytes


def store_rows(path: Path, batches: Iterable[pa.RecordBatch], schema: Schema) -> None:
    """Write rows to a new file, and remove it on an error."""
    try:
        with pa.ipc.new_stream(str(path), arrow_schema(schema)) as stream:
            for batch in batches:
                stream.write_batch(batch)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def stored_rows(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, and then remove it."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        yield from stream
    path.unlink(missing_ok=True)


def route_rows(
    task: int, batches: Iterable[pa.RecordBatch], cuts: Sequence[Key], schema: Schema
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the sorted rows of a task as blocks with the numbers of their key ranges; a batch that
    spans several ranges is divided.

    The ranges meet at `cuts`: each cut is the first key of the range after it. For example, with
    the cuts d and k, a batch with the keys b, c, e, p becomes (0, b c), (1, e) and (2, p).
    """
    for number, batch in enumerate(batches):
        first = bisect_right(cuts, sort_key(batch, 0, schema))
        last = bisect_right(cuts, sort_key(batch, batch.num_rows - 1, schema))
        spans = row_spans(batch, cuts[first:last], schema) if first < last else []
        starts = [0, *(start for start, _ in spans)]
        ends = [*starts[1:], batch.num_rows]
        for part, (start, end) in enumerate(zip(starts, ends, strict=True), start=first):
            if start < end:
                rows = batch.slice(start, end - start).serialize()
                yield part, RowBlock(task, number, rows.to_pybytes())


class Spool:
    """Blocks in memory and then in a file, returned in a fixed order, whatever the order in which
    they were added.
    """

    def __init__(self, path: Path, memory_bytes: int) -> None:
        """Store blocks in the new file `path` once those in memory take `memory_bytes`."""
        self._path = path
        self._file = path.open("wb")
        self._left_bytes = memory_bytes
        self._places: list[tuple[int, int, bytes | range]] = []

    def add(self, block: RowBlock) -> None:
        """Add a block."""
        size_bytes = len(block.rows)
        place: bytes | range = block.rows
        if size_bytes <= self._left_bytes:
            self._left_bytes -= size_bytes
        else:
            at = self._file.tell()
            self._file.write(block.rows + bytes(-size_bytes % ALIGNED_BYTES))
            place = range(at, at + size_bytes)
        self._places.append((block.task, block.number, place))

    def streams(self, schema: Schema) -> Iterator[list[pa.RecordBatch]]:
        """Yield the sorted stream of each task, in the order of the tasks; no block can be added
        any more.

        Rows in the file are read where it is mapped, and take no other memory.
        """
        self._file.close()
        content = pa.py_buffer(b"")
        if self._path.stat().st_size:
            with pa.memory_map(str(self._path)) as mapped:
                content = mapped.read_buffer()
        columns = arrow_schema(schema)
        for _, places in groupby(sorted(self._places, key=_in_order), lambda place: place[0]):
            yield [
                pa.ipc.read_record_batch(
                    content.slice(at.start, len(at)) if isinstance(at, range) else pa.py_buffer(at),
                    columns,
                )
                for _, _, at in places
            ]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _in_order(place: tuple[int, int, object]) -> tuple[int, int]:
    return place[:2]
