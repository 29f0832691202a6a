"""The steps of a compaction: key ranges that are merged one at a time, and their stored outcomes.

The keys of a job are divided into cells of about equal rows, in the same way by every run. A step
is a range of neighbouring cells. The outcome of a step is written once: it is done, or it was too
large and is split into smaller steps. All runs of a job therefore agree on its steps, and no two
steps that are done have a row in common.

A job of 8 cells that is divided into two steps, of which the second crashes and is split, has these
outcomes, and the steps that are left to run are 4-6 and 6-8:

    0-8: split into 0-4, 4-8
    0-4: done
    4-8: split into 4-6, 6-8
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from dormouse.features.requests import Kind
from dormouse.keys import Key, KeyHistogram, KeyRange
from dormouse.state.partitions import NewShard, Partition

MAX_CELLS = 1024
FIRST_TASK_PART = (MAX_CELLS + 1) ** 2
"""The number of the first part of a run that is not divided into steps, but into tasks of Spark.
Parts of steps have smaller numbers."""


class Step(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, order=True):
    """The cells from `first` up to but not including `end`, counted from 0."""

    first: int
    end: int

    @property
    def cells(self) -> int:
        """Return how many cells the step has; a step of one cell cannot be split."""
        return self.end - self.first

    @property
    def part(self) -> int:
        """Return the number of the part that this step writes.

        Each step has its own number, and the numbers of steps that are done ascend in key order.
        """
        return self.first * (MAX_CELLS + 1) + self.end

    def split(self, parts: int) -> "tuple[Step, ...]":
        """Return up to `parts` steps of about as many cells each.

        Requires several cells. 5 cells in 2 parts: 0-2 and 2-5.
        """
        parts = min(max(parts, 2), self.cells)
        ends = [self.first + self.cells * n // parts for n in range(parts + 1)]
        return tuple(Step(low, high) for low, high in zip(ends, ends[1:], strict=False))


class StepDone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="done"):
    """A step is done: its shards, and how many rows it read, kept and removed."""

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int


class StepSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="split"):
    """A step, or the whole job, was too large, and was split `into` smaller steps."""

    into: tuple[Step, ...]


StepOutcome = StepDone | StepSplit


class StoredOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a step, and the digest of the cells that the step refers to."""

    cells: str
    outcome: StepOutcome


OUTCOME = Kind("the outcome of a step", StoredOutcome)


@dataclass(frozen=True, slots=True)
class Steps:
    """The outcomes of the steps of a job; none if the job was not divided.

    `digest` identifies the cells that the steps refer to.
    """

    outcomes: Mapping[Step, StepOutcome]
    digest: str = ""

    @property
    def whole(self) -> Step | None:
        """Return the step of all cells of the job; None if the job was not divided."""
        return Step(0, max(step.end for step in self.outcomes)) if self.outcomes else None

    @property
    def current(self) -> list[Step]:
        """Return the steps that were not split, done or not, in key order."""
        return list(self._below(self.whole)) if self.whole else []

    @property
    def left(self) -> list[Step]:
        """Return the steps that are not done, in key order."""
        return [step for step in self.current if step not in self.outcomes]

    @property
    def done(self) -> list[StepDone]:
        """Return the outcomes of the steps that are done, in key order."""
        outcomes = (self.outcomes.get(step) for step in self.current)
        return [outcome for outcome in outcomes if isinstance(outcome, StepDone)]

    def _below(self, step: Step) -> Iterator[Step]:
        outcome = self.outcomes.get(step)
        if not isinstance(outcome, StepSplit):
            yield step
            return
        for smaller in outcome.into:
            yield from self._below(smaller)


def cells_digest(cells: Sequence[KeyRange]) -> str:
    """Return a digest of the borders of a job's cells."""
    text = "|".join("-" if c.high is None else c.high.hex() for c in cells)
    return blake2b(text.encode(), digest_size=8).hexdigest()


# Divide work on sorted rows by key into tasks of about equal rows.
#
# Borders are sampled keys, so no row is read to find them, and the rows of one key stay together.

MIN_MERGE_TASK_BYTES = 32 * 1024 * 1024
"""The least stored size that a task of a compaction reads. Starting the task, and reading the row
groups at its borders twice, cost little compared with that."""
MAX_SMALL_MERGE_TASKS = 16
"""The most tasks of a small compaction; a larger one has about one task for each output."""
EXECUTOR_CORES = 4
"""The usual cores of an executor: so many tasks run at once, and a few more would leave some idle
at the end. It is a constant, because each run of a job must have the same tasks."""
TASKS_PER_SHARD = 4 / 3
"""Tasks for each target size of a shard: a task's rows then seldom exceed one shard by a little,
which would leave a second, small shard."""

