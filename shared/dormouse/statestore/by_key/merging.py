"""Rows of a snapshot, and of the increments after it, as the part of a state that they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.part_of_state import Piece
from dormouse.model.partitions import partition_id_of
from dormouse.model.shards import Shard


@dataclass(frozen=True, slots=True)
class _Held:
    """A reference: its partition, and the shard of which `rows` rows are there."""

    partition: str
    span: KeyRange
    shard: Shard
    rows: int


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What is known of some ranges of keys: all leaves there, and all references.

    `partitions` are the ids of all partitions that overlap them, and of some that did before.
    """

    wanted: tuple[KeyRange, ...]
    partitions: frozenset[str]
    leaves: tuple[tuple[str, KeyRange], ...]
    held: tuple[_Held, ...]

    def pieces(self) -> tuple[Piece, ...]:
        """Return the leaves in key order with their shards, in the order of
        `TableState.partitions_to_read`.
        """
        return tuple(self._piece(*leaf) for leaf in self.leaves)

    def _piece(self, leaf: str, span: KeyRange) -> Piece:
        own = sorted((h for h in self.held if h.partition == leaf), key=_by_shard)
        above = sorted(
            (h for h in self.held if h.partition != leaf and h.span.covers(span)), key=_by_shard
        )
        # Those above a leaf lie within one another: the nearest begins last and ends first.
        above.sort(key=lambda h: (h.span.max is None, h.span.max or ()))
        above.sort(key=lambda h: h.span.min, reverse=True)
        found = (*own, *above)
        return Piece(span, tuple(h.shard for h in found), tuple(h.rows for h in found))


def known_part(runs: Iterable[Sequence[pa.Table]], wanted: Sequence[KeyRange]) -> KnownPart:
    """Return what rows say of some ranges: those of a snapshot, then of each increment after it.

    Each run has all rows of the partitions that overlap `wanted`. What a later one says of a
    partition or reference counts.

    Raises:
        ValueError, TypeError: the rows are not what this release writes.
    """
    is_leaf: dict[str, tuple[bool, KeyRange]] = {}
    held: dict[tuple[str, str], _Held | None] = {}
    partitions: set[str] = set()
    for run in runs:
        for rows in run:
            for row in rows.filter(_overlapping(rows, wanted)).to_pylist():
                span = _span(row["low"], row["high"])
                if not any(span.overlaps(each) for each in wanted):
                    continue
                name = partition_id_of(span)
                partitions.add(name)
                if row["shard"] is None:
                    is_leaf[name] = row["is_leaf"], span
                elif row["gone"]:
                    held[name, row["shard"]] = None
                else:
                    held[name, row["shard"]] = _Held(name, span, _shard(row), row["rows"])
    leaves = [(name, span) for name, (leaf, span) in is_leaf.items() if leaf]
    leaves.sort(key=lambda leaf: leaf[1].min)
    there = tuple(each for each in held.values() if each is not None)
    return KnownPart(tuple(wanted), frozenset(partitions), tuple(leaves), there)


def _by_shard(held: _Held) -> str:
    return held.shard.id


def _shard(row: dict[str, object]) -> Shard:
    size = row["shard_rows"], row["size_bytes"]
    return Shard(row["shard"], *size, decode_key(row["min_key"]), decode_key(row["max_key"]))  # type: ignore[arg-type]  # as the schema says


def _span(low: bytes, high: bytes | None) -> KeyRange:
    return KeyRange(decode_key(low), None if high is None else decode_key(high))


def _overlapping(rows: pa.Table, wanted: Sequence[KeyRange]) -> pa.Array[Any]:
    """Return which rows may overlap ranges, in the stored form of keys, which is in their order."""
    low, high = rows["low"].combine_chunks(), rows["high"].combine_chunks()
    found: pa.Array[Any] = pa.repeat(pa.scalar(False), len(rows))
    for span in wanted:
        ends: Any = pc.greater_equal(high, pa.scalar(encode_key(span.min)))
        overlaps = pc.fill_null(ends, pa.scalar(True))
        if span.max is not None:
            begins = pc.less_equal(low, pa.scalar(encode_key(span.max)))
            overlaps = pc.and_(overlaps, begins)
        found = pc.or_(found, overlaps)
    return found
