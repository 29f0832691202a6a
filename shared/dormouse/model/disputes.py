"""What jobs took of each shard, and the shards of which that cannot be right: the disputed ones.

A job that replaces shards says how many rows it took of each. Where a shard lies in several
partitions, several jobs take their parts of it, and what they took is kept until the last one has.
If it is not the shard's rows then, or if the bytes of a shard turn out to be damaged, the shard is
disputed: it is never collected, so that whatever was lost can still be found in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dormouse.keys.ranges import KeyRange


class DisputeReason(Enum):
    """Why a shard is disputed; the value is stored, and what metrics and logs call it."""

    ROWS_LOST = "rows_lost"
    BYTES_DAMAGED = "bytes_damaged"


@dataclass(frozen=True, slots=True)
class RowsTaken:
    """The rows which a job took of a shard in a partition; `rows` is None if nobody counted.

    The `range` is that of the partition, which may be gone when somebody counts them again.
    """

    job: str
    partition: str
    rows: int | None
    range: KeyRange = KeyRange()


@dataclass(frozen=True, slots=True)
class Dispute:
    """Why a shard is disputed, since when, and the jobs that raised it."""

    reason: DisputeReason
    since_ms: int
    jobs: tuple[str, ...] = ()


MAX_JOBS_NAMED = 1000
"""How many jobs a dispute names; those which find the same later say so in their records only."""


def dispute_id(shard: str) -> str:
    """Return the id of the tracker's record of the disputes over a shard."""
    return f"dispute-{shard}"


def is_conserved(takings: tuple[RowsTaken, ...], rows: int) -> bool | None:
    """Return whether all takings of a shard are just its rows; None if some were not counted."""
    counts = [taking.rows for taking in takings if taking.rows is not None]
    return sum(counts) == rows if len(counts) == len(takings) else None
