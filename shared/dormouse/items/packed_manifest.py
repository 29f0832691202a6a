"""The packed form of a manifest: MessagePack, without names, with differences instead of versions.

The head is written once a page, and by maintenance. DynamoDB charges a write by the kilobyte, so
that the head should stay below one: packed, an entry takes 25 to 38 bytes, as a map of DynamoDB up
to twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.log.pages import Increment, IndexPlace, Manifest, Segment, Snapshot

FORMAT = 1

_Run = tuple[bytes, int, int, int]
"""Id, version, time and bytes of a snapshot; or of an increment, which instead says how many
versions it has: it follows the newest snapshot, or the increment before it."""
_Segment = tuple[bytes, int, int, tuple[bytes, ...]]
"""Id, versions and bytes of a segment, which follows the one before it, and what it restores."""
_Place = tuple[int, int]
_Packed = tuple[
    tuple[_Run, ...], tuple[_Run, ...], int, tuple[_Segment, ...], _Place | None, _Place | None
]
"""Snapshots, increments, the version that the segments follow, segments; and where the index lies
of the newest snapshot, and of the newest increment."""


def packed_manifest(manifest: Manifest) -> bytes:
    """Return the packed form of all of a manifest but its revision."""
    packed: _Packed = (
        tuple((_id(s.id), s.version, s.time_ms, s.size_bytes) for s in manifest.snapshots),
        tuple(
            (_id(i.id), i.version - i.after, i.time_ms, i.size_bytes) for i in manifest.increments
        ),
        manifest.segments[0].after if manifest.segments else 0,
        tuple(
            (_id(s.id), s.version - s.after, s.size_bytes, tuple(map(_id, s.restores)))
            for s in manifest.segments
        ),
        _place(manifest.snapshots[-1:]),
        _place(manifest.increments[-1:]),
    )
    return bytes([FORMAT]) + msgspec.msgpack.encode(packed)


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
    snapshots, increments, after, segments, *places = msgspec.msgpack.decode(body[1:], type=_Packed)
    indexes = [IndexPlace(*place) if place else None for place in places]
    made: list[Snapshot] = []
    for number, (id_, version, time_ms, size_bytes) in enumerate(snapshots, 1):
        index = _last(number, snapshots, indexes[0])
        made.append(Snapshot(id_.hex(), version, time_ms, size_bytes, index))
    follows = made[-1].version if made else 0
    grown: list[Increment] = []
    for number, (id_, versions, time_ms, size_bytes) in enumerate(increments, 1):
        index, end = _last(number, increments, indexes[1]), follows + versions
        grown.append(Increment(id_.hex(), follows, end, time_ms, size_bytes, index))
        follows = end
    cut: list[Segment] = []
    for id_, versions, size_bytes, restores in segments:
        end, names = after + versions, tuple(each.hex() for each in restores)
        cut.append(Segment(id_.hex(), after, end, size_bytes, names))
        after = end
    if (indexes[0] and not made) or (indexes[1] and not grown):
        raise ValueError("an index of nothing")
    return Manifest(revision, tuple(made), tuple(cut), tuple(grown))


def _last(number: int, runs: Sequence[_Run], index: IndexPlace | None) -> IndexPlace | None:
    return index if number == len(runs) else None


def _place(newest: Sequence[Snapshot] | Sequence[Increment]) -> _Place | None:
    index = newest[0].index if newest else None
    return (index.size_bytes, index.bytes_after) if index else None


def _id(text: str) -> bytes:
    return bytes.fromhex(text)
