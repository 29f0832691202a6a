"""Cut a merge into steps by key, so that what it holds at once is bounded however much it reads.

DataFusion 55 keeps all it has read of a Parquet file until the file is read to its end (see
https://github.com/apache/arrow-rs/issues/9695). A step is a merge of its own over a range of keys:
when it ends, that memory is free. The row groups at its border are read twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from dormouse.arrow.statistics import compressed_bytes, key_span
from dormouse.keys.ranges import Key, KeyRange
from dormouse.schema.schema import Schema

SHARE_OF_MEMORY = 4
"""A step reads up to this part of the memory there is."""
WINDOW_BYTES = 64 * 1024 * 1024
"""Nor more than this, so that two steps take little room in scratch and the first is there soon.
Small steps cost more: their ends are looked for in each row."""
GROUPS_PER_WINDOW = 4
"""A step reads at least so many row groups of each file that has its keys, or borders would be read
too often."""


def merge_windows(
    files: Sequence[pq.FileMetaData], schema: Schema, memory_bytes: int
) -> list[KeyRange]:
    """Return ranges in key order that hold all keys, each with a bounded share of the files' bytes.

    Only where a row group begins can be cut, so rows of one key are never parted.
    """
    lows = [
        [key_span(file.row_group(i), schema.row_keys)[0] for i in range(file.num_row_groups)]
        for file in files
    ]
    groups = [
        (low, compressed_bytes(file.row_group(i)))
        for file, begins in zip(files, lows, strict=True)
        for i, low in enumerate(begins)
    ]
    largest = max((size_bytes for _, size_bytes in groups), default=0)
    open_files = max_overlap([(begins[0], begins[-1]) for begins in lows if begins])
    least_bytes = GROUPS_PER_WINDOW * open_files * largest
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
    """Return how many spans of keys, ends included, have a key in common at most."""
    events = sorted([(low, 0) for low, _ in spans] + [(high, 1) for _, high in spans])
    most = now = 0
    for _, ends in events:
        now += -1 if ends else 1
        most = max(most, now)
    return most
