"""The partition tree: a binary tree of key ranges whose leaves tile the key space.

A partition is called by its range, so an id means one range for ever, in whatever order leaves
are split. Leaves are only ever split. The partitions above them come and go, so that no branch
grows much longer than the others however keys arrive: where one does, partitions side by side are
joined otherwise, as in an AVL tree. Those that hold references stay.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.keys.ranges import Key, KeyRange, encode_key, show_key
from dormouse.model.overlay_map import OverlayMap

ROOT = "root"
_ID_BYTES = 10


def partition_id_of(span: KeyRange) -> str:
    """Return the id of the partition of a range: 20 hex digits, however deep it lies."""
    if span == KeyRange():
        return ROOT
    low, high = encode_key(span.min), b"" if span.max is None else encode_key(span.max)
    ends = len(low).to_bytes(4, "big") + low + high
    return blake2b(ends, digest_size=_ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Partition:
    """A half-open key range; a leaf until it is split, then the parent of two halves.

    `height` counts the levels below it; that of a leaf is 0.
    """

    id: str
    range: KeyRange = KeyRange()
    parent: str | None = None
    children: tuple[str, str] | None = None
    height: int = 0

    @property
    def is_leaf(self) -> bool:
        """Return whether the partition was never split."""
        return self.children is None


@dataclass(frozen=True, slots=True)
class PartitionTree:
    """All partitions of a table by id; immutable, a change gives a new tree sharing the rest."""

    by_id: OverlayMap[str, Partition] = field(default_factory=OverlayMap)

    def __len__(self) -> int:
        """Count all partitions, split ones included."""
        return len(self.by_id)

    def __contains__(self, partition_id: object) -> bool:
        """Return whether there is such a partition."""
        return partition_id in self.by_id

    def get(self, partition_id: str) -> Partition:
        """Return one partition.

        Raises:
            NotFoundError: there is none of that id.
        """
        found = self.by_id.get(partition_id)
        if found is None:
            raise NotFoundError(f"there is no partition {partition_id!r}")
        return found

    def leaves(self) -> Iterator[Partition]:
        """Return the leaves in key order."""
        return self.leaves_overlapping(KeyRange())

    def leaves_overlapping(self, wanted: KeyRange) -> Iterator[Partition]:
        """Yield the leaves which `wanted` overlaps, in key order."""
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

    def leaf_containing(self, key: Key) -> Partition:
        """Return the one leaf that holds the full key `key`."""
        partition = self.get(ROOT)
        while partition.children is not None:
            left, right = (self.get(child) for child in partition.children)
            partition = left if left.range.contains(key) else right
        return partition

    def ancestors(self, partition_id: str) -> Iterator[str]:
        """Return the ids above a partition, its parent first."""
        parent = self.get(partition_id).parent
        while parent is not None:
            yield parent
            parent = self.get(parent).parent

    def depth(self, partition_id: str) -> int:
        """Count the partitions above a partition; the root's is 0."""
        return sum(1 for _ in self.ancestors(partition_id))

    def split(self, leaf_id: str, at: Key) -> PartitionTree:
        """Return the tree in which a leaf is split, and no branch much longer than the others.

        Requires: a leaf, and `at` strictly within it (the rules check this).
        """
        return self.with_halves(leaf_id, at).balanced(leaf_id, ())

    def with_halves(self, leaf_id: str, at: Key) -> PartitionTree:
        """Return the tree in which a leaf has become the parent of ``[min, at)`` and ``[at, max)``.

        It is to be balanced next. Requires: a leaf, and `at` strictly within it.
        """
        parent = self.get(leaf_id)
        if not parent.is_leaf or at <= parent.range.min or not parent.range.contains(at):
            raise InvariantError(f"partition {leaf_id} cannot be split there")
        halves = [
            Partition(partition_id_of(span), span, leaf_id)
            for span in (KeyRange(parent.range.min, at), KeyRange(at, parent.range.max))
        ]
        children = halves[0].id, halves[1].id
        return self._with(replace(parent, children=children, height=1), *halves)

    def balanced(self, partition_id: str, pinned: Container[str]) -> PartitionTree:
        """Return the tree after one partition grew by a level: branches above it are made shorter.

        Without `pinned` partitions, which stay, no leaf of n lies deeper than 2 log2 n.
        """
        tree = self
        for above in (partition_id, *self.ancestors(partition_id)):
            tree = tree._lowered(above, pinned)
        return tree

    def _lowered(self, top: str, pinned: Container[str]) -> PartitionTree:
        """Join what lies below a partition otherwise, for as long as that makes it lower.

        Each turn takes levels away, and gives none to anything above: so it ends.
        """
        tree, pending = self, [top]
        while pending:
            partition = tree._measured(pending.pop())
            tree = tree._with(partition)
            if groups := tree._turned(partition, pinned):
                tree, made = tree._joined(partition, groups)
                pending += [partition.id, *made]  # what was made first: it may be lowered too
        return tree

    def _turned(
        self, partition: Partition, pinned: Container[str]
    ) -> tuple[tuple[Partition, ...], ...]:
        """Return the partitions to be joined, in key order, as two halves lower than those it has.

        None if there are none. The shorter half takes over what lies beside it of the longer one.
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

    def _joined(
        self, top: Partition, groups: Sequence[Sequence[Partition]]
    ) -> tuple[PartitionTree, list[str]]:
        """Return the tree in which groups of one or two partitions are the halves of another.

        What lay between is gone. Also returns the ids of the partitions that were made of two.
        """
        kept = {top.id, *(partition.id for group in groups for partition in group)}
        halves, made = [], []
        tree = self._without_between(top, kept)
        for group in groups:
            half = group[0]
            if len(group) == 2:
                span = KeyRange(group[0].range.min, group[1].range.max)
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

    def _measured(self, partition_id: str) -> Partition:
        """Return a partition with the height that follows from its halves."""
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
        """Build a balanced tree whose leaves meet at `points`; none gives a single leaf.

        Raises:
            InvalidRequestError: the points are not strictly ascending.
        """
        for number, (before, here) in enumerate(pairwise(points), start=2):
            if not before < here:
                raise InvalidRequestError(
                    f"split points must ascend without repeats: number {number} "
                    f"({show_key(here)}) does not come after {show_key(before)}"
                )
        if points and points[0] == ():
            raise InvalidRequestError("a split point must not be empty")
        ends = [(), *points, None]

        def span(first: int, end: int) -> KeyRange:
            return KeyRange(ends[first] or (), ends[end])

        made: list[Partition] = []
        pending: list[tuple[int, int, str | None]] = [(0, len(points) + 1, None)]
        while pending:
            first, end, parent = pending.pop()
            own, middle = span(first, end), (first + end) // 2
            name, children = partition_id_of(own), None
            if end - first > 1:
                children = partition_id_of(span(first, middle)), partition_id_of(span(middle, end))
                pending += [(first, middle, name), (middle, end, name)]
            made.append(Partition(name, own, parent, children, (end - first - 1).bit_length()))
        return PartitionTree.of(made)
