"""The partition tree: a binary tree of key ranges whose leaves tile the key space.

The id of a partition is a digest of its range. So an id means the same range for ever, in whatever
order leaves are split. Leaves are only ever split, never joined. The inner partitions come and go:
rotations, as in an AVL tree, keep any branch from growing much longer than the others, however keys
arrive. Partitions that hold references are never rotated away.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b
from itertools import chain, pairwise
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, overload

import msgspec
from rpds import HashTrieMap

from dormouse.errors import InvalidRequestError, InvariantError, NotFoundError
from dormouse.keys import Key, KeyRange, decode_key, encode_key, show_key
from dormouse.schema import row_tags
from dormouse.schema.schema import (
    APPLIED,
    INGESTED_AT,
    LAST_UPDATED,
    SEQUENCE,
    SHARD,
    TAGS,
    VERSION,
)

# An immutable map in two layers: a base, and the changes made since over it.
#
# The base can be anything that looks entries up, such as columns that create a Python object only
# for the entry asked for (`log.columns`). The changes are exactly what a store has to write to
# bring the base up to date; a deleted key of the base is a tombstone there. The maps of
# `state.TableState` are overlay maps.

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
W = TypeVar("W")


class _Tombstone(Enum):
    """The type of `TOMBSTONE`, the change that deletes a key of the base."""

    TOMBSTONE = "gone"


TOMBSTONE: Final = _Tombstone.TOMBSTONE


class Base(Protocol[K, V_co]):
    """The lower layer. It never changes, and none of its values is None."""

    def __len__(self) -> int:
        """Count the entries."""

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry with that key."""

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, each once."""

    def get(self, key: K, /) -> V_co | None:
        """Return the value of a key; None if there is none."""

    def items(self) -> Iterable[tuple[K, V_co]]:
        """Return pairs of key and value, each key once."""


class OverlayMap(Generic[K, V]):
    """A map whose changes return new maps, which share the base and all other changes.

    A change costs one look-up of its key in the base. Two maps are equal if they hold the same
    entries, whatever their layers.

    Example: over a base {a: 1, b: 2}, `insert("a", 7)`, `discard("b")`, `insert("c", 3)` and
    `discard("c")` leave the changes {a: 7, b: TOMBSTONE}; c needs no tombstone, since the base
    never had it.
    """

    __slots__ = ("_size", "base", "changes")
    __hash__ = None  # type: ignore[assignment]  # equal maps may have different layers, so no hash is defined

    base: Base[K, V]
    changes: HashTrieMap[K, V | Literal[_Tombstone.TOMBSTONE]]

    def __init__(
        self,
        base: Base[K, V] | None = None,
        changes: HashTrieMap[K, V | Literal[_Tombstone.TOMBSTONE]] | None = None,
        size: int | None = None,
    ) -> None:
        """Put `changes` over `base`. `size` is the number of entries, needed if there are changes.

        A key has a TOMBSTONE in the changes only if the base has the key.
        """
        self.base = HashTrieMap() if base is None else base
        self.changes = HashTrieMap() if changes is None else changes
        self._size = len(self.base) if size is None else size

    @staticmethod
    def of(entries: Mapping[K, V]) -> OverlayMap[K, V]:
        """Return a map without a base, whose entries are all changes."""
        return OverlayMap(None, HashTrieMap(entries), len(entries))

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        change = self.changes.get(cast(K, key))
        return key in self.base if change is None else change is not TOMBSTONE

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: W, /) -> V | W: ...
    def get(self, key: K, default: W | None = None, /) -> V | W | None:
        """Return the value of a key, or `default` if there is none."""
        value = self.changes.get(key)
        if value is None:
            value = self.base.get(key)
            return default if value is None else value
        return default if value is TOMBSTONE else value

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def insert(self, key: K, value: V) -> OverlayMap[K, V]:
        """Return the map in which `key` has `value`, whether or not it had a value before."""
        size = self._size + (key not in self)
        return OverlayMap(self.base, self.changes.insert(key, value), size)

    def discard(self, *keys: K) -> OverlayMap[K, V]:
        """Return the map without `keys`; this map if it has none of them."""
        changes, size = self.changes, self._size
        for key in keys:
            change = changes.get(key)
            if change is TOMBSTONE:
                continue
            if self.base.get(key) is not None:
                changes, size = changes.insert(key, TOMBSTONE), size - 1
            elif change is not None:
                changes, size = changes.remove(key), size - 1
        return self if changes is self.changes else OverlayMap(self.base, changes, size)

    def remove(self, key: K) -> OverlayMap[K, V]:
        """Return the map without `key`. Raises KeyError: there is no such key."""
        smaller = self.discard(key)
        if smaller is self:
            raise KeyError(key)
        return smaller

    def update(self, entries: Mapping[K, V]) -> OverlayMap[K, V]:
        """Return the map with these entries added; they replace its own."""
        return self.put(entries, new=sum(self.get(key) is None for key in entries))

    def put(self, entries: Mapping[K, V], *, new: int) -> OverlayMap[K, V]:
        """Return the map with these entries added, as `update`, but without looking for their keys.

        Requires: the map lacks just `new` of the keys, as the caller knows.
        """
        if not entries:
            return self
        return OverlayMap(self.base, self.changes.update(entries), self._size + new)

    def retain(self, keep: Callable[[V], bool]) -> OverlayMap[K, V]:
        """Return the map of those entries whose value `keep` accepts."""
        return self.discard(*(key for key, value in self.items() if not keep(value)))

    def __iter__(self) -> Iterator[K]:
        for key in self.base:
            if key not in self.changes:
                yield key
        for key, change in self.changes.items():
            if change is not TOMBSTONE:
                yield key

    def keys(self) -> Iterator[K]:
        """Return the keys, in no particular order."""
        return iter(self)

    def values(self) -> Iterator[V]:
        """Return the values, in no particular order."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield pairs of key and value, in no particular order."""
        for key, value in self.base.items():
            if key not in self.changes:
                yield key, value
        for key, change in self.changes.items():
            if change is not TOMBSTONE:
                yield key, change

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OverlayMap):
            return NotImplemented
        return len(self) == len(other) and all(other.get(k) == v for k, v in self.items())

    def __repr__(self) -> str:
        return f"OverlayMap({dict(self.items())!r})"


