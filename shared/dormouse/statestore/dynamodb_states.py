"""A state made of its records, as a whole or one whose records are read when they are asked for.

Used by `dynamodb_snapshots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Generic, TypeVar

from rpds import HashTrieMap

from dormouse.errors import InvariantError
from dormouse.model.disputes import Dispute, RowsTaken
from dormouse.model.overlay_map import TOMBSTONE, OverlayMap
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.shards import PartitionReferences, Reference
from dormouse.model.state import TableState
from dormouse.statestore.codec import stored_types, types_of_stored
from dormouse.statestore.codec_sealed import Sealed, decode_sealed, encode_sealed
from dormouse.statestore.dynamodb_disputes import dispute_of, takings_of
from dormouse.statestore.dynamodb_records import (
    Kind,
    holding_of,
    jobs_of,
    partition_of,
    references_of,
    shard_of,
)
from dormouse.statestore.items import Values
from dormouse.stored.decoding import convert_plain, raise_corrupt

V = TypeVar("V")
Records = Mapping[str, Values]
Remembered = OverlayMap[str, int]


@dataclass(frozen=True, slots=True)
class Totals:
    """What the item of a version says of it.

    `holders` counts the partitions that have references, `taken` the shards of which jobs took some
    rows.
    """

    version: int
    time_ms: int
    generation: int
    rules: int
    key_types: tuple[str, ...]
    partitions: int
    shards: int
    unreferenced: int
    holders: int
    references: int
    rows: int
    taken: int
    disputed: int
    sealed: bytes

    @property
    def sealed_to(self) -> int:
        """The version up to which sources are in segments."""
        return self.sources_sealed().sealed_to

    def sources_sealed(self) -> Sealed:
        """Return what the state says of sealed sources. Raises CorruptDataError."""
        return decode_sealed(self.sealed, f"version {self.version}")

    @staticmethod
    def of(state: TableState) -> Totals:
        """Count what a state holds."""
        return Totals(
            version=state.version,
            time_ms=state.time_ms,
            generation=state.generation,
            rules=state.rules,
            key_types=stored_types(state.key_types),
            partitions=len(state.partitions),
            shards=len(state.shards),
            unreferenced=len(state.unreferenced),
            holders=len(state.references),
            references=state.reference_count,
            rows=state.rows,
            taken=len(state.taken),
            disputed=len(state.disputed),
            sealed=encode_sealed(state),
        )

    @staticmethod
    def of_values(values: Values) -> Totals:
        """Read them from the values of an item.

        Raises:
            CorruptDataError: they are not all there.
        """
        with raise_corrupt("the item of a version is not whole"):
            return convert_plain(dict(values), Totals)

    def values(self) -> Values:
        """Return the values of the version's item."""
        return asdict(self)


def whole_state(
    totals: Totals,
    records: Mapping[Kind, Records],
    sources: Remembered,
    transactions: Remembered,
) -> TableState:
    """Return the state of all its records."""
    shards = {name: shard_of(name, record) for name, record in records["shard"].items()}
    since = {n: s.unreferenced_ms for n, s in shards.items() if s.unreferenced_ms is not None}
    partitions = {name: partition_of(name, r) for name, r in records["partition"].items()}
    disputes = {name: dispute_of(name, record) for name, record in records["dispute"].items()}
    held: dict[str, list[Reference]] = {}
    for reference in references_of(records["reference"]):
        held.setdefault(reference.partition, []).append(reference)
    holdings = {partition: holding_of(references) for partition, references in held.items()}
    state = TableState(
        version=totals.version,
        time_ms=totals.time_ms,
        generation=totals.generation,
        rules=totals.rules,
        key_types=types_of_stored(totals.key_types),
        partitions=PartitionTree(OverlayMap(HashTrieMap(partitions))),
        shards=OverlayMap(HashTrieMap({name: kept.shard for name, kept in shards.items()})),
        references=OverlayMap(HashTrieMap(holdings)),
        rows=sum(holding.rows for holding in holdings.values()),
        reference_count=sum(map(len, holdings.values())),
        reference_counts=OverlayMap(HashTrieMap({n: s.references for n, s in shards.items()})),
        unreferenced=OverlayMap(HashTrieMap(since)),
        taken=OverlayMap(HashTrieMap(takings_of(records["taking"]))),
        disputed=OverlayMap(HashTrieMap(disputes)),
        jobs=HashTrieMap(jobs_of(records["job"])),
        sources=sources,
        transactions=transactions,
    )
    return _with_sealed(state, totals)


