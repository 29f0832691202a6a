"""What a table is at one version: partitions, shards, references, jobs and ingested sources.

A `TableState` is frozen; the fold makes the next one, which shares all that did not change. Its
maps lie over the columns of a snapshot, so that only entries which are looked up become Python
objects. Iteration over them has no particular order: sort where the order is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b

import msgspec
from rpds import HashTrieMap

from dormouse.errors import InvariantError
from dormouse.keys import KeyRange
from dormouse.schema.row_tags import all_have, may_have
from dormouse.schema.schema import KeyTypes
from dormouse.state.partitions import (
    Job,
    NewShard,
    OverlayMap,
    Partition,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)

# How many rows jobs took from each shard, and disputed shards, where these numbers are wrong.
#
# A job that replaces shards says how many rows it took from each input. If a shard lies in several
# partitions, several jobs take a part of it each, and these numbers are kept until the last job is
# done. If their sum is not the number of rows of the shard, or if the shard's bytes prove to be
# damaged, the shard is disputed. A disputed shard is never deleted, so that lost rows can still be
# found in it.


class DisputeReason(Enum):
    """Why a shard is disputed. The value is stored, and appears in metrics and logs."""

    ROWS_LOST = "rows_lost"
    BYTES_DAMAGED = "bytes_damaged"


@dataclass(frozen=True, slots=True)
class RowsTaken:
    """The number of rows that a job took from a shard in one partition; `rows` is None if not
    counted.

    `range` is that of the partition, which may no longer exist when the rows are counted again.
    """

    job: str
    partition: str
    rows: int | None
    range: KeyRange = KeyRange()


@dataclass(frozen=True, slots=True)
class Dispute:
    """Why a shard is disputed, since when, and which jobs reported it."""

    reason: DisputeReason
    since_ms: int
    jobs: tuple[str, ...] = ()


MAX_JOBS_NAMED = 1000
"""The most jobs that a dispute names. Later ones appear only in their own records."""


def dispute_id(shard: str) -> str:
    """Return the id of the tracker's record of the disputes over a shard."""
    return f"dispute-{shard}"


def is_conserved(takings: tuple[RowsTaken, ...], rows: int) -> bool | None:
    """Return whether jobs took exactly the rows of a shard; None if some did not count."""
    counts = [taking.rows for taking in takings if taking.rows is not None]
    return sum(counts) == rows if len(counts) == len(takings) else None


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Rows that are deleted: those of the shards before it of which `where` is true, a condition in
    its normal form.

    `columns` are the fields that it names, as JSON: one can be renamed or dropped later. `ranges`
    contain the row keys of all these rows, each from a key up to another or to the end. If there
    are `tags` (`row_tags.tag_in`), each of these rows has one of them; if it `takes_tagged`, all
    rows with one are deleted. It is numbered as it is committed (`next_number`).

    With `below`, a text, it lasts: it also hides rows that come later, and `where` is true of those
    with less in the column `latest_by`. The purge with the id `purge_id` ends it. It stays until
    the `sources` that brought it, and no rows, are sealed: only it tells a rebuild of them.
    """

    id: str
    where: str
    columns: tuple[str, ...]
    ranges: tuple[tuple[bytes, bytes | None], ...]
    number: int = 0
    time_ms: int = 0
    below: str = ""
    purge_id: str = ""
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    takes_tagged: bool = False

    def may_hide(self, shard: Shard) -> bool:
        """Return whether it may hide rows of a shard that was there before it."""
        if shard.sequence >= self.number:
            return False
        if self.tags is not None and not may_have(shard.tags, self.tags):
            return False
        for low, high in self.ranges:  # without `spans`: plans ask for all shards and deletions
            if low <= shard.high and (high is None or shard.low < high):
                return True
        return False

    def hides_all(self, shard: Shard) -> bool:
        """Return whether it hides all rows of a shard, as far as the tags of these say."""
        is_before = self.takes_tagged and shard.sequence < self.number
        return is_before and all_have(shard.tags, self.tags or ())

    @property
    def spans(self) -> list[KeyRange]:
        """The ranges as such."""
        return [KeyRange.between(*ends) for ends in self.ranges]


class SourceSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An object that holds all sources ingested after version `after`, up to version `up_to`.

    With the table's id, these fields are enough to find a source in it with small reads: `index_at`
    is the position of its hash index, which has room for `slots` sources in each bucket.
    """

    id: str
    after: int
    up_to: int
    count: int
    size_bytes: int
    index_at: int
    slots: int