ROOT = "root"
_ID_BYTES = 10


def partition_id_of(span: KeyRange) -> str:
    """Return the id of a range's partition: 20 hex digits, however deep it lies in the tree."""
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
    """All partitions of a table by id. A change returns a new tree that shares the rest."""

    by_id: OverlayMap[str, Partition] = field(default_factory=OverlayMap)

    def __len__(self) -> int:
        """Count all partitions, split ones included."""
        return len(self.by_id)

    def __contains__(self, partition_id: object) -> bool:
        return partition_id in self.by_id

    def get(self, partition_id: str) -> Partition:
        """Return one partition. Raises NotFoundError: there is none with that id."""
        partition = self.by_id.get(partition_id)
        if partition is None:
            raise NotFoundError(f"there is no partition {partition_id!r}")
        return partition

    def leaves(self) -> Iterator[Partition]:
        """Return the leaves in key order."""
        return self.leaves_overlapping(KeyRange())

    def leaves_overlapping(self, span: KeyRange) -> Iterator[Partition]:
        """Yield the leaves that overlap `span`, in key order."""
        if not self.by_id:
            return
        pending = [self.get(ROOT)]
        while pending:
            partition = pending.pop()
            if not partition.range.overlaps(span):
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

        `pinned` partitions stay. Without any, no leaf of n lies deeper than 2 log2 n.
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
                tree, joins = tree._rotate(partition, groups)
                pending += [partition.id, *joins]  # new ones first: they may be rotated, too
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

        The partitions in between are gone. Also returns the ids of the new ones that join two.
        """
        present = {top.id, *(partition.id for group in groups for partition in group)}
        halves, joins = [], []
        tree = self._without_between(top, present)
        for group in groups:
            half = group[0]
            if len(group) == 2:
                span = KeyRange.between(group[0].range.low, group[1].range.high)
                height = 1 + max(part.height for part in group)
                children = group[0].id, group[1].id
                half = Partition(partition_id_of(span), span, None, children, height)
                tree = tree._with(*(replace(part, parent=half.id) for part in group))
                joins.append(half.id)
            halves.append(replace(half, parent=top.id))
        children = halves[0].id, halves[1].id
        return tree._with(replace(top, children=children), *halves), joins

    def _without_between(self, top: Partition, present: Container[str]) -> PartitionTree:
        by_id, pending = self.by_id, list(top.children or ())
        while pending:
            partition = self.get(pending.pop())
            if partition.id not in present:
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
        """Build a tree from its partitions, unchecked (see `state.validation`)."""
        return PartitionTree(OverlayMap.of({p.id: p for p in partitions}))

    @staticmethod
    def from_split_points(points: Sequence[Key]) -> PartitionTree:
        """Build the tree of `from_splits` from keys. Raises: as that."""
        return PartitionTree.from_splits([encode_key(point) for point in points])

    @staticmethod
    def from_splits(splits: Sequence[bytes]) -> PartitionTree:
        """Build a balanced tree whose leaves meet at `splits`, the bytes of keys; a single leaf if
        there are none.
        Raises InvalidRequestError: they are not strictly ascending.
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

        tree: list[Partition] = []
        pending: list[tuple[int, int, str | None]] = [(0, len(splits) + 1, None)]
        while pending:
            first, end, parent = pending.pop()
            own, middle = span(first, end), (first + end) // 2
            name, children = partition_id_of(own), None
            if end - first > 1:
                children = partition_id_of(span(first, middle)), partition_id_of(span(middle, end))
                pending += [(first, middle, name), (middle, end, name)]
            tree.append(Partition(name, own, parent, children, (end - first - 1).bit_length()))
        return PartitionTree.of(tree)


