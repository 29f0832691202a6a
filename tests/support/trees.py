"""First trees of tables whose row key is one text, as most tests have."""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.model.key_types import KeyTypes
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.schema import Primitive
from dormouse.model.transactions import InitialisePartitions

TEXT: KeyTypes = (Primitive.STRING,)
NUMBER: KeyTypes = (Primitive.LONG,)


def initialise(
    partitions: PartitionTree | Iterable[Partition], key_types: KeyTypes = TEXT
) -> InitialisePartitions:
    """Begin a table with these partitions."""
    tree = partitions.by_id.values() if isinstance(partitions, PartitionTree) else partitions
    return InitialisePartitions(tuple(tree), key_types)
