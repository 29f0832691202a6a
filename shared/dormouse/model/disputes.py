"""How many rows jobs took from each shard, and disputed shards, where these numbers are wrong.

A job that replaces shards says how many rows it took from each input. If a shard lies in several
partitions, several jobs take a part of it each, and these numbers are kept until the last job is
done. If their sum is not the number of rows of the shard, or if the shard's bytes prove to be
damaged, the shard is disputed. A disputed shard is never deleted, so that lost rows can still be
found in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dormouse.keys.ranges import KeyRange


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
"""The most jobs that a dispute names. Jobs that report it later appear only in their own
records."""


def dispute_id(shard: str) -> str:
    """Return the id of the tracker's record of the disputes over a shard."""
    return f"dispute-{shard}"


def is_conserved(takings: tuple[RowsTaken, ...], rows: int) -> bool | None:
    """Return whether jobs took exactly the rows of a shard; None if some did not count."""
    counts = [taking.rows for taking in takings if taking.rows is not None]
    return sum(counts) == rows if len(counts) == len(takings) else None
