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

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import NewShard, Shard
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored

MAX_CELLS = 1024
FIRST_TASK_PART = (MAX_CELLS + 1) ** 2
"""The number of the first part of a run that is not divided into steps, but into tasks of Spark.
Parts of steps have smaller numbers."""


@dataclass(frozen=True, slots=True, order=True)
class Step:
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

    def split(self, parts: int) -> tuple[Step, ...]:
        """Return up to `parts` steps of about as many cells each.

        Requires several cells. 5 cells in 2 parts: 0-2 and 2-5.
        """
        parts = min(max(parts, 2), self.cells)
        ends = [self.first + self.cells * n // parts for n in range(parts + 1)]
        return tuple(Step(low, high) for low, high in zip(ends, ends[1:], strict=False))

    def range_in(self, cells: Sequence[KeyRange]) -> KeyRange:
        """Return the key range of the step."""
        return KeyRange(cells[self.first].min, cells[self.end - 1].max)


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step is done: its shards, and how many rows it read, kept and removed."""

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int


@dataclass(frozen=True, slots=True)
class StepSplit:
    """A step, or the whole job, was too large, and was split `into` smaller steps."""

    into: tuple[Step, ...]


StepOutcome = StepDone | StepSplit


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
        found = (self.outcomes.get(step) for step in self.current)
        return [outcome for outcome in found if isinstance(outcome, StepDone)]

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


_StoredShard = tuple[str, int, int, str, str, tuple[tuple[str, int], ...]]


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of an outcome; `into` is empty for a step that is done."""

    cells: str
    into: tuple[tuple[int, int], ...] = ()
    outputs: tuple[_StoredShard, ...] = ()
    rows_read: int = 0
    rows_kept: int = 0
    rows_removed: int = 0


FORMAT = 1
_KIND = "outcome of a step"


def encode_step_outcome(outcome: StepOutcome, digest: str, path: str) -> bytes:
    """Return the stored form of a step's outcome for its `path`."""
    if isinstance(outcome, StepSplit):
        stored = _Stored(digest, into=tuple((step.first, step.end) for step in outcome.into))
    else:
        outputs = tuple(map(_stored_shard, outcome.outputs))
        stored = _Stored(
            digest, (), outputs, outcome.rows_read, outcome.rows_kept, outcome.rows_removed
        )
    return encode_stored(_KIND, FORMAT, path, stored)


def decode_step_outcome(body: bytes, path: str) -> tuple[StepOutcome, str]:
    """Return an outcome and the digest of the cells that its step refers to.

    Raises:
        CorruptDataError: the body is not the outcome of the step at `path`.
    """
    with raise_corrupt(f"{path} is not the outcome of a step"):
        stored = decode_stored(_KIND, FORMAT, path, body, _Stored)
        if stored.into:
            return StepSplit(tuple(Step(*cells) for cells in stored.into)), stored.cells
        outputs = tuple(map(_shard, stored.outputs))
        return StepDone(
            outputs, stored.rows_read, stored.rows_kept, stored.rows_removed
        ), stored.cells


def _stored_shard(new: NewShard) -> _StoredShard:
    shard = new.shard
    low, high = shard.low.hex(), shard.high.hex()
    return shard.id, shard.rows, shard.size_bytes, low, high, new.rows_by_partition


def _shard(stored: _StoredShard) -> NewShard:
    shard_id, rows, size_bytes, low, high, by_partition = stored
    span = bytes.fromhex(low), bytes.fromhex(high)
    return NewShard(Shard(shard_id, rows, size_bytes, *span), by_partition)