# Shards, and the references that say which of their rows are part of the table.

MOST_IN_A_DICT = 32
"""Up to so many references of a partition are a dict, which is copied with each change; more are a
map whose changes share what they leave alone."""


SNAPSHOTS_OF_A_COMMIT = 2**20
"""So many snapshots of Iceberg can follow a commit before the next one: the number of a commit,
which is a time in milliseconds, times this is the first of their sequence numbers."""


class Shard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One immutable, sorted data file. `low` and `high` are the bytes of its least and
    its greatest row key (`encode_key`).

    `sequence` is the number of the commit that added its rows; of the output of a job, that of the
    last commit before the job was assigned. Deletions with a number up to it hide none of its rows.
    `tags` are the row tags of its rows (`row_tags.texts_of`): if they differ, it has a column.
    `version` is that of the commit that added them if they come straight from files, -1 if it is
    not known any more; of the output of a job it is 0.
    """

    id: str
    rows: int
    size_bytes: int
    low: bytes
    high: bytes
    sequence: int = 0
    tags: str = ""
    version: int = 0

    @staticmethod
    def of(
        id: str,  # noqa: A002
        rows: int,
        size_bytes: int,
        min_key: Key,
        max_key: Key,
        tags: str = "",
    ) -> Shard:
        """Return a shard with rows from one key to another."""
        low, high = encode_key(min_key), encode_key(max_key)
        return Shard(id, rows, size_bytes, low, high, tags=tags)

    @property
    def constants(self) -> dict[str, int | str | None]:
        """What all its rows have, in columns that it need not have."""
        return {
            SEQUENCE.name: self.sequence,
            APPLIED.name: self.sequence,
            TAGS.name: self.tags and row_tags.only_text(self.tags),
            VERSION.name: self.version if self.version > 0 else None,
            INGESTED_AT.name: self.sequence * 1000 if self.version else None,
            LAST_UPDATED.name: self.published_sequence or None,
            SHARD.name: self.id,
        }

    @property
    def published_sequence(self) -> int:
        """Iceberg's sequence number of the rows of a shard that comes straight from files."""
        return self.sequence * SNAPSHOTS_OF_A_COMMIT if self.version else 0

    @property
    def min_key(self) -> Key:
        """The least row key."""
        return decode_key(self.low)

    @property
    def max_key(self) -> Key:
        """The greatest row key."""
        return decode_key(self.high)


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

    def held_by(self, job: str | None) -> Reference:
        """Return the reference as an input of a job, or of none."""
        return Reference(self.partition, self.shard, self.rows, self.exact, job)


