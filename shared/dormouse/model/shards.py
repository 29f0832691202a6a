"""Shards and the references that say which of their rows count."""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.model.keys import Key


@dataclass(frozen=True, slots=True)
class Shard:
    """One immutable, sorted data file. `min_key` and `max_key` are row keys of actual rows."""

    id: str
    rows: int
    size_bytes: int
    min_key: Key
    max_key: Key
    job: str


@dataclass(frozen=True, slots=True)
class Reference:
    """The rows of `shard` that lie in `partition`.

    `rows` is exact when the shard lies wholly in the partition or the writer counted them, else
    an estimate. `job` is the job that has the reference as input, if any.
    """

    partition: str
    shard: str
    rows: int
    exact: bool = True
    job: str | None = None


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard to be added, with the rows it has in each of some partitions."""

    shard: Shard
    rows_by_partition: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A compaction decided on: in one partition, these shards become new ones."""

    id: str
    partition: str
    inputs: tuple[str, ...]
    assigned_ms: int
