"""The changes a table's state can undergo: a closed union of small frozen values.

Each has a `transaction_id` which follows from what it does, so that a second attempt at the same
change, by whoever, is recognised as the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from dormouse.model.disputes import DisputeReason
from dormouse.model.keys import Key, encode_key
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard


@dataclass(frozen=True, slots=True)
class InitialisePartitions:
    """Give a table without partitions its first tree."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class AddShards:
    """Add what one ingest job wrote, and remember the sources it came from."""

    job: str
    sources: tuple[str, ...]
    shards: tuple[NewShard, ...]


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

    A dispute raised later is another one, which whoever settles this one has not seen.
    """

    disputes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ClearTable:
    """Start over as `generation`: no shards, jobs or sources; the given partitions.

    What was queued for an older generation is refused from here on.
    """

    generation: int
    partitions: tuple[Partition, ...]


Transaction = (
    InitialisePartitions
    | AddShards
    | AssignJob
    | ReleaseJob
    | ReplaceShards
    | SplitPartition
    | ExtendTree
    | ForgetShards
    | DisputeShards
    | SettleDisputes
    | ClearTable
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A transaction as it is stored: with its author's clock and the generation it is meant for."""

    transaction: Transaction
    time_ms: int
    generation: int


def transaction_id(transaction: Transaction) -> str:
    """Give the id under which the state remembers that this very change was made."""
    match transaction:
        case InitialisePartitions():
            return "initialise"
        case AddShards(job=job):
            return f"add:{job}"
        case AssignJob(job=job):
            return f"assign:{job}"
        case ReleaseJob(job=job):
            return f"release:{job}"
        case ReplaceShards(job=job):
            return f"replace:{job}"
        case SplitPartition(partition=partition):
            return f"split:{partition}"
        case ExtendTree(splits=splits):
            return f"extend:{_digest(f'{p} {encode_key(at).hex()}' for p, at in splits)}"
        case ForgetShards(shards=shards):
            return f"forget:{_digest(sorted(shards))}"
        case DisputeShards(shards=shards, reason=reason, job=job):
            return f"dispute:{reason.value}:{_digest([job, *sorted(shards)])}"
        case SettleDisputes(disputes=disputes):
            return f"settle:{_digest(sorted(f'{shard} {since}' for shard, since in disputes))}"
        case ClearTable(generation=generation):
            return f"clear:{generation}"


def _digest(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
