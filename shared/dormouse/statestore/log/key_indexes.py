"""Fetches the key indexes of a snapshot and of the increments after it, in one round.

Only the ends of two objects are fetched, those of the snapshot and of the newest increment: that
has the indexes of the increments before it, too. What it lacks is fetched from each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dormouse.errors import CorruptDataError
from dormouse.statestore.blobs import BlobRange
from dormouse.statestore.log.pages import Increment, Manifest, Snapshot
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


def _fetched(
    reader: Reader, wanted: Sequence[Run], runs: Sequence[Run]
) -> dict[str, KeyIndex] | None:
    from dormouse.statestore.by_key.blocks import bytes_needed, decode_key_index, tail_bytes

    tails: dict[str, bytes] = {}
    before = sum(run.size_bytes for run in runs[:-1] if isinstance(run, Increment))
    lacking = {
        run.id: tail_bytes(run.size_bytes, before if run == runs[-1] else 0) for run in wanted
    }
    while lacking:
        asked = [run for run in wanted if run.id in lacking]
        tails |= _tails(reader, asked, lacking)
        lacking = {}
        for run in asked:
            needed = bytes_needed(tails[run.id])
            if needed is None or needed > run.size_bytes:
                return None
            if needed > len(tails[run.id]):
                lacking[run.id] = needed
    table_id = reader.log.table_id
    with reader.damage_reported():
        return {
            run.id: decode_key_index(table_id, tails[run.id], run.size_bytes, name_of(run))
            for run in wanted
        }


def _tails(reader: Reader, runs: Sequence[Run], sizes: Mapping[str, int]) -> dict[str, bytes]:
    ranges = [
        BlobRange(run.id, run.size_bytes, max(run.size_bytes - sizes[run.id], 0), run.size_bytes)
        for run in runs
    ]
    bodies = reader.snapshots.get_ranges(ranges)
    return {run.id: body for run, body in zip(runs, bodies, strict=True)}
