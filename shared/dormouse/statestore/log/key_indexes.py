"""Fetches the key indexes of a snapshot and of the increments after it, in one round.

Only those of two objects are fetched, of the snapshot and of the newest increment: that has the
indexes of the increments before it, too. What it lacks is fetched from each. The manifest says
where the two lie; of another
increment the end is fetched, which most likely has its index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from dormouse.errors import CorruptDataError
from dormouse.statestore.blobs import BlobRange
from dormouse.statestore.log.pages import Increment, IndexPlace, Manifest, Snapshot
from dormouse.statestore.log.reader import Reader

if TYPE_CHECKING:
    from dormouse.statestore.by_key.blocks import KeyIndex

Run: TypeAlias = Snapshot | Increment
"""What a manifest says of an object that has a key index."""


def runs_of(manifest: Manifest) -> list[Run]:
    """Return what a manifest says of the newest snapshot and of the increments after it."""
    return [*([manifest.newest] if manifest.newest else ()), *manifest.increments]


def name_of(run: Run) -> str:
    """Return the name of an object in errors."""
    return f"{'increment' if isinstance(run, Increment) else 'snapshot'} {run.id}"


def key_indexes(
    reader: Reader, runs: Sequence[Run], known: Mapping[str, KeyIndex]
) -> dict[str, KeyIndex] | None:
    """Return the index of each run by its id, in order; None if one has none that is known here.

    Those that are `known` are not fetched.

    Raises:
        CorruptDataError: one is damaged.
        MissingBlobError: a newer manifest has replaced the one that named them.
    """
    found = {run.id: known[run.id] for run in runs if run.id in known}
    ends = [run for run in runs if isinstance(run, Snapshot) or run == runs[-1]]
    for some in (ends, runs):
        fetched = _fetched(reader, [run for run in some if run.id not in found], runs)
        if fetched is None:
            return None
        found |= fetched
        found = {**found[runs[-1].id].earlier, **found} if runs else {}
    for run in runs:
        facts, after = found[run.id].facts, run.after if isinstance(run, Increment) else 0
        if (facts.after, facts.version) != (after, run.version):
            raise CorruptDataError(f"the key index of {name_of(run)} is of another version")
    return {run.id: found[run.id] for run in runs}


def index_place_of(body: bytes) -> IndexPlace | None:
    """Return where the index of a snapshot or increment lies; None if it has none."""
    from dormouse.statestore.by_key.blocks import index_place

    place = index_place(body)
    return place and IndexPlace(*place)


def _fetched(
    reader: Reader, wanted: Sequence[Run], runs: Sequence[Run]
) -> dict[str, KeyIndex] | None:
    """Return the indexes of some runs; None if one has none. The end of an object whose place of
    the index is not known is fetched again if it was too short.
    """
    from dormouse.statestore.by_key.blocks import bytes_needed, decode_key_index, without_footer

    found: dict[str, KeyIndex] = {}
    asked = [(run, _likely_end(run, runs)) for run in wanted]
    while asked:
        bodies = reader.ranges(reader.snapshots, [place for _, place in asked])
        answered, asked = zip(asked, bodies, strict=True), []
        for (run, place), body in answered:
            end = place.end
            if run.index is None:
                needed = bytes_needed(body)
                if needed is None or needed > run.size_bytes:
                    return None
                if needed > len(body):
                    asked.append((run, replace(place, start=run.size_bytes - needed)))
                    continue
                body = without_footer(body)
                end = place.start + len(body)
            with reader.damage_reported():
                index = decode_key_index(reader.log.table_id, body, end, name_of(run))
            if index is None:
                return None
            found[run.id] = index
    return found


def _likely_end(run: Run, runs: Sequence[Run]) -> BlobRange:
    """Return where the index of a run lies; if that is not known, an end that is long enough most
    likely.
    """
    from dormouse.statestore.by_key.blocks import tail_bytes

    size = run.size_bytes
    if run.index:
        end = size - run.index.bytes_after
        return BlobRange(run.id, size, end - run.index.size_bytes, end)
    before = sum(each.size_bytes for each in runs[:-1] if isinstance(each, Increment))
    return BlobRange(run.id, size, size - tail_bytes(size, before if run == runs[-1] else 0), size)
