"""Which shards of a state hold rows of the table, in key order, and which of their rows are dead.

The rows of a shard that lie in a partition with a reference to it are live. A compaction of one
partition takes the references to a shard there, so of a shard that spans several partitions some
rows may be dead while others are not. So may those that a deletion hides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from dormouse.keys import Key, KeyRange, complement, encode_key
from dormouse.state.partitions import Shard
from dormouse.state.state import Deletion, TableState
from dormouse.stored.paths import is_plain

ENTRIES = 1000
"""About how many shards a manifest has."""


@dataclass(frozen=True, slots=True)
class LiveShard:
    """A shard with live rows, the key ranges of its dead ones, in order, and the deletions that may
    hide others. In a table that keeps the latest rows, `rivals` are the ids of the shards, itself
    too, whose rows may hide each other: their key ranges form one.
    """

    shard: Shard
    dead: tuple[KeyRange, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    rivals: tuple[str, ...] = ()

    @property
    def is_partly_dead(self) -> bool:
        """Return whether some of its rows may be dead."""
        return bool(self.dead or self.deletions or self.rivals)


def with_rivals(groups: Mapping[Key, Sequence[LiveShard]]) -> dict[Key, list[LiveShard]]:
    """Return the shards of a table that keeps the latest rows, with the rivals of each."""
    together: list[list[str]] = []
    end = b""
    shards = (live.shard for group in groups.values() for live in group)
    for shard in sorted(shards, key=lambda shard: shard.low):
        if not together or shard.low > end:
            together.append([])
        together[-1].append(shard.id)
        end = max(end, shard.high)
    rivals = {shard: ids for ids in map(tuple, map(sorted, together)) for shard in ids}
    return {
        key: [replace(live, rivals=rivals[live.shard.id]) for live in group]
        for key, group in groups.items()
    }


def live_shards(state: TableState) -> dict[Key, list[LiveShard]]:
    """Return all shards with live rows, in groups: those of a leaf, in the order of the leaves.

    A shard is in the group of the first partition that references it. Partitions that begin at the
    same key, a leaf and those above it, are one group, under that key.
    """
    spans: dict[str, list[KeyRange]] = {}
    for partition, references in state.references.items():
        span = state.partitions.get(partition).range
        for reference in references:
            spans.setdefault(reference.shard, []).append(span)
    groups: dict[Key, list[LiveShard]] = {}
    for shard_id, ranges in spans.items():
        shard = state.shards[shard_id]
        first = min(span.min for span in ranges)
        deletions = tuple(each for each in state.deletions if each.below or each.may_hide(shard))
        live = LiveShard(shard, dead_ranges(shard, ranges), deletions)
        groups.setdefault(first, []).append(live)
    return {key: sorted(groups[key], key=lambda live: live.shard.id) for key in sorted(groups)}


def dead_ranges(shard: Shard, live: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """Return the key ranges in which a shard may have rows that lie in none of the `live` ones."""
    if len(live) == 1 and live[0].contains_span(shard.low, shard.high):
        return ()
    gaps = complement(list(live))
    return tuple(gap for gap in gaps if gap.overlaps_span(shard.low, shard.high))


def cut_into_manifests(groups: Mapping[Key, Sequence[LiveShard]]) -> list[list[LiveShard]]:
    """Return the shards of each manifest: of whole groups, about `ENTRIES` of them.

    Cuts depend on content: a group ends a manifest if a digest of its key says so. Otherwise one
    more group would move all cuts after it, and with them all manifests. How often a digest says so
    is a power of two, so that it seldom changes.
    """
    shards = sum(map(len, groups.values()))
    count = max(1, ENTRIES * len(groups) // max(1, shards))
    mask = (1 << (count.bit_length() - 1)) - 1
    manifests: list[list[LiveShard]] = []
    is_open = False
    for key, group in groups.items():
        if not is_open:
            manifests.append([])
        manifests[-1] += group
        is_open = _digest(key) & mask != 0
    return manifests


def _digest(key: Key) -> int:
    return int.from_bytes(blake2b(encode_key(key), digest_size=8).digest())


def quick_shards(state: TableState) -> list[str]:
    """Return the live shards that were written before the table was published, by id.

    Compactions rewrite them. Until then Spark with Iceberg 1.10 or older reads the table row by
    row, as its metadata asks.
    """
    counts = state.reference_counts.items()
    return sorted(shard for shard, count in counts if count and not is_plain(shard))
