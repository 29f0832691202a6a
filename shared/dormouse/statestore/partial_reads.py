"""Reads the part of the newest version that has a few keys, without the whole state.

There are three rounds of requests. A round is what is asked for at once:

1. the head;
2. the indexes of the newest snapshot and of the increments after it, of which only the ends are
   fetched; the segments since; the open page of the log;
3. the blocks of the wanted keys; the deltas of the page.

What is returned has every commit that ended before the read began. The head is read first and says
up to which version snapshot, increments and segments go. They never change, so it does not matter
when they are read. What follows that version is in pages, which are read after the head. If
maintenance moves any of it meanwhile, something is missing, and there is no part.

If one of the commits since may concern the keys (`Concern`), only the fold knows whether it
does, and that needs the state: then there is no part either, and the state is loaded.

Nor is there one of a small state, which takes fewer requests whole; of a state whose
snapshot has no key index; if the keys need many blocks; and after a process has read parts several
times: it will be asked for more, and the whole state in memory answers that by one small read.

Nothing is written, so a crash leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dormouse.keys.ranges import KeyRange
from dormouse.model.state import PartOfState, TableState, shards_of
from dormouse.schema.key_types import KeyTypes, key_problem
from dormouse.statestore.blobs import BlobRange, MissingBlobError
from dormouse.statestore.deltas import Delta
from dormouse.statestore.log.key_indexes import Run, key_indexes, name_of, runs_of
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import Manifest
from dormouse.statestore.log.reader import Reader
from dormouse.statestore.overlap import Overlap, in_turn

if TYPE_CHECKING:
    from dormouse.statestore.by_key.blocks import Facts, KeyIndex
    from dormouse.statestore.by_key.merging import KnownPart

LEAST_BYTES = 1024 * 1024
"""A state of a smaller snapshot is read whole."""
MOST_BLOCKS = 16
"""So many blocks, of each snapshot or increment, are read for one part at most."""
MOST_BYTES = 512 * 1024
"""So many bytes of blocks are read for one part at most: blocks of a leaf with many shards are
large, and what they say is looked through row by row.
"""
MOST_RANGES = 32
"""A reader of more ranges of keys loads the state: each is compared with all rows of its blocks."""
MOST_PARTS = 8
"""So many parts a process reads before it loads the state."""


class _NoPartError(Exception):
    """There is no part to be read: load the state."""


@dataclass
class PartialReads:
    """Reads parts of one table's state; safe for many threads.

    `overlap` asks for the things of a round at once, or in turn.
    """

    reader: Reader
    overlap: Overlap = in_turn
    _parts: int = 0
    _indexes: dict[str, KeyIndex] = field(default_factory=dict)

    def part(self, wanted: Sequence[KeyRange]) -> TableState | None:
        """Return the part of the newest version that has all rows of some ranges of keys; None if
        the whole state is to be loaded instead.

        Raises:
            CorruptDataError: what it is read from is damaged.
            NotFoundError: the table was destroyed.
        """
        if self._parts >= MOST_PARTS or not 0 < len(wanted) <= MOST_RANGES or KeyRange() in wanted:
            return None
        self._parts += 1
        try:
            return self._part(tuple(wanted))
        except (_NoPartError, CollectedError, MissingBlobError):
            return None  # what is missing, and should not be, the load of the whole state reports

    def _part(self, wanted: tuple[KeyRange, ...]) -> TableState:
        from dormouse.statestore.by_key.merging import Concern

        manifest = self.reader.manifest()
        if manifest.newest is None or manifest.newest.size_bytes < LEAST_BYTES:
            raise _NoPartError
        since: list[Delta] = []
        facts, known = self.overlap(
            lambda: self._kept(manifest, wanted), lambda: since.extend(self._since(manifest))
        )
        concern = Concern(known)
        if any(concern.is_raised_by(delta.entries) for delta in since):
            raise _NoPartError
        pieces = known.pieces()
        return PartOfState(
            version=facts.version + len(since),
            time_ms=facts.time_ms,
            generation=facts.generation,
            key_types=facts.key_types,
            shards=shards_of(pieces),
            pieces=pieces,
            covers=wanted,
        )

    def _since(self, manifest: Manifest) -> list[Delta]:
        """Return the deltas after what a manifest's snapshot and increments have, in order."""
        version = manifest.cuts[-1]
        in_segments: list[Delta] = []
        end = max(version, manifest.segments[-1].version if manifest.segments else 0)
        in_pages = self.overlap(
            lambda: [*self.reader.from_pages(end)],
            lambda: in_segments.extend(self.reader.from_segments(manifest.segments, version)),
        )
        return in_segments + in_pages

    def _kept(self, manifest: Manifest, wanted: tuple[KeyRange, ...]) -> tuple[Facts, KnownPart]:
        """Return what a manifest's snapshot and increments say of some keys, and of the state."""
        indexes = [*self._indexes_of(manifest).values()]
        facts = indexes[-1].facts
        if not all(_fits(span, facts.key_types) for span in wanted):
            raise _NoPartError  # the table is being reset to keys of other types
        return facts, self._known(runs_of(manifest), indexes, wanted)

    def _indexes_of(self, manifest: Manifest) -> dict[str, KeyIndex]:
        """Return the indexes of the newest snapshot and its increments, as far as not known yet."""
        known = dict(self._indexes)  # another thread may replace them meanwhile
        found = key_indexes(self.reader, runs_of(manifest), known)
        if found is None:
            raise _NoPartError
        self._indexes = found
        return found

    def _known(
        self, runs: Sequence[Run], indexes: Sequence[KeyIndex], wanted: tuple[KeyRange, ...]
    ) -> KnownPart:
        """Return what the blocks of some keys say."""
        from dormouse.statestore.by_key.merging import known_part

        numbers = [index.blocks(wanted) for index in indexes]
        if max(map(len, numbers)) > MOST_BLOCKS:
            raise _NoPartError
        places = [
            (run, index, number)
            for run, index, of in zip(runs, indexes, numbers, strict=True)
            for number in of
        ]
        ranges = [
            BlobRange(run.id, run.size_bytes, *index.place(number)) for run, index, number in places
        ]
        if sum(each.end - each.start for each in ranges) > MOST_BYTES:
            raise _NoPartError
        bodies = self.reader.ranges(self.reader.snapshots, ranges)
        with self.reader.damage_reported():
            found = [
                (run, index.rows(number, body, name_of(run)))
                for (run, index, number), body in zip(places, bodies, strict=True)
            ]
            return known_part([[rows for of, rows in found if of == run] for run in runs], wanted)


def _fits(wanted: KeyRange, key_types: KeyTypes) -> bool:
    """Return whether the ends of a range can be compared with keys of these types."""
    ends = (wanted.min, wanted.max or ())
    size = len(key_types)  # an end may go on with sort keys
    return not any(key_problem(end[:size], key_types, fewest_parts=0) for end in ends)
