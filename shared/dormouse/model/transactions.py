"""The changes that a table's state can undergo: a closed union of small frozen values.

The `transaction_id` of each is derived from its content, so that a second attempt at the same
change, by any process, is recognised as the same.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from hashlib import blake2b

from dormouse.keys.ranges import Key
from dormouse.model.disputes import DisputeReason
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard
from dormouse.model.source_segments import SourceSegment
from dormouse.schema.key_types import KeyTypes

RULES = 2
"""The version of the rules by which this release judges entries. Raise it with every change of a
verdict, or of what the fold makes of an entry, and keep judging older versions as before."""
JOINING_RULES = 2
"""The rules since which a job can be assigned in a split partition."""


@dataclass(frozen=True, slots=True)
class InitialisePartitions:
    """Begin a table: its first partition tree, the types of its row keys, and its rules."""

    partitions: tuple[Partition, ...]
    key_types: KeyTypes
    rules: int = RULES


@dataclass(frozen=True, slots=True)
class RaiseRules:
    """Judge later entries by a later version of the rules. Older releases then refuse to read
    on.
    """

    rules: int


@dataclass(frozen=True, slots=True)
class AddShards:
    """Add the shards that one ingest job wrote, and remember the job's sources.

    `looked_up_to` is the `sealed_to` of the state whose segments were searched for the sources. If
    more was sealed since, the search may have missed a source.
    """

    job: str
    sources: tuple[str, ...]
    shards: tuple[NewShard, ...]
    looked_up_to: int = 0


@dataclass(frozen=True, slots=True)
class AssignJob:
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


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Cancel a job; its references are free again."""

    job: str


@dataclass(frozen=True, slots=True)
class ReplaceShards:
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


@dataclass(frozen=True, slots=True)
class SplitPartition:
    """Split a leaf at a key. `rows_left` says how many rows of each shard lie left of the key."""

    partition: str
    at: Key
    rows_left: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ExtendTree:
    """Split several leaves, one after the other: a new half may be split further.

    Each split is a partition and a key. Either all splits are made or none.
    """

    splits: tuple[tuple[str, Key], ...]


@dataclass(frozen=True, slots=True)
class DeleteShards:
    """Remove shards that nothing references and whose objects are deleted."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DisputeShards:
    """Keep shards from being deleted or merged, for a reason that `job` found."""

    shards: tuple[str, ...]
    reason: DisputeReason
    job: str


@dataclass(frozen=True, slots=True)
class ResolveDisputes:
    """End disputes: each is a shard, and the time since when it is disputed.

    A dispute raised later is a different one, which the person who ends this one has not seen.
    """

    disputes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SealSources:
    """Remember sources in a segment from now on. It may replace the last few segments.

    It holds the unsealed sources up to its `up_to`, and those of the segments `replaced`, which are
    the last ones, in order.
    """

    segment: SourceSegment
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptSegments:
    """Remember, at the start of a log, what was ingested in the logs before it."""

    segments: tuple[SourceSegment, ...]


@dataclass(frozen=True, slots=True)
class ResetTable:
    """Reset the table: start `generation` without shards, jobs or sources, with the given
    partitions.

    Row keys have the given types; without any, they keep theirs. Everything queued for an older
    generation is refused from now on.
    """

    generation: int
    partitions: tuple[Partition, ...]
    key_types: KeyTypes = ()


@dataclass(frozen=True, slots=True)
class RestoreVersion:
    """Reset the table to an earlier version: start `generation` with the shards, partitions and
    sources of `version`, and no jobs.

    The state of that version is a snapshot, stored under the id of the delta that this is part of.
    Everything queued for an older generation is refused from now on.
    """

    generation: int
    version: int


Transaction = (
    InitialisePartitions
    | RaiseRules
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


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction as it is stored, with its author's clock and the generation it is meant for."""

    transaction: Transaction
    time_ms: int
    generation: int


def change_name(transaction: Transaction) -> str:
    """Return what a transaction does, for people: "add shards"."""
    name = type(transaction).__name__
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def transaction_id(transaction: Transaction) -> str:
    """Return the id under which the state remembers that this change was made.

    It is a digest of all that the transaction says, so different content always has a different id.
    The id is stored: for the same content, it must never change.
    """
    # ascii() is the same in every release of Python, and different for different content
    return blake2b(ascii(_content(transaction)).encode(), digest_size=16).hexdigest()


def _content(transaction: Transaction) -> tuple[object, ...]:  # noqa: C901  # a case a kind
    match transaction:
        case InitialisePartitions(partitions=partitions, key_types=key_types, rules=rules):
            return "initialise", _partitions(partitions), _types(key_types), rules
        case RaiseRules(rules=rules):
            return "rules", rules
        case AddShards(job=job, sources=sources, shards=shards, looked_up_to=looked_up_to):
            return "add", job, sources, _shards(shards), looked_up_to
        case AssignJob(job=job, partition=partition, inputs=inputs) as assigned:
            return "assign", job, partition, inputs, assigned.purge_id, assigned.request_key
        case ReleaseJob(job=job):
            return "release", job
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs) as done:
            counts = done.rows_taken, done.rows_removed
            return "replace", job, partition, inputs, _shards(outputs), *counts
        case SplitPartition(partition=partition, at=at, rows_left=rows_left):
            return "split", partition, at, rows_left
        case ExtendTree(splits=splits):
            return "extend", splits
        case DeleteShards(shards=shards):
            return "delete", tuple(sorted(shards))
        case DisputeShards(shards=shards, reason=reason, job=job):
            return "dispute", reason.value, job, tuple(sorted(shards))
        case ResolveDisputes(disputes=disputes):
            return "resolve", tuple(sorted(disputes))
        case SealSources(segment=segment, replaced=replaced):
            return "seal", astuple(segment), replaced
        case AdoptSegments(segments=segments):
            return "adopt", tuple(astuple(segment) for segment in segments)
        case ResetTable(generation=generation, partitions=partitions, key_types=key_types):
            return "reset", generation, _partitions(partitions), _types(key_types)
        case RestoreVersion(generation=generation, version=version):
            return "restore", generation, version


def _types(key_types: KeyTypes) -> tuple[str, ...]:
    return tuple(kind.value for kind in key_types)


def _partitions(partitions: tuple[Partition, ...]) -> tuple[object, ...]:
    ordered = sorted(partitions, key=lambda p: p.id)
    return tuple((p.id, p.range.min, p.range.max, p.parent, p.children, p.height) for p in ordered)


def _shards(shards: tuple[NewShard, ...]) -> tuple[object, ...]:
    return tuple(
        (
            new.shard.id,
            new.shard.rows,
            new.shard.size_bytes,
            new.shard.min_key,
            new.shard.max_key,
            new.rows_by_partition,
        )
        for new in shards
    )