_Join: TypeAlias = Callable[[Base[str, Reference], Mapping[str, Reference]], Base[str, Reference]]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionReferences:
    """The references in one partition, by shard, with the totals that planning needs.

    `rows` is the sum of their rows; `free` counts those that are not an input of a job.
    """

    by_shard: Base[str, Reference] = field(default_factory=dict)
    rows: int = 0
    free: int = 0

    def __len__(self) -> int:
        return len(self.by_shard)

    def __iter__(self) -> Iterator[Reference]:
        """Return the references, in no particular order."""
        return (reference for _, reference in self.by_shard.items())

    def reference(self, shard: str) -> Reference:
        """Return the reference to a shard. Raises KeyError: there is none."""
        reference = self.by_shard.get(shard)
        if reference is None:
            raise KeyError(shard)
        return reference

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same references, in whatever form."""
        if not isinstance(other, PartitionReferences):
            return NotImplemented
        totals = len(self), self.rows, self.free
        return totals == (len(other), other.rows, other.free) and all(
            other.by_shard.get(reference.shard) == reference for reference in self
        )

    __hash__ = None  # type: ignore[assignment]  # the maps have no hash either

    def insert(self, *references: Reference) -> PartitionReferences:
        """Return the references with these added, in place of others to the same shards."""
        more = {reference.shard: reference for reference in references}
        return self.discard(*more)._joined(_with, more)

    def add(self, more: Mapping[str, Reference]) -> PartitionReferences:
        """Return the references with others added, by shard, as `insert` but without a look at
        those that are there, which a snapshot may hold as columns.

        Requires: there is none to any of these shards, as the caller knows.
        """
        return self._joined(_beside, more)

    def _joined(self, join: _Join, more: Mapping[str, Reference]) -> PartitionReferences:
        rows, free = self.rows, self.free
        for reference in more.values():
            rows += reference.rows
            free += reference.job is None
        return PartitionReferences(join(self.by_shard, more), rows, free)

    def discard(self, *shards: str) -> PartitionReferences:
        """Return the references without those to `shards`, as far as there are any."""
        gone = {s: reference for s in shards if (reference := self.by_shard.get(s)) is not None}
        if not gone:
            return self
        return PartitionReferences(
            _without(self.by_shard, gone),
            self.rows - sum(reference.rows for reference in gone.values()),
            self.free - sum(reference.job is None for reference in gone.values()),
        )


class _Beside:
    """References beside those that were added to them; a base that copies and reads neither."""

    __slots__ = ("added", "held")

    def __init__(self, base: Base[str, Reference], added: Mapping[str, Reference]) -> None:
        self.held, self.added = base, added

    def __len__(self) -> int:
        return len(self.held) + len(self.added)

    def __contains__(self, key: object) -> bool:
        return key in self.added or key in self.held

    def __iter__(self) -> Iterator[str]:
        return chain(self.held, self.added)

    def get(self, key: str, /) -> Reference | None:
        return self.added.get(key) or self.held.get(key)

    def items(self) -> Iterator[tuple[str, Reference]]:
        return chain(self.held.items(), self.added.items())


def _beside(base: Base[str, Reference], more: Mapping[str, Reference]) -> Base[str, Reference]:
    """Return references with others added, none of which is to the same shard."""
    if len(base) + len(more) > MOST_IN_A_DICT:
        return _with(base, more)
    if isinstance(base, dict):
        return {**base, **more}
    if isinstance(base, _Beside):
        return _Beside(base.held, {**base.added, **more})
    return _Beside(base, more)


def _with(base: Base[str, Reference], more: Mapping[str, Reference]) -> Base[str, Reference]:
    """Return references with others added, none of which is to the same shard."""
    if len(base) + len(more) <= MOST_IN_A_DICT:
        return {**base, **more} if isinstance(base, dict) else {**dict(base.items()), **more}
    shared = base if isinstance(base, OverlayMap) else OverlayMap.of(dict(base.items()))
    return shared.update(more)


def _without(base: Base[str, Reference], gone: dict[str, Reference]) -> Base[str, Reference]:
    """Return references without some of them."""
    if len(base) - len(gone) <= MOST_IN_A_DICT or not isinstance(base, OverlayMap):
        return {shard: reference for shard, reference in base.items() if shard not in gone}
    return base.discard(*gone)


class NewShard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A shard to be added, with the number of rows that it has in each of some partitions."""

    shard: Shard
    rows_by_partition: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Job:
    """An assigned compaction: in one partition, these shards become new ones.

    `purge_id` names the purge that it removes rows for, `request_key` the request that asked for
    it, if any. It leaves out the rows that deletions up to the number `sequence` hide, which is
    that of the last commit before it. It `takes_all` if no other shard had rows of its keys then.
    """

    id: str
    partition: str
    inputs: tuple[str, ...]
    assigned_ms: int
    purge_id: str | None = None
    request_key: str | None = None
    sequence: int = 0
    takes_all: bool = False
