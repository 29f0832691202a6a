"""Shards, and the references that say which of their rows are part of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from dormouse.keys.ranges import Key, decode_key, encode_key
from dormouse.model.overlay_map import Base, OverlayMap

MOST_IN_A_DICT = 32
"""Up to so many references of a partition are a dict, which is copied with each change; more are a
map whose changes share what they leave alone."""


class Shard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One immutable, sorted data file. `low` and `high` are the bytes of its least and
    its greatest row key (`encode_key`).
    """

    id: str
    rows: int
    size_bytes: int
    low: bytes
    high: bytes

    @staticmethod
    def of(id: str, rows: int, size_bytes: int, min_key: Key, max_key: Key) -> Shard:  # noqa: A002
        """Return a shard with rows from one key to another."""
        return Shard(id, rows, size_bytes, encode_key(min_key), encode_key(max_key))

    @property
    def min_key(self) -> Key:
        """The least row key."""
        return decode_key(self.low)

    @property
    def max_key(self) -> Key:
        """The greatest row key."""
        return decode_key(self.high)


@dataclass(frozen=True, slots=True)
class Reference:
    """The rows of `shard` that lie in `partition`.

    `rows` is exact if the whole shard lies in the partition or the writer counted the rows, else an
    estimate. `job` is the job that has the reference as an input, if any.
    """

    partition: str
    shard: str
    rows: int
    exact: bool = True
    job: str | None = None

    def held_by(self, job: str | None) -> Reference:
        """Return the reference as an input of a job, or of none."""
        return Reference(self.partition, self.shard, self.rows, self.exact, job)


@dataclass(frozen=True, slots=True, eq=False)
class PartitionReferences:
    """The references in one partition, by shard, with the totals that planning needs.

    `rows` is the sum of their rows; `free` counts those that are not an input of a job.
    """

    by_shard: Base[str, Reference] = field(default_factory=dict)
    rows: int = 0
    free: int = 0

    def __len__(self) -> int:
        """Count the references."""
        return len(self.by_shard)

    def __iter__(self) -> Iterator[Reference]:
        """Return the references, in no particular order."""
        return (reference for _, reference in self.by_shard.items())

    def reference(self, shard: str) -> Reference:
        """Return the reference to a shard.

        Raises:
            KeyError: there is none.
        """
        found = self.by_shard.get(shard)
        if found is None:
            raise KeyError(shard)
        return found

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same references, in whatever form."""
        if not isinstance(other, PartitionReferences):
            return NotImplemented
        totals = len(self), self.rows, self.free
        return totals == (len(other), other.rows, other.free) and all(
            other.by_shard.get(reference.shard) == reference for reference in self
        )

    __hash__ = None  # type: ignore[assignment]  # the maps have no hash either

    def insert(self, *references: Reference) -> PartitionReferences:
        """Return the references with these added, in place of others to the same shards."""
        added = {reference.shard: reference for reference in references}
        rest = self.discard(*added)
        rows, free = rest.rows, rest.free
        for reference in added.values():
            rows += reference.rows
            free += reference.job is None
        return PartitionReferences(_with(rest.by_shard, added), rows, free)

    def add(self, added: Mapping[str, Reference]) -> PartitionReferences:
        """Return the references with others added, by shard, as `insert` but without a look at
        those that are there, which a snapshot may hold as columns.

        Requires: there is none to any of these shards, as the caller knows.
        """
        rows, free = self.rows, self.free
        for reference in added.values():
            rows += reference.rows
            free += reference.job is None
        return PartitionReferences(_beside(self.by_shard, added), rows, free)

    def discard(self, *shards: str) -> PartitionReferences:
        """Return the references without those to `shards`, as far as there are any."""
        gone = {s: held for s in shards if (held := self.by_shard.get(s)) is not None}
        if not gone:
            return self
        return PartitionReferences(
            _without(self.by_shard, gone),
            self.rows - sum(held.rows for held in gone.values()),
            self.free - sum(held.job is None for held in gone.values()),
        )


class _Beside:
    """References beside those that were added to them; a base that copies and reads neither."""

    __slots__ = ("added", "held")

    def __init__(self, held: Base[str, Reference], added: Mapping[str, Reference]) -> None:
        self.held, self.added = held, added

    def __len__(self) -> int:
        return len(self.held) + len(self.added)

    def __contains__(self, key: object) -> bool:
        return key in self.added or key in self.held

    def __iter__(self) -> Iterator[str]:
        return chain(self.held, self.added)

    def get(self, key: str, /) -> Reference | None:
        return self.added.get(key) or self.held.get(key)

    def items(self) -> Iterator[tuple[str, Reference]]:
        return chain(self.held.items(), self.added.items())


def _beside(held: Base[str, Reference], added: Mapping[str, Reference]) -> Base[str, Reference]:
    """Return references with others added, none of which is to the same shard."""
    if len(held) + len(added) > MOST_IN_A_DICT:
        return _with(held, added)
    if isinstance(held, dict):
        return {**held, **added}
    if isinstance(held, _Beside):
        return _Beside(held.held, {**held.added, **added})
    return _Beside(held, added)


def _with(held: Base[str, Reference], added: Mapping[str, Reference]) -> Base[str, Reference]:
    """Return references with others added, none of which is to the same shard."""
    if len(held) + len(added) <= MOST_IN_A_DICT:
        return {**held, **added} if isinstance(held, dict) else {**dict(held.items()), **added}
    shared = held if isinstance(held, OverlayMap) else OverlayMap.of(dict(held.items()))
    return shared.update(added)


def _without(held: Base[str, Reference], gone: dict[str, Reference]) -> Base[str, Reference]:
    """Return references without some of them."""
    if len(held) - len(gone) <= MOST_IN_A_DICT or not isinstance(held, OverlayMap):
        return {shard: reference for shard, reference in held.items() if shard not in gone}
    return held.discard(*gone)


class NewShard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A shard to be added, with the number of rows that it has in each of some partitions."""

    shard: Shard
    rows_by_partition: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """An assigned compaction: in one partition, these shards become new ones.

    `purge_id` names the purge that it removes rows for, `request_key` the request that asked for
    it, if any.
    """

    id: str
    partition: str
    inputs: tuple[str, ...]
    assigned_ms: int
    purge_id: str | None = None
    request_key: str | None = None
