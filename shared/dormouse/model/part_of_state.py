"""The part of a version of a table that a reader of some keys needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rpds import HashTrieMap

from dormouse.errors import InvariantError
from dormouse.keys.ranges import KeyRange
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of keys within one partition, and the shards that can hold rows in it.

    `rows` are the rows of each shard in its partition, as far as they are known; else there are
    none, and those of the whole shard are taken for them.
    """

    range: KeyRange
    shards: tuple[Shard, ...]
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartOfState(TableState):
    """The part of a version that pieces are: it can be read, and has no tree and no jobs.

    `covers` are the ranges of keys of which the pieces are all there is; None says nothing of that.
    """

    pieces: tuple[Piece, ...] = ()
    covers: tuple[KeyRange, ...] | None = None

    def partitions_to_read(self, wanted: KeyRange) -> Iterator[tuple[KeyRange, list[Reference]]]:
        """Yield, in key order, the ranges of pieces within `wanted`, with the references there.

        Raises:
            InvariantError: this part does not cover it.
        """
        if self.covers is not None and not any(span.covers(wanted) for span in self.covers):
            raise InvariantError(f"a part of version {self.version} is asked for what it lacks")
        for piece in self.pieces:
            span = piece.range.intersection(wanted)
            counts = piece.rows or [shard.rows for shard in piece.shards]
            found = [
                Reference("", shard.id, rows, exact=False)
                for shard, rows in zip(piece.shards, counts, strict=True)
                if span.overlaps_span(shard.min_key, shard.max_key)
            ]
            if found and not span.is_empty():
                yield span, found


def part_of_state(pieces: Sequence[Piece], version: int) -> PartOfState:
    """Return the part of a version that consecutive pieces are."""
    return PartOfState(version=version, shards=shards_of(pieces), pieces=tuple(pieces))


def shards_of(pieces: Sequence[Piece]) -> OverlayMap[str, Shard]:
    """Return the shards of pieces by id."""
    return OverlayMap(HashTrieMap({s.id: s for piece in pieces for s in piece.shards}))
