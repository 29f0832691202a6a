"""How work on sorted rows is cut by key into tasks of about equal rows.

Cuts fall on sampled keys, so no row is moved to find them, and the rows of one key stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dormouse.keys.histogram import KeyHistogram
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.partitions import Partition

MERGE_BYTES = 32 * 1024 * 1024
"""What a task of a compaction reads at least, stored: its start, and the row groups at its borders
that are read twice, cost little beside that."""
MERGE_TASKS = 16
"""As many tasks a small compaction is cut into at most; a larger one has one for each shard."""
ROOM = 4 / 3
"""A task's share of a shard's target size, so that it seldom leaves a second, small shard."""

MIN_TASK_BYTES = 16 * 1024 * 1024
"""What the rows of a writing task take in memory at least, on average: with its start and a shard
or more it costs a second, however few they are."""
MAX_TASK_BYTES = 2 * 1024**3
"""What they take at most: a task keeps them on its machine's disk while it sorts them."""


@dataclass(frozen=True, slots=True)
class KeyTask:
    """The rows of a range of keys, which `leaves` hold, the first and last maybe in part."""

    span: KeyRange
    leaves: tuple[Partition, ...]


def even_ranges(span: KeyRange, known: KeyHistogram, parts: int) -> list[KeyRange]:
    """Cut `span` into up to `parts` ranges of about equal rows.

    A range holds more than its share only by what two neighbouring samples are apart, or if it is
    the rows of a single key.
    """
    inside = known.within(span)
    cuts: list[Key] = []
    at = 0
    for i in range(1, parts):
        wanted = inside.rows * i // parts
        while at < len(inside.samples) and inside.samples[at][1] < wanted:
            at += 1
        near = inside.samples[max(0, at - 1) : at + 1]
        fresh = [s for s in near if s[1] > 0 and s[0] > max((span.min, *cuts[-1:]))]
        if fresh:
            cuts.append(min(fresh, key=lambda sample: abs(sample[1] - wanted))[0])
    return [
        KeyRange(low, high) for low, high in zip([span.min, *cuts], [*cuts, span.max], strict=True)
    ]


def merge_ranges(
    span: KeyRange, known: KeyHistogram, size_bytes: int, target_bytes: int
) -> list[KeyRange]:
    """Cut a compaction of shards that take `size_bytes` into tasks; the same for every run of it.

    `target_bytes` is what its outputs may grow to.
    """
    few = min(MERGE_TASKS, -(-size_bytes // MERGE_BYTES))
    return even_ranges(span, known, max(1, few, int(ROOM * size_bytes / target_bytes)))


def task_rows(
    leaves: Sequence[Partition], known: KeyHistogram, size_bytes: int, parallelism: int
) -> int:
    """Return how many rows a task is to write at most: their share if each leaf were one.

    `size_bytes` is what all rows take in memory. There are enough tasks for `parallelism` of them
    at once, unless these would be too small.
    """
    held = sum(1 for leaf in leaves if known.rows_in(leaf.range))
    share_bytes = size_bytes // max(held, parallelism, 1)
    limit_bytes = min(max(share_bytes, MIN_TASK_BYTES), MAX_TASK_BYTES)
    return max(1, known.rows * limit_bytes // max(size_bytes, 1))


def leaf_tasks(leaves: Sequence[Partition], known: KeyHistogram, limit_rows: int) -> list[KeyTask]:
    """Cut rows that go to leaves into tasks of about `limit_rows` at most.

    Small neighbours are one task. A leaf which holds half as much again as the limit is cut into
    several, and leaves between tasks that hold no row known of are added to their neighbours': all
    keys are some task's.
    """
    return list(_joined(_cut(leaves, known, max(1, limit_rows)), max(1, limit_rows)))


def _cut(
    leaves: Sequence[Partition], known: KeyHistogram, limit_rows: int
) -> Iterator[tuple[KeyTask, int]]:
    for leaf in leaves:
        rows = known.rows_in(leaf.range)
        parts = 1 if 2 * rows <= 3 * limit_rows else -(-rows // limit_rows)
        for span in even_ranges(leaf.range, known, parts):
            yield KeyTask(span, (leaf,)), known.rows_in(span)


def _joined(tasks: Iterable[tuple[KeyTask, int]], limit_rows: int) -> Iterator[KeyTask]:
    """Join neighbours that together stay within the limit; parts of one leaf stay apart."""
    held: KeyTask | None = None
    held_rows = 0
    for task, rows in tasks:
        if held is None:
            held, held_rows = task, rows
        elif held_rows + rows <= limit_rows and held.leaves[-1] != task.leaves[0]:
            span = KeyRange(held.span.min, task.span.max)
            held, held_rows = KeyTask(span, held.leaves + task.leaves), held_rows + rows
        else:
            yield held
            held, held_rows = task, rows
    if held is not None:
        yield held
