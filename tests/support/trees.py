"""First trees of tables whose row key is one text, as most tests have."""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.keys import KeyRange
from dormouse.schema.schema import KeyTypes
from dormouse.schema.types import Primitive
from dormouse.state.partitions import Partition, PartitionTree, partition_id_of
from dormouse.state.state import InitialisePartitions

TEXT: KeyTypes = (Primitive.STRING,)
NUMBER: KeyTypes = (Primitive.LONG,)


def initialise(
    partitions: PartitionTree | Iterable[Partition], key_types: KeyTypes = TEXT
) -> InitialisePartitions:
    """Begin a table with leaves as these partitions have."""
    tree = partitions if isinstance(partitions, PartitionTree) else PartitionTree.of(partitions)
    return InitialisePartitions(tree.splits, key_types)


def part(low: str = "", high: str = "") -> str:
    """Return the id of the partition of the texts from `low` to `high`; empty is without an end."""
    return partition_id_of(KeyRange((low,) if low else (), (high,) if high else None))


LEFT, RIGHT = part("", "m"), part("m")
"""The leaves of a tree that is split at "m"."""