DAY_MS = 24 * 60 * 60 * 1000
TRANSACTION_RETENTION_MS = DAY_MS
"""How long a transaction is remembered, so that a retry learns that it was committed. The rules
refuse a later repeat anyway, since what it needs is gone."""
HIDING_RETENTION_MS = 30 * DAY_MS
"""How long a deletion is remembered: longer than SQS keeps its request, dead letters included. When
it is forgotten, no rule refuses a repeat, which would hide rows that came since."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at `version`. All of it is at that one version.

    - `references` maps each partition that has any to its references; `rows` and `reference_count`
      are their totals, and `reference_counts` the number of references to each shard.
    - `unreferenced` maps shards without references to the time when they lost the last one.
    - `taken` maps shards from which jobs took some, but not yet all, of the rows to these counts.
    - `disputed` maps the shards that are never deleted to the reason.
    - `transactions` maps the ids of recent transactions to the time of their commit.
    - `deletions` are those that may still hide rows of a shard, in order; `last_number` is the
      number of the last commit that added or deleted rows.
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
    deletions: tuple[Deletion, ...] = ()
    last_number: int = 0

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
        return sorted(self.references.get(partition, ()), key=lambda r: r.shard)

    def reference(self, partition: str, shard: str) -> Reference | None:
        """Return the reference to a shard in a partition; None if there is none."""
        references = self.references.get(partition)
        return None if references is None else references.by_shard.get(shard)

    def references_below(self, partition: str, shard: str) -> Iterator[Reference]:
        """Yield the references to a shard in a partition and in those below it, in key order."""
        facts = self.shards.get(shard)
        pending = [partition] if facts is not None and partition in self.partitions else []
        while pending and facts is not None:
            place = self.partitions.get(pending.pop())
            reference = self.reference(place.id, shard)
            if reference is not None:
                yield reference  # none of its rows is referenced further below
            elif place.range.overlaps_span(facts.low, facts.high):
                pending += reversed(place.children or ())

    def all_references(self) -> Iterator[Reference]:
        """Yield every reference, in no particular order."""
        for references in self.references.values():
            yield from references

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
        """Return the jobs that took rows of a disputed shard or reported the dispute, by id."""
        dispute = self.disputed.get(shard)
        raised = dispute.jobs if dispute is not None else ()
        return sorted({*raised, *(taking.job for taking in self.taken.get(shard, ()))})

    def partitions_to_read(self, *ranges: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Yield, in key order, disjoint ranges that cover the rows in `ranges`, which are disjoint
        and ascend, with references.

        A reference on a split partition is the input of a job that was assigned before the split.
        It is returned with each leaf below that its shard's keys overlap, so that ranges stay leaf
        by leaf.

        Example: the root was split at m, and a job still has shard s (keys a to z) on the root,
        while leaf [m, end) holds shard t (keys p to r). Wanting [k, q) yields [k, m) with s, then
        [m, q) with t and s: to read the second range, rows of s from m on are merged with those of
        t.
        """
        last: Partition | None = None
        there: list[tuple[Reference, Shard]] = []
        for keys in ranges:
            is_same = last and last.range.covers(keys)  # as it is for most of many keys
            for leaf in [last] if last and is_same else self.partitions.leaves_overlapping(keys):
                if leaf is not last:
                    holders = (leaf.id, *self.partitions.ancestors(leaf.id))
                    references = (r for holder in holders for r in self.references_in(holder))
                    there = [(each, self.shards[each.shard]) for each in references]
                    last = leaf
                span = leaf.range.intersection(keys)
                overlapping = [r for r, s in there if span.overlaps_span(s.low, s.high)]
                if overlapping:
                    yield span, overlapping

    @property
    def all_source_segments(self) -> tuple[SourceSegment, ...]:
        """Every segment of ingested sources."""
        return self.adopted_segments + self.source_segments

    def sources_up_to(self, version: int) -> list[str]:
        """Return the unsealed sources that came with a version up to `version`, in any order."""
        return [source for source, at in self.sources.items() if at <= version]

    def deletions_in(self, ranges: Sequence[KeyRange]) -> tuple[Deletion, ...]:
        """Return the deletions that may hide rows with keys in some ranges, in order."""
        return tuple(
            each
            for each in self.deletions
            if any(span.overlaps(other) for span in each.spans for other in ranges)
        )

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
    none, and those of the whole shard are taken for them. `deletions` are those that may hide rows
    of any piece that is read with it.
    """

    range: KeyRange
    shards: tuple[Shard, ...]
    rows: tuple[int, ...] = ()
    deletions: tuple[Deletion, ...] = ()


@dataclass(frozen=True, slots=True)
class PartOfState(TableState):
    """The part of a version that pieces are: it can be read, and has no tree and no jobs.

    `covers` are the ranges of keys of which the pieces are all there is; None says nothing of that.
    """

    pieces: tuple[Piece, ...] = ()
    covers: tuple[KeyRange, ...] | None = None

    def partitions_to_read(self, *ranges: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Yield, in key order, the ranges of pieces within `ranges`, with the references there.
        Raises InvariantError: this part does not cover one.
        """
        for keys in ranges:
            if self.covers is not None and not any(span.covers(keys) for span in self.covers):
                raise InvariantError(f"a part of version {self.version} is asked for what it lacks")
            for piece in self.pieces:
                span = piece.range.intersection(keys)
                counts = piece.rows or [shard.rows for shard in piece.shards]
                references = [
                    Reference("", shard.id, rows, exact=False)
                    for shard, rows in zip(piece.shards, counts, strict=True)
                    if span.overlaps_span(shard.low, shard.high)
                ]
                if references and not span.is_empty():
                    yield span, references


