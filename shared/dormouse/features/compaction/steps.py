"""A compaction cut by key into steps: which there are, what became of each, and its stored form.

The keys of a job are cut into cells of about equal rows, the same for every run of it. A step is
some neighbouring cells. What becomes of a step is decided once: it is done, or it was too much and
is cut into smaller ones. So all who work at a job agree on its steps, and no two steps that are
done have a row in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import NewShard, Shard
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored

MOST_CELLS = 1024
PARTS_OF_STEPS = (MOST_CELLS + 1) ** 2
"""Steps have parts of smaller numbers; parts of other ways to cut a job count from here."""


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """The cells from the `first` to just before the `end`, counted from 0."""

    first: int
    end: int

    @property
    def cells(self) -> int:
        """How many cells it has; one cannot be cut."""
        return self.end - self.first

    @property
    def part(self) -> int:
        """The number of its part of the job's run: no other step's, and ascending as keys do."""
        return self.first * (MOST_CELLS + 1) + self.end

    def cut(self, parts: int) -> tuple[Step, ...]:
        """Return up to `parts` steps of about as many cells each; requires that it has several."""
        parts = min(max(parts, 2), self.cells)
        ends = [self.first + self.cells * n // parts for n in range(parts + 1)]
        return tuple(Step(low, high) for low, high in zip(ends, ends[1:], strict=False))

    def range_in(self, cells: Sequence[KeyRange]) -> KeyRange:
        """Return the keys of the step."""
        return KeyRange(cells[self.first].min, cells[self.end - 1].max)


@dataclass(frozen=True, slots=True)
class Done:
    """A step that is done: its shards, and how many rows of it were read, kept and removed."""

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A step, or the whole job, that was too much, and the steps that it was cut into."""

    into: tuple[Step, ...]


Fate = Done | Cut


@dataclass(frozen=True, slots=True)
class Steps:
    """What is decided of the steps of a job; of one that was never cut, nothing.

    `digest` is that of the cells by which all of it was decided.
    """

    fates: Mapping[Step, Fate]
    digest: str = ""

    @property
    def whole(self) -> Step | None:
        """All cells of the job; None if it was not cut."""
        return Step(0, max(step.end for step in self.fates)) if self.fates else None

    @property
    def current(self) -> list[Step]:
        """The steps that there are to do, and those that are done, in key order."""
        return list(self._below(self.whole)) if self.whole else []

    @property
    def left(self) -> list[Step]:
        """The steps that there are to do, in key order."""
        return [step for step in self.current if step not in self.fates]

    @property
    def done(self) -> list[Done]:
        """What the steps came to that are done, in key order."""
        found = (self.fates.get(step) for step in self.current)
        return [fate for fate in found if isinstance(fate, Done)]

    def _below(self, step: Step) -> Iterator[Step]:
        fate = self.fates.get(step)
        if not isinstance(fate, Cut):
            yield step
            return
        for smaller in fate.into:
            yield from self._below(smaller)


def digest_of(cells: Sequence[KeyRange]) -> str:
    """Return what tells one cutting of a job from another."""
    text = "|".join("-" if c.max is None else encode_key(c.max).hex() for c in cells)
    return blake2b(text.encode(), digest_size=8).hexdigest()


_StoredShard = tuple[str, int, int, str, str, tuple[tuple[str, int], ...]]


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a fate: `into` is empty of a step that is done."""

    cells: str
    into: tuple[tuple[int, int], ...] = ()
    outputs: tuple[_StoredShard, ...] = ()
    rows_read: int = 0
    rows_kept: int = 0
    rows_removed: int = 0


FORMAT = 2
_KIND = "what became of a step"


def encode_fate(fate: Fate, digest: str, path: str) -> bytes:
    """Return what is put at the `path` of a step."""
    if isinstance(fate, Cut):
        stored = _Stored(digest, into=tuple((step.first, step.end) for step in fate.into))
    else:
        outputs = tuple(map(_stored_shard, fate.outputs))
        stored = _Stored(digest, (), outputs, fate.rows_read, fate.rows_kept, fate.rows_removed)
    return encode_stored(_KIND, FORMAT, path, stored)


def decode_fate(body: bytes, path: str) -> tuple[Fate, str]:
    """Return a fate and the digest of the cells it was decided by, from what `encode_fate` gave.

    Raises:
        CorruptDataError: it is no such thing; `path` is named.
    """
    with raise_corrupt(f"{path} does not say what became of a step"):
        stored = decode_stored(_KIND, FORMAT, path, body, _Stored)
        if stored.into:
            return Cut(tuple(Step(*cells) for cells in stored.into)), stored.cells
        outputs = tuple(map(_shard, stored.outputs))
        return Done(outputs, stored.rows_read, stored.rows_kept, stored.rows_removed), stored.cells


def _stored_shard(new: NewShard) -> _StoredShard:
    shard = new.shard
    low, high = encode_key(shard.min_key).hex(), encode_key(shard.max_key).hex()
    return shard.id, shard.rows, shard.size_bytes, low, high, new.rows_by_partition


def _shard(stored: _StoredShard) -> NewShard:
    shard_id, rows, size_bytes, low, high, by_partition = stored
    keys = (decode_key(bytes.fromhex(key)) for key in (low, high))
    return NewShard(Shard(shard_id, rows, size_bytes, *keys), by_partition)
