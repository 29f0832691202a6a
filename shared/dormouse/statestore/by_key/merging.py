"""Rows of a snapshot, and of the increments after it, as the part of a state that they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.keys.ranges import KeyRange
from dormouse.model.partitions import partition_id_of
from dormouse.model.shards import NewShard, Shard
from dormouse.model.state import Piece
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeShards,
    Entry,
    ExtendTree,
    ReleaseJob,
    ReplaceShards,
    ResolveDisputes,
    SealSources,
    SplitPartition,
    Transaction,
)

_OF_A_SHARD = ("shard", "shard_rows", "size_bytes", "min_key", "max_key")


@dataclass(frozen=True, slots=True)
class _Held:
    """A reference: its partition, and the shard of which `rows` rows are there."""

    partition: str
    span: KeyRange
    shard: Shard
    rows: int


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What is known of some ranges of keys: all leaves there, and all references.

    `partitions` are the ids of all partitions that overlap them, and of some that did before.
    """

    wanted: tuple[KeyRange, ...]
    partitions: frozenset[str]
    leaves: tuple[tuple[str, KeyRange], ...]
    held: tuple[_Held, ...]

    def pieces(self) -> tuple[Piece, ...]:
        """Return the leaves in key order with their shards, in the order of
        `TableState.partitions_to_read`.
        """
        return tuple(self._piece(*leaf) for leaf in self.leaves)

    def _piece(self, leaf: str, span: KeyRange) -> Piece:
        own = sorted((h for h in self.held if h.partition == leaf), key=_by_shard)
        above = sorted(
            (h for h in self.held if h.partition != leaf and h.span.covers(span)), key=_by_shard
        )
        # Those above a leaf lie within one another: the nearest begins last and ends first.
        above.sort(key=lambda h: (h.span.high is None, h.span.high or b""))
        above.sort(key=lambda h: h.span.low, reverse=True)
        found = (*own, *above)
        return Piece(span, tuple(h.shard for h in found), tuple(h.rows for h in found))


def known_part(runs: Iterable[Sequence[pa.Table]], wanted: Sequence[KeyRange]) -> KnownPart:
    """Return what rows say of some ranges: those of a snapshot, then of each increment after it.

    Each run has all rows of the partitions that overlap `wanted`. What a later one says of a
    partition or reference counts.

    Raises:
        ValueError, TypeError: the rows are not what this release writes.
    """
    is_leaf: dict[str, tuple[bool, KeyRange]] = {}
    held: dict[tuple[str, str], _Held | None] = {}
    partitions: set[str] = set()
    for run in runs:
        for rows in run:
            for row in rows.filter(_overlapping(rows, wanted)).to_pylist():
                span = KeyRange.between(row["low"], row["high"])
                if not any(span.overlaps(each) for each in wanted):
                    continue
                name = partition_id_of(span)
                partitions.add(name)
                if row["shard"] is None:
                    is_leaf[name] = row["is_leaf"], span
                elif row["gone"]:
                    held[name, row["shard"]] = None
                else:
                    held[name, row["shard"]] = _Held(name, span, _shard(row), row["rows"])
    leaves = [(name, span) for name, (leaf, span) in is_leaf.items() if leaf]
    leaves.sort(key=lambda leaf: leaf[1].low)
    there = tuple(each for each in held.values() if each is not None)
    return KnownPart(tuple(wanted), frozenset(partitions), tuple(leaves), there)


def _by_shard(held: _Held) -> str:
    return held.shard.id


def _shard(row: dict[str, object]) -> Shard:
    return Shard(*(row[name] for name in _OF_A_SHARD))  # type: ignore[arg-type]  # as the schema says


def _overlapping(rows: pa.Table, wanted: Sequence[KeyRange]) -> pa.Array[Any]:
    """Return which rows may overlap ranges, by the bytes of keys, which are in their order."""
    low, high = rows["low"].combine_chunks(), rows["high"].combine_chunks()
    found: pa.Array[Any] = pa.repeat(pa.scalar(False), len(rows))
    for span in wanted:
        ends: Any = pc.greater_equal(high, pa.scalar(span.low))
        overlaps = pc.fill_null(ends, pa.scalar(True))
        if span.high is not None:
            begins = pc.less_equal(low, pa.scalar(span.high))
            overlaps = pc.and_(overlaps, begins)
        found = pc.or_(found, overlaps)
    return found


class Concern:
    """Whether a commit after a known part of a state may change what a reader of that part sees:
    what is looked for in the entries after it, in their order.

    No rule is known here, and no verdict: an entry that breaks a rule changes nothing, so whatever
    it is, to take it for one that changes something is safe. The other direction is what the
    property test is about (``tests/unit/statestore/test_partial_reads.py``): what does not concern
    a part by this code changes nothing there by the fold.

    A reader sees leaves, and the shards with references to a leaf or to a partition above it whose
    keys overlap the wanted ones. So an entry concerns the part only if

    - it adds references to such a shard, in a partition that overlaps the wanted keys;
    - it drops one of the known references: the end of a job, or its release after a split;
    - it moves one to a partition above, where a later entry drops it: a job that begins there;
    - it splits a known leaf; or begins all over.
    """

    def __init__(self, part: KnownPart) -> None:
        """Begin after the version of `part`."""
        self._part = part
        self._leaves = {name for name, _ in part.leaves}
        self._held = {(held.partition, held.shard.id) for held in part.held}
        self._shards = {held.shard.id for held in part.held}
        self._is_held_above = any(held.partition not in self._leaves for held in part.held)
        self._is_tree_changed = False

    def is_raised_by(self, entries: Iterable[Entry]) -> bool:
        """Return whether one of the entries that come next may concern the part."""
        return any(self._concerns(entry.transaction) for entry in entries)

    def _concerns(self, transaction: Transaction) -> bool:
        match transaction:
            case AddShards(shards=shards):
                return any(self._is_seen(new) for new in shards)
            case ReplaceShards(partition=partition, inputs=inputs, outputs=outputs):
                dropped = any((partition, shard) in self._held for shard in inputs)
                return dropped or any(self._overlaps(new) for new in outputs)
            case SplitPartition(partition=partition):
                return self._splits(partition)
            case ExtendTree(splits=splits):
                return any(self._splits(partition) for partition, _ in splits)
            case ReleaseJob():
                return self._is_held_above
            case AssignJob(partition=partition, inputs=inputs):
                return self._joins(partition, inputs)
            case DeleteShards() | DisputeShards() | ResolveDisputes():
                return False
            case SealSources() | AdoptSegments():
                return False
        return True

    def _joins(self, partition: str, inputs: Iterable[str]) -> bool:
        """Return whether a job may take known references to a partition above them."""
        if partition in self._leaves:
            return False
        may_be_above = self._is_tree_changed or partition in self._part.partitions
        return may_be_above and not self._shards.isdisjoint(inputs)

    def _splits(self, partition: str) -> bool:
        # To split a leaf elsewhere may make partitions over the wanted keys, of unknown ids.
        self._is_tree_changed = True
        return partition in self._leaves

    def _is_seen(self, new: NewShard) -> bool:
        if not self._overlaps(new):
            return False
        placed = (partition for partition, _ in new.rows_by_partition)
        return self._is_tree_changed or not self._part.partitions.isdisjoint(placed)

    def _overlaps(self, new: NewShard) -> bool:
        span = new.shard.low, new.shard.high
        return any(wanted.overlaps_span(*span) for wanted in self._part.wanted)
