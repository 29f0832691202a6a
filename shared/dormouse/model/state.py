"""What a table is at one version: partitions, shards, references, jobs and ingested sources.

A `TableState` is frozen; the fold makes the next one, which shares all that did not change. Its
maps lie over the columns of a snapshot, so that only entries which are looked up become Python
objects. Iteration over them has no particular order: sort where the order is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from rpds import HashTrieMap

from dormouse.errors import InvariantError
from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import Dispute, RowsTaken
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Job, PartitionReferences, Reference, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.schema.key_types import KeyTypes

DAY_MS = 24 * 60 * 60 * 1000
TRANSACTION_RETENTION_MS = DAY_MS
"""How long a transaction is remembered, so that a retry learns that it was committed. The rules
refuse a later repeat anyway, since what it needs is gone."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at `version`. All of it is at that one version.

    - `references` maps each partition that has any to its references; `rows` and `reference_count`
      are their totals, and `reference_counts` the number of references to each shard.
    - `unreferenced` maps shards without references to the time when they lost the last one.
    - `taken` maps shards from which jobs took some, but not yet all, of the rows to these counts.
    - `disputed` maps the shards that are never deleted to the reason.
    - `transactions` maps the ids of recent transactions to the time of their commit.
    - `key_types` are the types of the row keys, set with the first tree, for a generation.
    - `sources` maps what was ingested after version `sealed_to` to the version that brought it.
      Older sources are in segments, which are objects of their own: `source_segments`, in the order
      of the versions they cover, and `adopted_segments`, from logs before this one.
    """

    version: int = 0
    time_ms: int = 0
    generation: int = 0
    key_types: KeyTypes = ()
    partitions: PartitionTree = PartitionTree()
    shards: OverlayMap[str, Shard] = field(default_factory=OverlayMap)
    references: OverlayMap[str, PartitionReferences] = field(default_factory=OverlayMap)
    rows: int = 0
    reference_count: int = 0
    reference_counts: OverlayMap[str, int] = field(default_factory=OverlayMap)
    unreferenced: OverlayMap[str, int] = field(default_factory=OverlayMap)
    taken: OverlayMap[str, tuple[RowsTaken, ...]] = field(default_factory=OverlayMap)
    disputed: OverlayMap[str, Dispute] = field(default_factory=OverlayMap)
    jobs: HashTrieMap[str, Job] = HashTrieMap()
    sources: OverlayMap[str, int] = field(default_factory=OverlayMap)
    sealed_to: int = 0
    source_segments: tuple[SourceSegment, ...] = ()
    adopted_segments: tuple[SourceSegment, ...] = ()
    transactions: OverlayMap[str, int] = field(default_factory=OverlayMap)

    def reset(self, generation: int, partitions: PartitionTree, key_types: KeyTypes) -> TableState:
        """Return the empty table, as the start of a generation."""
        return TableState(
            version=self.version,
            time_ms=self.time_ms,
            generation=generation,
            key_types=key_types,
            partitions=partitions,
        )

    def references_in(self, partition: str) -> list[Reference]:
        """Return the references in one partition, ordered by shard id."""
        return sorted(self.references.get(partition, PartitionReferences()), key=lambda r: r.shard)

    def reference(self, partition: str, shard: str) -> Reference | None:
        """Return the reference to a shard in a partition; None if there is none."""
        held = self.references.get(partition)
        return None if held is None else held.by_shard.get(shard)

    def references_below(self, partition: str, shard: str) -> Iterator[Reference]:
        """Yield the references to a shard in a partition and in those below it, in key order."""
        known = self.shards.get(shard)
        pending = [partition] if known is not None and partition in self.partitions else []
        while pending and known is not None:
            found = self.partitions.get(pending.pop())
            reference = self.reference(found.id, shard)
            if reference is not None:
                yield reference  # none of its rows is referenced further below
            elif found.range.overlaps_span(known.low, known.high):
                pending += reversed(found.children or ())

    def all_references(self) -> Iterator[Reference]:
        """Yield every reference, in no particular order."""
        for held in self.references.values():
            yield from held

    @property
    def size_bytes(self) -> int:
        """The bytes of all shards that are referenced."""
        shards = (shard for shard in self.shards.values() if shard.id not in self.unreferenced)
        return sum(shard.size_bytes for shard in shards)

    def rows_in(self, partition: str) -> int:
        """Return the rows of one partition, from its references; an estimate where those are."""
        return self.references.get(partition, PartitionReferences()).rows

    def free_in(self, partition: str) -> int:
        """Return how many references of one partition are not an input of a job."""
        return self.references.get(partition, PartitionReferences()).free

    def jobs_in_dispute(self, shard: str) -> list[str]:
        """Return the jobs that took rows of a disputed shard or reported the dispute, ordered by
        id.
        """
        dispute = self.disputed.get(shard)
        raised = dispute.jobs if dispute is not None else ()
        return sorted({*raised, *(taking.job for taking in self.taken.get(shard, ()))})

    def partitions_to_read(self, wanted: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Yield, in key order, disjoint ranges that cover the rows in `wanted`, each with its
        references.

        A reference on a split partition is the input of a job that was assigned before the split.
        It is returned with each leaf below that its shard's keys overlap, so that ranges stay leaf
        by leaf.

        Example: the root was split at m, and a job still has shard s (keys a to z) on the root,
        while leaf [m, end) holds shard t (keys p to r). Wanting [k, q) yields [k, m) with s, then
        [m, q) with t and s: to read the second range, rows of s from m on are merged with those of
        t.
        """
        for leaf in self.partitions.leaves_overlapping(wanted):
            span = leaf.range.intersection(wanted)
            found = self.references_in(leaf.id)
            for ancestor in self.partitions.ancestors(leaf.id):
                found += self.references_in(ancestor)
            overlapping = [r for r in found if self._overlaps(r.shard, span)]
            if overlapping:
                yield span, overlapping

    def _overlaps(self, shard_id: str, span: KeyRange) -> bool:
        shard = self.shards[shard_id]
        return span.overlaps_span(shard.low, shard.high)

    @property
    def all_source_segments(self) -> tuple[SourceSegment, ...]:
        """Every segment of ingested sources."""
        return self.adopted_segments + self.source_segments

    def sources_up_to(self, version: int) -> list[str]:
        """Return the unsealed sources that came with a version up to `version`, in no particular
        order.
        """
        return [source for source, at in self.sources.items() if at <= version]

    def has_committed(self, transaction_id: str, now_ms: int) -> bool:
        """Return whether a transaction was committed within the retention time."""
        at = self.transactions.get(transaction_id)
        return at is not None and now_ms - at < TRANSACTION_RETENTION_MS


