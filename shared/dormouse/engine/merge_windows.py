"""Divide a merge into windows: ranges of keys, merged one after the other, each in bounded memory.

DataFusion 55 keeps everything that it has read of a Parquet file until the file is read to its end
(https://github.com/apache/arrow-rs/issues/9695). Each window is a merge of its own, and its memory
is freed when it ends. The row groups at the border of two windows are read twice; their rows are
cut from the merged stream, which is cheaper than to compare each row with the bounds of its window.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.keys.ranges import Key, KeyRange

SHARE_OF_MEMORY = 4
"""A window reads at most this fraction (1/4) of the available memory."""
WINDOW_BYTES = 64 * 1024 * 1024
"""The largest window: two windows must fit into scratch space, and the first should be fetched
soon. Smaller windows would cost more CPU time, because row groups at their borders are read twice.
"""
GROUPS_PER_WINDOW = 4
"""The least row groups of each overlapping file in a window, if all were of the mean size: with
fewer, too many would be border row groups, which are read twice.
"""


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
    most = now = 0
    for _, ends in events:
        now += -1 if ends else 1
        most = max(most, now)
    return most
