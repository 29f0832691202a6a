"""Whether a commit after a known part of a state may change what a reader of that part sees.

No rule is known here, and no verdict: an entry that breaks a rule changes nothing, so whatever it
is, to take it for one that changes something is safe. The other direction is what the property test
is about (``tests/unit/statestore/test_partial_reads.py``): what does not concern a part by this
code changes nothing there by the fold.

A reader sees leaves, and the shards with references to a leaf or to a partition above it whose keys
overlap the wanted ones. So an entry concerns the part only if

- it adds references to such a shard, in a partition that overlaps the wanted keys;
- it drops one of the known references: the end of a job, or its release after a split;
- it moves one to a partition above, where a later entry drops it: a job that begins there;
- it splits a known leaf; or begins all over.
"""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.model.shards import NewShard
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
from dormouse.statestore.by_key.merging import KnownPart


class Concern:
    """What is looked for in the entries after a known part, in their order."""

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
        span = new.shard.min_key, new.shard.max_key
        try:
            return any(wanted.overlaps_span(*span) for wanted in self._part.wanted)
        except TypeError:  # keys of other types, as before a reset: the fold knows what they do
            return True
