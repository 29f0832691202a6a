"""The partition tree: a binary tree of key ranges whose leaves tile the key space.

The id of a partition is a digest of its range. So an id means the same range for ever, in whatever
order leaves are split. Leaves are only ever split, never joined. The inner partitions come and go:
rotations, as in an AVL tree, keep any branch from growing much longer than the others, however keys
arrive. Partitions that hold references are never rotated away.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.keys.ranges import Key, KeyRange, decode_key, encode_key, show_key
from dormouse.model.overlay_map import OverlayMap

ROOT = "root"
_ID_BYTES = 10


def partition_id_of(span: KeyRange) -> str:
    """Return the id of the partition with a range: 20 hex digits, however deep it lies in the
    tree.
    """
    if span == KeyRange():
        return ROOT
    ends = len(span.low).to_bytes(4, "big") + span.low + (span.high or b"")
    return blake2b(ends, digest_size=_ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Partition:
    """A half-open key range: a leaf until it is split, then the parent of two halves.

    `height` is the number of levels below it, 0 for a leaf.
    """

    id: str
    range: KeyRange = KeyRange()
    parent: str | None = None
    children: tuple[str, str] | None = None
    height: int = 0

    @property
    def is_leaf(self) -> bool:
        """Return whether the partition has not been split."""
        return self.children is None


@dataclass(frozen=True, slots=True)
class PartitionTree:
    """All partitions of a table by id. Immutable: a change returns a new tree that shares the
    rest.
    """

    by_id: OverlayMap[str, Partition] = field(default_factory=OverlayMap)

    def __len__(self) -> int:
        """Count all partitions, split ones included."""
        return len(self.by_id)

    def __contains__(self, partition_id: object) -> bool:
        """Return whether there is a partition with that id."""
        return partition_id in self.by_id

    def get(self, partition_id: str) -> Partition:
        """Return one partition.

        Raises:
            NotFoundError: there is none with that id.
        """
        found = self.by_id.get(partition_id)
        if found is None:
            raise NotFoundError(f"there is no partition {partition_id!r}")
        return found

    def leaves(self) -> Iterator[Partition]:
        """Return the leaves in key order."""
        return self.leaves_overlapping(KeyRange())

    def leaves_overlapping(self, wanted: KeyRange) -> Iterator[Partition]:
        """Yield the leaves that overlap `wanted`, in key order."""
        if not self.by_id:
            return
        pending = [self.get(ROOT)]
        while pending:
            partition = pending.pop()
            if not partition.range.overlaps(wanted):
                continue
            if partition.children is None:
                yield partition
            else:
                left, right = partition.children
                pending += [self.get(right), self.get(left)]

    @property
    def splits(self) -> tuple[bytes, ...]:
        """The bytes of the keys at which leaves meet, in order."""
        return tuple(leaf.range.low for leaf in self.leaves() if leaf.range.low)

    def leaf_containing(self, key: bytes) -> Partition:
        """Return the leaf that contains a full key, by its bytes."""
        partition = self.get(ROOT)
        while partition.children is not None:
            left, right = (self.get(child) for child in partition.children)
            partition = left if left.range.contains(key) else right
        return partition

    def ancestors(self, partition_id: str) -> Iterator[str]:
        """Yield the ids of the partitions above one, its parent first."""
        parent = self.get(partition_id).parent
        while parent is not None:
            yield parent
            parent = self.get(parent).parent

    def depth(self, partition_id: str) -> int:
        """Count the partitions above a partition: 0 for the root."""
        return sum(1 for _ in self.ancestors(partition_id))

    def split(self, leaf_id: str, at: bytes) -> PartitionTree:
        """Return the tree with a leaf split at the bytes of a key, and balanced.

        Requires: a leaf, and `at` strictly inside it (the rules check this).
        """
        return self.split_without_balancing(leaf_id, at).rebalanced(leaf_id, ())

    def split_without_balancing(self, leaf_id: str, at: bytes) -> PartitionTree:
        """Return the tree in which a leaf is the parent of ``[min, at)`` and ``[at, max)``, not yet
        balanced.

        Requires: a leaf, and `at` strictly inside it.
        """
        parent = self.get(leaf_id)
        if not parent.is_leaf or at <= parent.range.low or not parent.range.contains(at):
            raise InvariantError(f"partition {leaf_id} cannot be split there")
        halves = [
            Partition(partition_id_of(span), span, leaf_id)
            for span in (
                KeyRange.between(parent.range.low, at),
                KeyRange.between(at, parent.range.high),
            )
        ]
        children = halves[0].id, halves[1].id
        return self._with(replace(parent, children=children, height=1), *halves)

    def rebalanced(self, partition_id: str, pinned: Container[str]) -> PartitionTree:
        """Return the tree rebalanced after one partition grew by a level.

        `pinned` partitions are not rotated away. Without any, no leaf of n lies deeper than 2 log2
        n.
        """
        tree = self
        for above in (partition_id, *self.ancestors(partition_id)):
            tree = tree._rebalance(above, pinned)
        return tree

    def _rebalance(self, top: str, pinned: Container[str]) -> PartitionTree:
        """Rotate what lies below a partition for as long as that reduces its height.

        Each rotation reduces a height and raises none above it, so this ends.
        """
        tree, pending = self, [top]
        while pending:
            partition = tree._with_height(pending.pop())
            tree = tree._with(partition)
            if groups := tree._rotation(partition, pinned):
                tree, made = tree._rotate(partition, groups)
                pending += [partition.id, *made]  # new ones first: they may be rotated, too
        return tree

    def _rotation(
        self, partition: Partition, pinned: Container[str]
    ) -> tuple[tuple[Partition, ...], ...]:
        """Return the partitions to regroup, in key order, as two halves that are lower than the
        present ones.

        Empty if no rotation helps. Example: the left half has the children A (height 3) and B (2),
        and the right half C has height 2. The groups (A), (B, C) have the heights 3 and 3, where it
        was 4 and 2. If instead B is the higher child, with children B1 and B2, then the groups (A,
        B1), (B2, C) are the double rotation of an AVL tree.
        """
        if partition.children is None:
            return ()
        left, right = self._halves(partition)
        tall, short = (left, right) if left.height > right.height else (right, left)
        if tall.height <= short.height + 1 or tall.id in pinned:
            return ()
        halves = self._halves(tall)
        far, near = halves if tall is left else halves[::-1]
        groups: tuple[tuple[Partition, ...], ...] = ()
        if near.height < far.height:
            groups = (far,), (near, short)
        elif near.height > far.height and near.id not in pinned:
            inner = self._halves(near)
            beside_far, beside_short = inner if tall is left else inner[::-1]
            groups = (far, beside_far), (beside_short, short)
        return groups if tall is left else tuple(group[::-1] for group in groups[::-1])

    def _rotate(
        self, top: Partition, groups: Sequence[Sequence[Partition]]
    ) -> tuple[PartitionTree, list[str]]:
        """Return the tree in which each group of one or two partitions is a half of `top`.

        The partitions in between are gone. Also returns the ids of the new partitions that join
        two.
        """
        kept = {top.id, *(partition.id for group in groups for partition in group)}
        halves, made = [], []
        tree = self._without_between(top, kept)
        for group in groups:
            half = group[0]
            if len(group) == 2:
                span = KeyRange.between(group[0].range.low, group[1].range.high)
                height = 1 + max(part.height for part in group)
                children = group[0].id, group[1].id
                half = Partition(partition_id_of(span), span, None, children, height)
                tree = tree._with(*(replace(part, parent=half.id) for part in group))
                made.append(half.id)
            halves.append(replace(half, parent=top.id))
        children = halves[0].id, halves[1].id
        return tree._with(replace(top, children=children), *halves), made

    def _without_between(self, top: Partition, kept: Container[str]) -> PartitionTree:
        by_id, pending = self.by_id, list(top.children or ())
        while pending:
            partition = self.get(pending.pop())
            if partition.id not in kept:
                by_id = by_id.discard(partition.id)
                pending += partition.children or ()
        return PartitionTree(by_id)

    def _halves(self, partition: Partition) -> tuple[Partition, Partition]:
        left, right = partition.children or ("", "")
        return self.get(left), self.get(right)

    def _with_height(self, partition_id: str) -> Partition:
        """Return a partition with the height that follows from its children."""
        partition = self.get(partition_id)
        if partition.children is None:
            return partition
        return replace(partition, height=1 + max(h.height for h in self._halves(partition)))

    def _with(self, *partitions: Partition) -> PartitionTree:
        by_id = self.by_id
        for partition in partitions:
            if by_id.get(partition.id) != partition:
                by_id = by_id.insert(partition.id, partition)
        return PartitionTree(by_id)

    @staticmethod
    def of(partitions: Iterable[Partition]) -> PartitionTree:
        """Build a tree from its partitions, unchecked (see `fold.invariants`)."""
        return PartitionTree(OverlayMap.of({p.id: p for p in partitions}))

    @staticmethod
    def from_split_points(points: Sequence[Key]) -> PartitionTree:
        """Build the tree of `from_splits` from keys. Raises: as that."""
        return PartitionTree.from_splits([encode_key(point) for point in points])

    @staticmethod
    def from_splits(splits: Sequence[bytes]) -> PartitionTree:
        """Build a balanced tree whose leaves meet at `splits`, the bytes of keys; a single leaf if
        there are none.

        Raises:
            InvalidRequestError: they are not strictly ascending.
        """
        for number, (before, here) in enumerate(pairwise(splits), start=2):
            if not before < here:
                raise InvalidRequestError(
                    f"split points must ascend without repeats: number {number} "
                    f"({show_key(decode_key(here))}) does not come after "
                    f"{show_key(decode_key(before))}"
                )
        if splits and not splits[0]:
            raise InvalidRequestError("a split point must not be empty")
        ends = [b"", *splits, None]

        def span(first: int, end: int) -> KeyRange:
            return KeyRange.between(ends[first] or b"", ends[end])

        made: list[Partition] = []
        pending: list[tuple[int, int, str | None]] = [(0, len(splits) + 1, None)]
        while pending:
            first, end, parent = pending.pop()
            own, middle = span(first, end), (first + end) // 2
            name, children = partition_id_of(own), None
            if end - first > 1:
                children = partition_id_of(span(first, middle)), partition_id_of(span(middle, end))
                pending += [(first, middle, name), (middle, end, name)]
            made.append(Partition(name, own, parent, children, (end - first - 1).bit_length()))
        return PartitionTree.of(made)