def shards_of(pieces: Sequence[Piece]) -> OverlayMap[str, Shard]:
    """Return the shards of pieces by id."""
    return OverlayMap(HashTrieMap({s.id: s for piece in pieces for s in piece.shards}))


# The changes that a table's state can undergo: a closed union of small frozen structs.
#
# A struct is the change, its stored form and its id: MessagePack has it as a map of its fields,
# with its `tag` as `kind`, and a digest of these bytes names it (`transaction_id`), so that a
# second attempt at the same change, by any process, is recognised as the same. A deletion has an id
# of its own: a second attempt may have another time, or columns of other types. A kind that a
# release does not know it cannot decode, so it never judges by other rules than the release that
# wrote it: who changes what a kind means gives it another tag. Fields that are added have defaults,
# which are not stored. The golden files in ``tests/unit/statestore/golden`` hold each kind as it is
# stored.
#
# Keys are their order-preserving bytes (`keys`).


class Change(
    msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True
):
    """What all kinds of change have in common."""


class InitialisePartitions(Change, tag="initialise_partitions", frozen=True):
    """Begin a table: the keys at which its first leaves meet, and the types of its row keys."""

    splits: tuple[bytes, ...]
    key_types: KeyTypes


class AddShards(Change, tag="add_shards", frozen=True):
    """Add the shards that one ingest job wrote, and remember the job's sources.

    `looked_up_to` is the `sealed_to` of the state whose segments were searched for the sources. If
    more was sealed since, the search may have missed a source. A `deletion` is there before the
    shards: of the rows that a source says it has no more.
    """

    job: str
    sources: tuple[str, ...]
    shards: tuple[NewShard, ...]
    looked_up_to: int = 0
    deletion: Deletion | None = None


class AssignJob(Change, tag="assign_job", frozen=True):
    """Make the references to `inputs` in `partition` the inputs of a compaction job.

    Of a split partition these are the references below it, which become one reference to each
    input, on that partition. So one job can rewrite a shard of which many leaves have rows.

    `purge_id` names the purge that the job removes rows for, `request_key` the request that asked
    for the job; planning gives neither.
    """

    job: str
    partition: str
    inputs: tuple[str, ...]
    purge_id: str | None = None
    request_key: str | None = None


class ReleaseJob(Change, tag="release_job", frozen=True):
    """Cancel a job; its references are free again."""

    job: str


