"""The partition tree: a binary tree of key ranges whose leaves tile the key space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.model.keys import Key, KeyRange, show_key
from dormouse.model.layered import LayeredMap

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Partition:
    """A half-open key range; a leaf until it is split, then the parent of two halves."""

    id: str
    range: KeyRange = KeyRange()
    parent: str | None = None
    children: tuple[str, str] | None = None

    @property
    def is_leaf(self) -> bool:
        """Tell whether the partition was never split."""
        return self.children is None


@dataclass(frozen=True, slots=True)
class PartitionTree:
    """All partitions of a table by id; immutable, a change gives a new tree sharing the rest."""

    by_id: LayeredMap[str, Partition] = field(default_factory=LayeredMap)

    def __len__(self) -> int:
        """Count all partitions, split ones included."""
        return len(self.by_id)

    def __contains__(self, partition_id: object) -> bool:
        """Tell whether there is such a partition."""
        return partition_id in self.by_id

    def get(self, partition_id: str) -> Partition:
        """Give one partition.

        Raises:
            NotFoundError: there is none of that id.
        """
        found = self.by_id.get(partition_id)
        if found is None:
            raise NotFoundError(f"there is no partition {partition_id!r}")
        return found

    def leaves(self) -> Iterator[Partition]:
        """Give the leaves in key order."""
        return self.leaves_overlapping(KeyRange())

    def leaves_overlapping(self, wanted: KeyRange, *, below: str = ROOT) -> Iterator[Partition]:
        """Give the leaves at or below partition `below` which `wanted` overlaps, in key order."""
        if not self.by_id:
            return
        pending = [self.get(below)]
        while pending:
            partition = pending.pop()
            if not partition.range.overlaps(wanted):
                continue
            if partition.children is None:
                yield partition
            else:
                left, right = partition.children
                pending += [self.get(right), self.get(left)]

    def leaf_containing(self, key: Key) -> Partition:
        """Give the one leaf that holds the full key `key`."""
        partition = self.get(ROOT)
        while partition.children is not None:
            left, right = (self.get(child) for child in partition.children)
            partition = left if left.range.contains(key) else right
        return partition

    def ancestors(self, partition_id: str) -> Iterator[str]:
        """Give the ids above a partition, its parent first."""
        parent = self.get(partition_id).parent
        while parent is not None:
            yield parent
            parent = self.get(parent).parent

    def depth(self, partition_id: str) -> int:
        """Count the partitions above a partition; the root's is 0."""
        return sum(1 for _ in self.ancestors(partition_id))

    def split_keys_above(self, partition_id: str) -> tuple[Key, ...]:
        """Give the keys at which the ancestors of a partition are split, the root's first."""
        keys = []
        for ancestor in self.ancestors(partition_id):
            _, right = self.get(ancestor).children or ("", "")
            keys.append(self.get(right).range.min)
        return tuple(reversed(keys))

    def around(self, leaves: Iterable[str]) -> PartitionTree:
        """Give of the tree what tells where some partitions lie: those above them, and beside."""
        kept = {ROOT}
        for leaf in leaves:
            for ancestor in self.ancestors(leaf):
                kept.update((ancestor, *(self.get(ancestor).children or ())))
        return PartitionTree.of(self.get(partition) for partition in kept)

    def split(self, partition_id: str, at: Key, left: str, right: str) -> PartitionTree:
        """Give the tree in which a leaf has become the parent of ``[min, at)`` and ``[at, max)``.

        Requires: a leaf, `at` strictly within it, and two unused ids (the rules check this).
        """
        parent = self.get(partition_id)
        if not parent.is_leaf or at <= parent.range.min or not parent.range.contains(at):
            raise InvariantError(f"partition {partition_id} cannot be split there")
        low = Partition(left, KeyRange(parent.range.min, at), parent=partition_id)
        high = Partition(right, KeyRange(at, parent.range.max), parent=partition_id)
        changed = replace(parent, children=(left, right))
        return PartitionTree(
            self.by_id.insert(partition_id, changed).insert(left, low).insert(right, high)
        )

    @staticmethod
    def of(partitions: Iterable[Partition]) -> PartitionTree:
        """Build a tree from its partitions, unchecked (see `model.invariants`)."""
        return PartitionTree(LayeredMap.of({p.id: p for p in partitions}))

    @staticmethod
    def from_split_points(points: Sequence[Key]) -> PartitionTree:
        """Build a balanced tree whose leaves meet at `points`; none gives a single leaf.

        Raises:
            InvalidRequestError: the points are not strictly ascending.
        """
        for i, (before, here) in enumerate(zip(points, points[1:], strict=False)):
            if not before < here:
                raise InvalidRequestError(
                    f"split points must ascend without repeats: number {i + 2} "
                    f"({show_key(here)}) does not come after {show_key(before)}"
                )
        if points and points[0] == ():
            raise InvalidRequestError("a split point must not be empty")
        tree = PartitionTree.of([Partition(ROOT)])
        pending = [(ROOT, 0, len(points))]
        while pending:
            parent, low, high = pending.pop()
            if low == high:
                continue
            middle = (low + high) // 2
            left, right = child_ids(parent)
            tree = tree.split(parent, points[middle], left, right)
            pending += [(left, low, middle), (right, middle + 1, high)]
        return tree


def child_ids(parent: str) -> tuple[str, str]:
    """Give the ids of the halves of a partition: its path from the root, and a 0 or a 1.

    Derived ids make a split idempotent: two splits of one leaf name the same children.
    """
    path = "" if parent == ROOT else parent
    return path + "0", path + "1"
