"""Merge many inputs in levels: what a merge holds of its inputs is bounded, however many there are.

A merge holds some rows of each input, and the row group that they are decoded from. Where that is
too much for all inputs at once, some are merged into files first, and then these files are.

For example, nine inputs of which three may be merged at once:

    a b c | d e f | g h i      three merges, each into a file
      x   |   y   |   z        one merge of the files
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import gathered
from dormouse.shards.writing.compression import column_paths
from dormouse.storage import writing_files

INPUTS_BYTES = 160 * 1024 * 1024
"""What a merge may hold of all its inputs, unless it has less memory."""
LEAST_INPUTS = 2
GROUP_ROWS, GROUP_BYTES = 16_384, 1024 * 1024
"""How many rows a row group of a file in between has, or about how many bytes of them."""
CHUNK_BYTES = 16 * 1024
"""How many bytes of each column it has at least: a column chunk takes 2.5 KB while it is written,
so those of 500 columns in row groups of a megabyte would take more than their rows.
"""

_Input = TypeVar("_Input")


def inputs_at_once(memory_bytes: int, input_bytes: float) -> int:
    """Return how many inputs a merge may have that holds `input_bytes` of each."""
    return max(LEAST_INPUTS, int(min(memory_bytes, INPUTS_BYTES) / max(1.0, input_bytes)))


def fan_in(inputs: int, most: int) -> int:
    """Return how many inputs to merge at once, at most `most`, so that rows are merged as seldom as
    possible, and by merges of as few inputs as possible.
    """
    levels = 1
    while most**levels < inputs:
        levels += 1
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
        merged = []
        for at in range(0, len(inputs), width):
            local = scratch / f"merged-{next(numbers)}.parquet"
            columns = _write(local, merge(inputs[at : at + width]))
            if columns is not None:
                merged.append(reopen(local, columns))
        inputs = merged
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
