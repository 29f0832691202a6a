"""The packed form of a manifest: MessagePack, without names, with differences instead of versions.

The head is written once a page, and by maintenance. DynamoDB charges a write by the kilobyte, so
that the head should stay below one: packed, an entry takes 25 to 38 bytes, as a map of DynamoDB up
to twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.log.pages import Increment, IndexPlace, Manifest, Segment, Snapshot

FORMAT = 1

_Run = TypeVar("_Run", Snapshot, Increment)


class _Snapshot(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    id: bytes
    version: int
    time_ms: int
    size_bytes: int


class _Increment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """It follows the newest snapshot, or the increment before it, and has so many versions."""

    id: bytes
    versions: int
    time_ms: int
    size_bytes: int


class _Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """It follows the segment before it, and has so many versions."""

    id: bytes
    versions: int
    size_bytes: int
    restores: tuple[bytes, ...] = ()


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    size_bytes: int
    bytes_after: int


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A manifest without its revision; the segments follow version `segments_after`.

    Where the index lies is said of the newest snapshot and of the newest increment.
    """

    snapshots: tuple[_Snapshot, ...]
    increments: tuple[_Increment, ...]
    segments_after: int
    segments: tuple[_Segment, ...]
    snapshot_index: _Place | None
    increment_index: _Place | None


def packed_manifest(manifest: Manifest) -> bytes:
    """Return the packed form of all of a manifest but its revision."""
    snapshots = tuple(
        _Snapshot(bytes.fromhex(each.id), each.version, each.time_ms, each.size_bytes)
        for each in manifest.snapshots
    )
    increments = tuple(
        _Increment(bytes.fromhex(each.id), each.version - each.after, each.time_ms, each.size_bytes)
        for each in manifest.increments
    )
    segments = tuple(
        _Segment(
            bytes.fromhex(each.id),
            each.version - each.after,
            each.size_bytes,
            tuple(map(bytes.fromhex, each.restores)),
        )
        for each in manifest.segments
    )
    after = manifest.segments[0].after if manifest.segments else 0
    places = _place(manifest.snapshots), _place(manifest.increments)
    packed = _Packed(snapshots, increments, after, segments, *places)
    return bytes([FORMAT]) + msgspec.msgpack.encode(packed)


def _place(runs: Sequence[Snapshot] | Sequence[Increment]) -> _Place | None:
    place = runs[-1].index if runs else None
    return _Place(place.size_bytes, place.bytes_after) if place else None


def _with_place(run: _Run, place: _Place) -> _Run:
    return replace(run, index=IndexPlace(place.size_bytes, place.bytes_after))


def unpacked_manifest(body: bytes, revision: int) -> Manifest:
    """Return the manifest of a packed form.

    Raises:
        CorruptDataError: it is of a later version of Dormouse.
        ValueError, LookupError: it is not what `packed_manifest` makes.
    """
    if body[0] != FORMAT:
        raise CorruptDataError(
            f"the manifest is of format {body[0]}; the one known here is {FORMAT}",
            hint="it was written by a later version: upgrade this one",
        )
    packed = msgspec.msgpack.decode(body[1:], type=_Packed)
    snapshots = [
        Snapshot(each.id.hex(), each.version, each.time_ms, each.size_bytes)
        for each in packed.snapshots
    ]
    increments: list[Increment] = []
    after = snapshots[-1].version if snapshots else 0
    for made in packed.increments:
        version = after + made.versions
        increments.append(Increment(made.id.hex(), after, version, made.time_ms, made.size_bytes))
        after = version
    segments: list[Segment] = []
    after = packed.segments_after
    for each in packed.segments:
        restores = tuple(restored.hex() for restored in each.restores)
        version = after + each.versions
        segments.append(Segment(each.id.hex(), after, version, each.size_bytes, restores))
        after = version
    if packed.snapshot_index:
        snapshots[-1] = _with_place(snapshots[-1], packed.snapshot_index)
    if packed.increment_index:
        increments[-1] = _with_place(increments[-1], packed.increment_index)
    return Manifest(revision, tuple(snapshots), tuple(segments), tuple(increments))
