"""Pieces of a version of a table: ranges with their shards, grouped into tasks of limited size.

Exports and queries that are too large for one function are cut into such tasks, each of consecutive
leaf partitions: what the tasks return, one after the other, is in key order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import Shard
from dormouse.model.state import Piece, TableState
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored

FORMAT = 1
MAX_TASK_BYTES = 256 * 1024 * 1024
"""About how many bytes of shards a task reads at most, unless a single partition has more."""
MAX_TASK_SHARDS = 1000
"""The most shards that a task reads, summed over partitions, unless one partition has more."""


def plan_tasks(
    state: TableState,
    ranges: Iterable[KeyRange],
    *,
    task_bytes: int = MAX_TASK_BYTES,
    task_shards: int = MAX_TASK_SHARDS,
) -> Iterator[tuple[Piece, ...]]:
    """Group the partitions of disjoint ascending ranges into tasks, in key order.

    A partition is never divided: a task ends before the piece that would exceed a limit. With
    `task_bytes=100` and pieces of 60, 30, 50 and 200 bytes, the tasks have 60 + 30, 50, and 200.
    """
    task: list[Piece] = []
    size_bytes = slices = 0
    for piece, piece_bytes in _pieces(state, ranges):
        is_full = size_bytes + piece_bytes > task_bytes or slices + len(piece.shards) > task_shards
        if task and is_full:
            yield tuple(task)
            task, size_bytes, slices = [], 0, 0
        task.append(piece)
        size_bytes += piece_bytes
        slices += len(piece.shards)
    if task:
        yield tuple(task)


def bytes_to_read(state: TableState, ranges: Iterable[KeyRange]) -> int:
    """Estimate how many bytes of shards lie in disjoint ascending ranges."""
    return sum(piece_bytes for _, piece_bytes in _pieces(state, ranges))


def _pieces(state: TableState, ranges: Iterable[KeyRange]) -> Iterator[tuple[Piece, int]]:
    """Yield the pieces of ranges, each with an estimate of the bytes to read.

    A shard of several partitions counts in each by the share of its rows there.
    """
    for wanted in ranges:
        for span, references in state.partitions_to_read(wanted):
            shards = tuple(state.shards[reference.shard] for reference in references)
            size_bytes = sum(
                shard.size_bytes * min(reference.rows, shard.rows) // shard.rows
                for shard, reference in zip(shards, references, strict=True)
            )
            yield Piece(span, shards), size_bytes


_StoredShard = tuple[str, int, int, str, str]


class _StoredPieces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a task: each shard once; pieces refer to shards by position."""

    shards: tuple[_StoredShard, ...]
    pieces: tuple[tuple[tuple[str, str | None], tuple[int, ...]], ...]


def encode_pieces(pieces: Sequence[Piece], kind: str, path: str) -> bytes:
    """Return the stored form of the pieces of one task, an object of this kind for `path`."""
    numbers: dict[str, int] = {}
    shards: list[_StoredShard] = []
    for piece in pieces:
        for shard in piece.shards:
            if shard.id not in numbers:
                numbers[shard.id] = len(shards)
                shards.append(_stored_shard(shard))
    stored = (
        (_stored_range(piece.range), tuple(numbers[shard.id] for shard in piece.shards))
        for piece in pieces
    )
    return encode_stored(kind, FORMAT, path, _StoredPieces(tuple(shards), tuple(stored)))


def decode_pieces(stored: bytes, kind: str, path: str) -> tuple[Piece, ...]:
    """Parse the result of `encode_pieces`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is of another kind.
    """
    with raise_corrupt(
        f"{path} is not {kind}", hint="what it is a part of has failed: request it again"
    ):
        body = decode_stored(kind, FORMAT, path, stored, _StoredPieces)
        shards = [_shard(shard) for shard in body.shards]
        return tuple(
            Piece(_range(wanted), tuple(shards[number] for number in numbers))
            for wanted, numbers in body.pieces
        )


def _stored_range(wanted: KeyRange) -> tuple[str, str | None]:
    return wanted.low.hex(), None if wanted.high is None else wanted.high.hex()


def _range(stored: tuple[str, str | None]) -> KeyRange:
    low, high = stored
    return KeyRange.between(bytes.fromhex(low), None if high is None else bytes.fromhex(high))


def _stored_shard(shard: Shard) -> _StoredShard:
    return shard.id, shard.rows, shard.size_bytes, shard.low.hex(), shard.high.hex()


def _shard(stored: _StoredShard) -> Shard:
    shard_id, rows, size_bytes, low, high = stored
    return Shard(shard_id, rows, size_bytes, bytes.fromhex(low), bytes.fromhex(high))