def lazy_state(
    totals: Totals,
    read: Callable[[Kind, str], Records],
    jobs: Records,
    sources: Remembered,
    transactions: Remembered,
) -> TableState:
    """Return a state that is read when it is asked for.

    `read` gives the record of a name or, of a partition, all records of its references and, of a
    shard, all its takings; it raises what reading raises. Nothing can be asked for that would take
    all records.
    """

    @cache
    def kept(name: str) -> Values | None:
        return read("shard", name).get(name)

    def holding(partition: str) -> PartitionReferences | None:
        held = holding_of(references_of(read("reference", partition)))
        return held or None

    def of_shard(value: Callable[[str, Values], V | None], size: int) -> OverlayMap[str, V]:
        return OverlayMap(
            LookUps(lambda name: None if (r := kept(name)) is None else value(name, r), size)
        )

    def takings(shard: str) -> tuple[RowsTaken, ...] | None:
        return takings_of(read("taking", shard)).get(shard)

    def dispute(shard: str) -> Dispute | None:
        record = read("dispute", shard).get(shard)
        return None if record is None else dispute_of(shard, record)

    def partition(name: str) -> Partition | None:
        record = read("partition", name).get(name)
        return None if record is None else partition_of(name, record)

    state = TableState(
        version=totals.version,
        time_ms=totals.time_ms,
        generation=totals.generation,
        rules=totals.rules,
        key_types=types_of_stored(totals.key_types),
        partitions=PartitionTree(OverlayMap(LookUps(partition, totals.partitions))),
        shards=of_shard(lambda name, r: shard_of(name, r).shard, totals.shards),
        references=OverlayMap(LookUps(holding, totals.holders)),
        rows=totals.rows,
        reference_count=totals.references,
        reference_counts=of_shard(lambda n, r: shard_of(n, r).references, totals.shards),
        unreferenced=of_shard(lambda n, r: shard_of(n, r).unreferenced_ms, totals.unreferenced),
        taken=OverlayMap(LookUps(takings, totals.taken)),
        disputed=OverlayMap(LookUps(dispute, totals.disputed)),
        jobs=HashTrieMap(jobs_of(jobs)),
        sources=sources,
        transactions=transactions,
    )
    return _with_sealed(state, totals)


def _with_sealed(state: TableState, totals: Totals) -> TableState:
    sealed = totals.sources_sealed()
    return replace(
        state,
        sealed_to=sealed.sealed_to,
        source_segments=sealed.segments,
        adopted_segments=sealed.adopted,
    )


def settled(state: TableState) -> TableState:
    """Return an equal state of which nothing is a change: what changes from here on is all there
    is.

    Costs as much as there are changes, for the bases are made of the bases before.
    """
    return replace(
        state,
        partitions=PartitionTree(_settled(state.partitions.by_id)),
        shards=_settled(state.shards),
        references=_settled(state.references, _settled_holding),
        reference_counts=_settled(state.reference_counts),
        unreferenced=_settled(state.unreferenced),
        taken=_settled(state.taken),
        disputed=_settled(state.disputed),
        sources=_settled(state.sources),
        transactions=_settled(state.transactions),
    )


def _settled(
    entries: OverlayMap[str, V], settle: Callable[[V], V] = lambda value: value
) -> OverlayMap[str, V]:
    base = entries.base
    if not isinstance(base, HashTrieMap):
        return entries
    for key, change in entries.changes.items():
        base = base.discard(key) if change is TOMBSTONE else base.insert(key, settle(change))
    return OverlayMap(base)


def _settled_holding(held: PartitionReferences) -> PartitionReferences:
    return replace(held, by_shard=_settled(held.by_shard))


class LookUps(Generic[V]):
    """A base (`model.overlay_map.Base`) of values found by name, each looked up once."""

    __slots__ = ("_find", "_size")

    def __init__(self, find: Callable[[str], V | None], size: int) -> None:
        """Find values by `find`; there are `size`."""
        self._find, self._size = cache(find), size

    def __len__(self) -> int:
        """Count the values."""
        return self._size

    def __contains__(self, key: object) -> bool:
        """Return whether there is a value of that name."""
        return isinstance(key, str) and self._find(key) is not None

    def get(self, key: str, /) -> V | None:
        """Return the value of a name; None if there is none."""
        return self._find(key)

    def __iter__(self) -> Iterator[str]:
        """Refuse: who needs all loads all."""
        raise InvariantError("a state that is read when asked for cannot be gone through")

    def items(self) -> Iterable[tuple[str, V]]:
        """Refuse: who needs all loads all."""
        raise InvariantError("a state that is read when asked for cannot be gone through")
