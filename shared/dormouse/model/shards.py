"""Shards, and the references that say which of their rows are part of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dormouse.keys.ranges import Key
from dormouse.model.overlay_map import OverlayMap


@dataclass(frozen=True, slots=True)
class Shard:
    """One immutable, sorted data file. `min_key` and `max_key` are row keys of actual rows."""

    id: str
    rows: int
    size_bytes: int
    min_key: Key
    max_key: Key


@dataclass(frozen=True, slots=True)
class Reference:
    """The rows of `shard` that lie in `partition`.

    `rows` is exact if the whole shard lies in the partition or the writer counted the rows, else an
    estimate. `job` is the job that has the reference as an input, if any.
    """

    partition: str
    shard: str
    rows: int
    exact: bool = True
    job: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionReferences:
    """The references in one partition, by shard, with the totals that planning needs.

    `rows` is the sum of their rows; `free` counts those that are not an input of a job.
    """

    by_shard: OverlayMap[str, Reference] = field(default_factory=OverlayMap)
    rows: int = 0
    free: int = 0

    def __len__(self) -> int:
        """Count the references."""
        return len(self.by_shard)

    def __iter__(self) -> Iterator[Reference]:
        """Return the references, in no particular order."""
        return self.by_shard.values()

    def insert(self, reference: Reference) -> PartitionReferences:
        """Return the references with `reference` added, in place of one to the same shard."""
        rest = self.discard(reference.shard)
        return PartitionReferences(
            self.by_shard.insert(reference.shard, reference),
            rest.rows + reference.rows,
            rest.free + (reference.job is None),
        )

    def discard(self, shard: str) -> PartitionReferences:
        """Return the references without the one to `shard`, if there is one."""
        held = self.by_shard.get(shard)
        if held is None:
            return self
        return PartitionReferences(
            self.by_shard.remove(shard), self.rows - held.rows, self.free - (held.job is None)
        )


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard to be added, with the number of rows that it has in each of some partitions."""

    shard: Shard
    rows_by_partition: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """An assigned compaction: in one partition, these shards become new ones.

    `purge_id` names the purge that it removes rows for, `request_key` the request that asked for
    it, if any.
    """

    id: str
    partition: str
    inputs: tuple[str, ...]
    assigned_ms: int
    purge_id: str | None = None
    request_key: str | None = None
