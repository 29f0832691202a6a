"""The changes that a table's state can undergo: a closed union of small frozen structs.

A struct is the change, its stored form and its id: MessagePack has it as a map of its fields, with
its `tag` as `kind`, and a digest of these bytes names it (`transaction_id`), so that a second
attempt at the same change, by any process, is recognised as the same. A kind that a release does
not know it cannot decode, so it never judges by other rules than the release that wrote it: who
changes what a kind means gives it another tag. Fields that are added have defaults, which are not
stored. The golden files in ``tests/unit/statestore/golden`` hold each kind as it is stored.

Keys are their order-preserving bytes (`keys.ranges`).
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from dormouse.model.disputes import DisputeReason
from dormouse.model.shards import NewShard
from dormouse.model.source_segments import SourceSegment
from dormouse.schema.key_types import KeyTypes


class Change(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What all kinds of change have in common."""


class InitialisePartitions(Change, tag="initialise_partitions", frozen=True):
    """Begin a table: the keys at which its first leaves meet, and the types of its row keys."""

    splits: tuple[bytes, ...]
    key_types: KeyTypes


class AddShards(Change, tag="add_shards", frozen=True):
    """Add the shards that one ingest job wrote, and remember the job's sources.

    `looked_up_to` is the `sealed_to` of the state whose segments were searched for the sources. If
    more was sealed since, the search may have missed a source.
    """

    job: str
    sources: tuple[str, ...]
    shards: tuple[NewShard, ...]
    looked_up_to: int = 0


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


class RestoreVersion(Change, tag="restore_version", frozen=True):
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
    | DisputeShards
    | ResolveDisputes
    | SealSources
    | AdoptSegments
    | ResetTable
    | RestoreVersion
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
    stored form, so different content always has a different id.
    """
    return blake2b(_ENCODER.encode(transaction), digest_size=16).hexdigest()
