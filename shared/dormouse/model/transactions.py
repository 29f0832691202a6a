"""The changes a table's state can undergo: a closed union of small frozen values.

Each has a `transaction_id` which follows from what it does, so that a second attempt at the same
change, by whoever, is recognised as the same.
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

RULES = 1
"""The version of the rules by which this release judges. Raise it with every change of a verdict or
of what the fold makes of an entry, and keep judging older versions as they were."""


@dataclass(frozen=True, slots=True)
class InitialisePartitions:
    """Begin a table: its first tree of partitions, the types of its row keys, and its rules."""

    partitions: tuple[Partition, ...]
    key_types: KeyTypes
    rules: int = RULES


@dataclass(frozen=True, slots=True)
class RaiseRules:
    """Judge what follows by a later version of the rules; older releases read no further."""

    rules: int


@dataclass(frozen=True, slots=True)
class AddShards:
    """Add what one ingest job wrote, and remember the sources it came from.

    `looked_up_to` is the `sealed_to` of the state in whose segments the sources were not found:
    what was sealed since could have them.
    """

    job: str
    sources: tuple[str, ...]
    shards: tuple[NewShard, ...]
    looked_up_to: int = 0


@dataclass(frozen=True, slots=True)
class AssignJob:
    """Make the references of `inputs` in `partition` the inputs of a compaction job."""

    job: str
    partition: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Take a job back; its references are free again."""

    job: str


@dataclass(frozen=True, slots=True)
class ReplaceShards:
    """Finish a job: its inputs in its partition give way to `outputs`, which may be none.

    `rows_taken` tells, input by input, how many rows the job took of it, and `rows_removed` how
    many of all those are in no output, by the rules of the table or a purge. Only what adds nothing
    may leave them uncounted.
    """

    job: str
    partition: str
    inputs: tuple[str, ...]
    outputs: tuple[NewShard, ...]
    rows_taken: tuple[tuple[str, int], ...] = ()
    rows_removed: int = 0


@dataclass(frozen=True, slots=True)
class SplitPartition:
    """Split a leaf at a key. `rows_left` tells, shard by shard, how many rows lie left of it."""

    partition: str
    at: Key
    rows_left: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ExtendTree:
    """Split several leaves at once, one after the other: a half may be split further.

    Each split is a partition and a key; all of them are made or none.
    """

    splits: tuple[tuple[str, Key], ...]


@dataclass(frozen=True, slots=True)
class ForgetShards:
    """Drop shards that nothing references and whose objects are deleted."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DisputeShards:
    """Keep shards from being collected or merged, for a reason which `job` found."""

    shards: tuple[str, ...]
    reason: DisputeReason
    job: str


@dataclass(frozen=True, slots=True)
class SettleDisputes:
    """End disputes: each is a shard, and the time since when it is disputed.

    A dispute raised later is another one, which the person who settles this one has not seen.
    """

    disputes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SealSources:
    """Remember sources by a segment from here on, which also stands for the last few before it.

    It has the unsealed sources up to its `up_to`, and those of the `replaced`, the last segments
    there are, in order.
    """

    segment: SourceSegment
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdoptSegments:
    """Remember, in a log that begins, what was ingested by logs before it."""

    segments: tuple[SourceSegment, ...]


@dataclass(frozen=True, slots=True)
class ClearTable:
    """Start over as `generation`: no shards, jobs or sources; the given partitions, and row keys of
    the given types, or of those they had if none are given.

    What was queued for an older generation is refused from here on.
    """

    generation: int
    partitions: tuple[Partition, ...]
    key_types: KeyTypes = ()


Transaction = (
    InitialisePartitions
    | RaiseRules
    | AddShards
    | AssignJob
    | ReleaseJob
    | ReplaceShards
    | SplitPartition
    | ExtendTree
    | ForgetShards
    | DisputeShards
    | SettleDisputes
    | SealSources
    | AdoptSegments
    | ClearTable
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction as it is stored: with its author's clock and the generation it is meant for."""

    transaction: Transaction
    time_ms: int
    generation: int


def transaction_id(transaction: Transaction) -> str:
    """Return the id under which the state remembers that this very change was made.

    It is a digest of all that the transaction says: another content is another change, which no
    memory of the first answers for. It is stored, and must never change for what it is made of.
    """
    # ascii() escapes alike in every release of Python, and tells any two contents apart
    return blake2b(ascii(_content(transaction)).encode(), digest_size=16).hexdigest()


def _content(transaction: Transaction) -> tuple[object, ...]:  # noqa: C901  # a case a kind
    match transaction:
        case InitialisePartitions(partitions=partitions, key_types=key_types, rules=rules):
            return "initialise", _partitions(partitions), _types(key_types), rules
        case RaiseRules(rules=rules):
            return "rules", rules
        case AddShards(job=job, sources=sources, shards=shards, looked_up_to=looked_up_to):
            return "add", job, sources, _shards(shards), looked_up_to
        case AssignJob(job=job, partition=partition, inputs=inputs):
            return "assign", job, partition, inputs
        case ReleaseJob(job=job):
            return "release", job
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs) as done:
            counts = done.rows_taken, done.rows_removed
            return "replace", job, partition, inputs, _shards(outputs), *counts
        case SplitPartition(partition=partition, at=at, rows_left=rows_left):
            return "split", partition, at, rows_left
        case ExtendTree(splits=splits):
            return "extend", splits
        case ForgetShards(shards=shards):
            return "forget", tuple(sorted(shards))
        case DisputeShards(shards=shards, reason=reason, job=job):
            return "dispute", reason.value, job, tuple(sorted(shards))
        case SettleDisputes(disputes=disputes):
            return "settle", tuple(sorted(disputes))
        case SealSources(segment=segment, replaced=replaced):
            return "seal", astuple(segment), replaced
        case AdoptSegments(segments=segments):
            return "adopt", tuple(astuple(segment) for segment in segments)
        case ClearTable(generation=generation, partitions=partitions, key_types=key_types):
            return "clear", generation, _partitions(partitions), _types(key_types)


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
