"""Reads the part of the newest version that has a few keys, without the whole state.

The order of reads: the head; the indexes of the newest snapshot and of the increments after it, of
which only the ends are fetched; the blocks of the wanted keys; then what was committed since, from
segments and pages. So what is returned has every commit that ended before the read began, as the
log is read last. If one of these commits may concern the keys (`by_key.pending`), only the fold
knows whether it does, and that needs the state: then there is no part, and the state is loaded.

There is no part either of a small state, which takes fewer requests whole; of a state whose
snapshot has no key index; if the keys need many blocks; and after a process has read parts several
times: it will be asked for more, and the whole state in memory answers that by one small read.

Nothing is written, so a crash leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import KeyRange
from dormouse.model.part_of_state import PartOfState, shards_of
from dormouse.model.state import TableState
from dormouse.schema.key_types import KeyTypes, key_problem
from dormouse.state_store import REBUILD
from dormouse.statestore.blobs import BlobRange, MissingBlobError
from dormouse.statestore.delta.codec import Delta
from dormouse.statestore.delta.rows import types_of_stored
from dormouse.statestore.log.log import CollectedError
from dormouse.statestore.log.pages import Increment, Manifest, Snapshot
from dormouse.statestore.log.reader import Reader, check_rules
from dormouse.stored.decoding import raise_corrupt

if TYPE_CHECKING:
    from dormouse.statestore.by_key.blocks import KeyIndex
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
    """Reads parts of one table's state; safe for many threads."""

    reader: Reader
    _parts: int = 0
    _indexes: dict[str, KeyIndex] = field(default_factory=dict)

    def part(self, wanted: Sequence[KeyRange]) -> TableState | None:
        """Return the part of the newest version that has all rows of some ranges of keys; None if
        the whole state is to be loaded instead.

        Raises:
            CorruptDataError: what it is read from is damaged.
            NewerRulesError: a later release has raised the rules.
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
        from dormouse.statestore.by_key.pending import Concern

        manifest = self.reader.manifest()
        if manifest.newest is None or manifest.newest.size_bytes < LEAST_BYTES:
            raise _NoPartError
        runs: list[_Run] = [manifest.newest, *manifest.increments]
        indexes = self._indexes_of(runs)
        facts = indexes[-1].facts
        check_rules(facts.rules, facts.version)
        key_types = types_of_stored(facts.key_types)
        if not all(_fits(span, key_types) for span in wanted):
            raise _NoPartError  # the table is being reset to keys of other types
        known = self._known(runs, indexes, wanted)
        concern = Concern(known)
        version = facts.version
        for delta in self._since(manifest, version):
            version += 1
            if concern.is_raised_by(delta.entries):
                raise _NoPartError
        pieces = known.pieces()
        return PartOfState(
            version=version,
            time_ms=facts.time_ms,
            generation=facts.generation,
            rules=facts.rules,
            key_types=key_types,
            shards=shards_of(pieces),
            pieces=pieces,
            covers=wanted,
        )

    def _since(self, manifest: Manifest, version: int) -> Iterator[Delta]:
        """Yield the deltas after a version, in their order."""
        for delta in self.reader.from_segments(manifest.segments, version):
            version += 1
            yield delta
        yield from self.reader.from_pages(version)

    def _indexes_of(self, runs: Sequence[_Run]) -> list[KeyIndex]:
        """Return the indexes of a snapshot and of increments, those not known yet fetched."""
        from dormouse.statestore.by_key.blocks import bytes_needed, decode_key_index, tail_bytes

        known = dict(self._indexes)  # another thread may replace them meanwhile
        tails: dict[str, bytes] = {}
        lacking = {r.id: tail_bytes(r.size_bytes) for r in runs if r.id not in known}
        while lacking:
            asked = [run for run in runs if run.id in lacking]
            tails |= self._tails(asked, lacking)
            lacking = {}
            for run in asked:
                needed = bytes_needed(tails[run.id])
                if needed is None or needed > run.size_bytes:
                    raise _NoPartError
                if needed > len(tails[run.id]):
                    lacking[run.id] = needed
        for run in runs:
            if run.id in tails:
                with self._damage_reported():
                    found = decode_key_index(
                        self.reader.log.table_id, tails[run.id], run.size_bytes, _name(run)
                    )
                    self._check(run, found)
                known[run.id] = found
        self._indexes = {run.id: known[run.id] for run in runs}
        return [known[run.id] for run in runs]

    def _tails(self, runs: Sequence[_Run], sizes: Mapping[str, int]) -> dict[str, bytes]:
        ranges = [
            BlobRange(
                run.id, run.size_bytes, max(run.size_bytes - sizes[run.id], 0), run.size_bytes
            )
            for run in runs
        ]
        bodies = self.reader.snapshots.get_ranges(ranges)
        return {run.id: body for run, body in zip(runs, bodies, strict=True)}

    def _check(self, run: _Run, index: KeyIndex) -> None:
        after = run.after if isinstance(run, Increment) else 0
        if (index.facts.after, index.facts.version) != (after, run.version):
            raise CorruptDataError(f"the key index of {_name(run)} is of another version")

    def _known(
        self, runs: Sequence[_Run], indexes: Sequence[KeyIndex], wanted: tuple[KeyRange, ...]
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
        bodies = self.reader.snapshots.get_ranges(ranges)
        with self._damage_reported():
            found = [
                (run, index.rows(number, body, _name(run)))
                for (run, index, number), body in zip(places, bodies, strict=True)
            ]
            return known_part([[rows for of, rows in found if of == run] for run in runs], wanted)

    def _damage_reported(self) -> AbstractContextManager[None]:
        return raise_corrupt(
            f"the state of table {self.reader.log.table_id} is damaged", hint=REBUILD
        )


_Run: TypeAlias = Snapshot | Increment
"""What a manifest says of an object that has a key index."""


def _fits(wanted: KeyRange, key_types: KeyTypes) -> bool:
    """Return whether the ends of a range can be compared with keys of these types."""
    ends = (wanted.min, wanted.max or ())
    size = len(key_types)  # an end may go on with sort keys
    return not any(key_problem(end[:size], key_types, fewest_parts=0) for end in ends)


def _name(run: _Run) -> str:
    return f"{'increment' if isinstance(run, Increment) else 'snapshot'} {run.id}"