def without_expired(state: TableState) -> TableState:
    """Return `state` without the transactions that are past their retention.

    The fold ignores those at this time and later, so no verdict changes.
    """
    recent_ms = state.time_ms - TRANSACTION_RETENTION_MS
    return replace(state, transactions=state.transactions.retain(lambda at: at > recent_ms))


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of keys within one partition, and the shards that can hold rows in it.

    `rows` are the rows of each shard in its partition, as far as they are known; else there are
    none, and those of the whole shard are taken for them.
    """

    range: KeyRange
    shards: tuple[Shard, ...]
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartOfState(TableState):
    """The part of a version that pieces are: it can be read, and has no tree and no jobs.

    `covers` are the ranges of keys of which the pieces are all there is; None says nothing of that.
    """

    pieces: tuple[Piece, ...] = ()
    covers: tuple[KeyRange, ...] | None = None

    def partitions_to_read(self, wanted: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Yield, in key order, the ranges of pieces within `wanted`, with the references there.

        Raises:
            InvariantError: this part does not cover it.
        """
        if self.covers is not None and not any(span.covers(wanted) for span in self.covers):
            raise InvariantError(f"a part of version {self.version} is asked for what it lacks")
        for piece in self.pieces:
            span = piece.range.intersection(wanted)
            counts = piece.rows or [shard.rows for shard in piece.shards]
            found = [
                Reference("", shard.id, rows, exact=False)
                for shard, rows in zip(piece.shards, counts, strict=True)
                if span.overlaps_span(shard.low, shard.high)
            ]
            if found and not span.is_empty():
                yield span, found


def part_of_state(pieces: Sequence[Piece], version: int) -> PartOfState:
    """Return the part of a version that consecutive pieces are."""
    return PartOfState(version=version, shards=shards_of(pieces), pieces=tuple(pieces))


def shards_of(pieces: Sequence[Piece]) -> OverlayMap[str, Shard]:
    """Return the shards of pieces by id."""
    return OverlayMap(HashTrieMap({s.id: s for piece in pieces for s in piece.shards}))