class ReplaceShards(Change, tag="replace_shards", frozen=True):
    """Complete a job: `outputs`, of which there may be none, replace its inputs in its partition.

    `rows_taken` says how many rows the job took from each input, `rows_removed` how many of these
    are in no output, because of the table's row rules or a purge. Only a job without outputs may
    leave them uncounted.
    """

    job: str
    partition: str
    inputs: tuple[str, ...]
    outputs: tuple[NewShard, ...]
    rows_taken: tuple[tuple[str, int], ...] = ()
    rows_removed: int = 0


class SplitPartition(Change, tag="split_partition", frozen=True):
    """Split a leaf at a key. `rows_left` says how many rows of each shard lie left of the key."""

    partition: str
    at: bytes
    rows_left: tuple[tuple[str, int], ...] = ()


class ExtendTree(Change, tag="extend_tree", frozen=True):
    """Split several leaves, one after the other: a new half may be split further.

    Each split is a partition and a key. Either all splits are made or none.
    """

    splits: tuple[tuple[str, bytes], ...]


class DeleteShards(Change, tag="delete_shards", frozen=True):
    """Remove shards that nothing references and whose objects are deleted."""

    shards: tuple[str, ...]


class HideRows(Change, tag="delete_rows", frozen=True):
    """Hide the rows that a deletion names, in the shards that there are now, from all readers."""

    deletion: Deletion


class ForgetDeletions(Change, tag="forget_deletions", frozen=True):
    """Forget deletions, given by their numbers, that hide no row of any shard any more. If this
    `is_proved`, all shards were read to find it out.
    """

    numbers: tuple[int, ...]
    is_proved: bool = False


class DisputeShards(Change, tag="dispute_shards", frozen=True):
    """Keep shards from being deleted or merged, for a reason that `job` found."""

    shards: tuple[str, ...]
    reason: DisputeReason
    job: str


class ResolveDisputes(Change, tag="resolve_disputes", frozen=True):
    """End disputes: each is a shard, and the time since when it is disputed.

    A dispute raised later is a different one, which the person who ends this one has not seen.
    """

    disputes: tuple[tuple[str, int], ...]


class SealSources(Change, tag="seal_sources", frozen=True):
    """Remember sources in a segment from now on. It may replace the last few segments.

    It holds the unsealed sources up to its `up_to`, and those of the segments `replaced`, which are
    the last ones, in order.
    """

    segment: SourceSegment
    replaced: tuple[str, ...] = ()


class AdoptSegments(Change, tag="adopt_segments", frozen=True):
    """Remember, at the start of a log, what was ingested in the logs before it."""

    segments: tuple[SourceSegment, ...]


class ResetTable(Change, tag="reset_table", frozen=True):
    """Reset the table: start `generation` without shards, jobs or sources, with leaves that meet at
    `splits`.

    Row keys have the given types; without any, they keep theirs. Everything queued for an older
    generation is refused from now on.
    """

    generation: int
    splits: tuple[bytes, ...]
    key_types: KeyTypes = ()


class RestoreTable(Change, tag="restore_version", frozen=True):
    """Reset the table to an earlier version: start `generation` with the shards, partitions and
    sources of `version`, and no jobs.

    The state of that version is a snapshot, stored under the id of the delta that this is part of.
    Everything queued for an older generation is refused from now on.
    """

    generation: int
    version: int


Transaction = (
    InitialisePartitions
    | AddShards
    | AssignJob
    | ReleaseJob
    | ReplaceShards
    | SplitPartition
    | ExtendTree
    | DeleteShards
    | HideRows
    | ForgetDeletions
    | DisputeShards
    | ResolveDisputes
    | SealSources
    | AdoptSegments
    | ResetTable
    | RestoreTable
)


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A transaction as it is stored, with its author's clock and the generation it is meant for."""

    transaction: Transaction
    time_ms: int
    generation: int


def change_name(transaction: Transaction) -> str:
    """Return what a transaction does, for people: "add shards"."""
    tag = transaction.__struct_config__.tag
    return str(tag).replace("_", " ")


_ENCODER = msgspec.msgpack.Encoder()


def transaction_id(transaction: Transaction) -> str:
    """Return the id under which the state remembers that this change was made: a digest of its
    stored form, so different content always has a different id; or of the id of a deletion.
    """
    if isinstance(transaction, HideRows):
        named = transaction.deletion.id.encode()
    else:
        named = _ENCODER.encode(transaction)
    return blake2b(named, digest_size=16).hexdigest()
