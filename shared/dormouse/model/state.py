"""What a table is at one version: partitions, shards, references, jobs and remembered sources.

A `TableState` is frozen; the fold makes the next one, sharing all that did not change. Its maps
lie over what a snapshot held, in columns; so what is looked up becomes an object, and the rest does
not. Iteration over them has no order of its own: sort where order shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rpds import HashTrieMap

from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import Dispute, RowsTaken
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Job, PartitionReferences, Reference, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.schema.key_types import KeyTypes

DAY_MS = 24 * 60 * 60 * 1000
TRANSACTION_RETENTION_MS = DAY_MS
"""How long a transaction is remembered, so that a retry is told it landed. A later repeat is
refused by the rules all the same: what it needs is gone."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at `version`: everything is at that version at once, or it is not this value.

    `references` maps each partition that has some to its references; `rows` and `reference_count`
    are their totals. `transactions` maps what was committed to when, `unreferenced` the shards
    without references to when they lost the last one. `taken` maps the shards of which jobs took
    some rows, but not all that are there, to those takings, and `disputed` the shards that are
    never collected to the reason. `rules` is the version of the rules that judge what comes next;
    it and the types of the row keys, which stay as long as the generation, are there from the
    first tree on.

    `sources` maps what was ingested after version `sealed_to` to the version it came with. What
    came until then is in segments, which are objects of their own: `source_segments`, in the order
    of the versions they cover, and `adopted_segments`, of logs that came before this one.
    """

    version: int = 0
    time_ms: int = 0
    generation: int = 0
    rules: int = 0
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
        """Return the table without anything, as the beginning of a generation."""
        return TableState(
            version=self.version,
            time_ms=self.time_ms,
            generation=generation,
            rules=self.rules,
            key_types=key_types,
            partitions=partitions,
        )

    def references_in(self, partition: str) -> list[Reference]:
        """Return the references in one partition, by shard id."""
        return sorted(self.references.get(partition, PartitionReferences()), key=lambda r: r.shard)

    def reference(self, partition: str, shard: str) -> Reference | None:
        """Return the reference of a shard in a partition, if there is one."""
        held = self.references.get(partition)
        return None if held is None else held.by_shard.get(shard)

    def all_references(self) -> Iterator[Reference]:
        """Return every reference, in no particular order."""
        for held in self.references.values():
            yield from held

    def rows_in(self, partition: str) -> int:
        """Return the rows of one partition by its references; an estimate where those are."""
        return self.references.get(partition, PartitionReferences()).rows

    def jobs_in_dispute(self, shard: str) -> list[str]:
        """Return the jobs that took rows of a disputed shard, or raised the dispute, by id."""
        dispute = self.disputed.get(shard)
        raised = dispute.jobs if dispute is not None else ()
        return sorted({*raised, *(taking.job for taking in self.taken.get(shard, ()))})

    def partitions_to_read(self, wanted: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Return, in key order, the disjoint ranges that make up `wanted` and the references in
        each.

        References on a split partition (inputs of a job begun before the split) are given with
        each leaf below it which their shard's keys overlap, so that ranges stay leaf by leaf.
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
        return span.overlaps_span(shard.min_key, shard.max_key)

    @property
    def all_source_segments(self) -> tuple[SourceSegment, ...]:
        """Every segment in which sources are remembered."""
        return self.adopted_segments + self.source_segments

    def sources_up_to(self, version: int) -> list[str]:
        """Return the unsealed sources that came with a version or before, in no order."""
        return [source for source, at in self.sources.items() if at <= version]

    def has_committed(self, transaction_id: str, now_ms: int) -> bool:
        """Return whether a transaction was committed in the last day."""
        at = self.transactions.get(transaction_id)
        return at is not None and now_ms - at < TRANSACTION_RETENTION_MS