MIN_TASK_BYTES = 16 * 1024 * 1024
"""The least size in memory, on average, of the rows that a task writes. A task costs a second for
its start and its shards, however few its rows are."""
MAX_TASK_BYTES = 2 * 1024**3
"""The most size in memory of the rows that a task writes: it sorts them on its machine's disk."""


@dataclass(frozen=True, slots=True)
class KeyTask:
    """The rows of a key range; `leaves` are the leaves that it meets, in whole or in part."""

    span: KeyRange
    leaves: tuple[Partition, ...]


def equal_row_ranges(span: KeyRange, histogram: KeyHistogram, parts: int) -> list[KeyRange]:
    """Return `span` divided into up to `parts` ranges of about equal rows.

    A range exceeds its share by at most the rows between two neighbouring samples, unless it is
    the rows of a single key. With samples at 0, 30, 50 and 90 of 100 rows, three parts want borders
    at 33 and 66: the nearest samples are 30 and 50. A sample that is the last border already, or
    the start of `span`, is not used again, so there may be fewer ranges.
    """
    inside = histogram.within(span)
    cuts: list[Key] = []
    at = 0
    for i in range(1, parts):
        target = inside.rows * i // parts
        while at < len(inside.samples) and inside.samples[at][1] < target:
            at += 1
        near = inside.samples[max(0, at - 1) : at + 1]
        fresh = [s for s in near if s[1] > 0 and s[0] > max((span.min, *cuts[-1:]))]
        if fresh:
            cuts.append(min(fresh, key=lambda sample: abs(sample[1] - target))[0])
    return [
        KeyRange(low, high) for low, high in zip([span.min, *cuts], [*cuts, span.max], strict=True)
    ]


def merge_ranges(
    span: KeyRange, histogram: KeyHistogram, size_bytes: int, target_bytes: int
) -> list[KeyRange]:
    """Return the key ranges of a compaction's tasks, the same for every run of it.

    `size_bytes` is the stored size of its inputs, and `target_bytes` that of an output.
    """
    few = min(MAX_SMALL_MERGE_TASKS, -(-size_bytes // MIN_MERGE_TASK_BYTES))
    if few > EXECUTOR_CORES:
        few -= few % EXECUTOR_CORES
    return equal_row_ranges(
        span, histogram, max(1, few, int(TASKS_PER_SHARD * size_bytes / target_bytes))
    )


def max_task_rows(
    leaves: Sequence[Partition], histogram: KeyHistogram, size_bytes: int, parallelism: int
) -> int:
    """Return how many rows a task should write at most.

    That is the average of the leaves that hold rows, or less, so that there are at least
    `parallelism` tasks. `size_bytes` is the size of all rows in memory; the limit is kept between
    `MIN_TASK_BYTES` and `MAX_TASK_BYTES`.
    """
    count = sum(1 for leaf in leaves if histogram.rows_in(leaf.range))
    share_bytes = size_bytes // max(count, parallelism, 1)
    limit_bytes = min(max(share_bytes, MIN_TASK_BYTES), MAX_TASK_BYTES)
    return max(1, histogram.rows * limit_bytes // max(size_bytes, 1))


def leaf_tasks(
    leaves: Sequence[Partition], histogram: KeyHistogram, limit_rows: int
) -> list[KeyTask]:
    """Return tasks of about `limit_rows` at most that together write the rows of all leaves.

    Small neighbouring leaves share a task, as do leaves without known rows, so that each key
    belongs to a task. A leaf with more than one and a half times the limit is divided. With a
    limit of 10, leaves of 4, 5, 0, 30 and 2 rows give the tasks 4+5+0 | 10 | 10 | 10 | 2.
    """
    limit_rows = max(1, limit_rows)
    return list(_join_small_tasks(_cut_leaves(leaves, histogram, limit_rows), limit_rows))


def _cut_leaves(
    leaves: Sequence[Partition], histogram: KeyHistogram, limit_rows: int
) -> Iterator[tuple[KeyTask, int]]:
    for leaf in leaves:
        rows = histogram.rows_in(leaf.range)
        parts = 1 if 2 * rows <= 3 * limit_rows else -(-rows // limit_rows)
        for span in equal_row_ranges(leaf.range, histogram, parts):
            yield KeyTask(span, (leaf,)), histogram.rows_in(span)


def _join_small_tasks(tasks: Iterable[tuple[KeyTask, int]], limit_rows: int) -> Iterator[KeyTask]:
    """Yield tasks, with neighbours joined that stay within the limit, but not parts of one leaf."""
    last: KeyTask | None = None
    last_rows = 0
    for task, rows in tasks:
        if last and last_rows + rows <= limit_rows and last.leaves[-1] != task.leaves[0]:
            span = KeyRange(last.span.min, task.span.max)
            last, last_rows = KeyTask(span, last.leaves + task.leaves), last_rows + rows
            continue
        if last:
            yield last
        last, last_rows = task, rows
    if last:
        yield last
