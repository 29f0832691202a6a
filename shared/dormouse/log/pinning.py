"""Pins a version of a table, so that its state and its shards stay until it is unpinned.

Order of writes: the snapshot of the version; the pin, not yet confirmed; a look at whether the
version is still whole; the confirmation. Two collectors delete what a version needs, and each reads
the pins after it has fixed its candidates and before it deletes any of them:

- The state's (`log.compaction`) raises the low-water mark, then reads the pins, then deletes
  snapshots below the mark that no pin names. If it read the pins before this one was put, the mark
  was raised before, too: the look finds the snapshot below the mark, and refuses.
- The shards' (`features.garbage`) takes the shards whose delay is over, then reads the pins, then
  deletes those that no pin holds. If it read the pins before this one was put, the delay of the
  shards that it deletes was over before, too. The look refuses a version of which a shard is gone
  from the state, or is unreferenced and its delay is over, or will be within `CLOCK_MARGIN_MS`. A
  shard that is still referenced cannot have been a candidate. The same holds of orphans: they are
  not in the state. A shard that another pin holds passes, however long its delay is over, if that
  pin is confirmed and there at the look: a collector that read the pins before this one was put
  saw that one, or is refuted by its confirmation.

A restore pins its version, references its shards again, and removes the pin. A collector that
chose some of them before may read the pins after that: so it reads the state once more after the
pins, and deletes only what has been without references ever since it chose.

So a confirmed pin names a version that is whole, and a pin holds its version until it is deleted.
Clocks may differ by less than the margin.

What a crash leaves: after the snapshot, a blob that nothing names, which is collected. After the
pin, one that is not confirmed; it is not shown, the next attempt of its owner confirms it, and it
is removed once it has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dormouse.errors import ContendedError, CorruptDataError, NotFoundError
from dormouse.items.records import ItemPins
from dormouse.keys import KeyRange
from dormouse.log.blobs import BlobRange, Delta, MissingBlobError, Overlap, in_turn
from dormouse.log.log import CollectedError, Reader
from dormouse.log.pages import LOWEST_ID, Manifest, Snapshot, not_below
from dormouse.log.tail import Run, key_indexes, name_of, runs_of
from dormouse.schema.schema import KeyTypes, key_problem
from dormouse.state.state import PartOfState, TableState, shards_of, without_expired
from dormouse.state.versions import Pin, PinOwner
from dormouse.system import Clock, Ids

if TYPE_CHECKING:
    from dormouse.log.key_index import IndexFacts, KeyIndex, KnownPart


CLOCK_MARGIN_MS = 60 * 1000
"""How far the clocks of two processes may differ."""
STATES_KEPT = 4
"""How many pinned versions a process caches."""


@dataclass(frozen=True, slots=True)
class Pinning:
    """The pins of one table. Every method may raise UnavailableError or OutcomeUnknownError.

    `keep_ms` is the delay of garbage collection; `attempt_ms` is how long an attempt may take.
    """

    reader: Reader
    clock: Clock
    ids: Ids
    keep_ms: int
    attempt_ms: int
    current: Callable[[], TableState]
    _states: dict[str, TableState] = field(default_factory=dict)

    def add(self, owner: PinOwner, state: TableState, *, expires_ms: int | None = None) -> Pin:
        """Pin the version of `state`; return the pin once the version is known to be whole.

        An owner that has a pin keeps it, and it is returned, whatever its version.

        Raises:
            NotFoundError: shards of that version are deleted, or may be at any moment.
            ContendedError: it took too long; nothing is pinned.
        """
        pins, table_id = self._stored, self.reader.log.table_id
        there = next((pin for pin in pins.all(table_id) if pin.owner == owner), None)
        if there is None or there.is_expired(self.clock.now_ms()):
            if there is not None:
                pins.delete(table_id, owner, only=there)
            there = pins.put(table_id, self._made(owner, state, expires_ms))
        return there if there.is_confirmed else self._confirmed(there, expires_ms)

    def remove(self, owner: PinOwner) -> bool:
        """Delete the pin of an owner; return whether there was one."""
        return self._stored.delete(self.reader.log.table_id, owner)

    def all(self, *, expired: bool = False) -> list[Pin]:
        """Return the confirmed pins, by owner; with `expired`, those that have expired, too.
        Raises CorruptDataError: one is damaged.
        """
        now_ms = self.clock.now_ms()
        pins = self._stored.all(self.reader.log.table_id)
        return [p for p in pins if p.is_confirmed and (expired or not p.is_expired(now_ms))]

    def state(self, pin: Pin) -> TableState:
        """Return the pinned version.

        Raises:
            NotFoundError: the pin was removed.
            CorruptDataError: its snapshot is lost or damaged.
        """
        state = self._states.get(pin.snapshot_id)
        if state is None:
            state = self._read(pin)
            while len(self._states) >= STATES_KEPT:
                self._states.pop(next(iter(self._states)), None)
            self._states[pin.snapshot_id] = state
        return state

    def states(self) -> Iterator[TableState]:
        """Yield every pinned version, as `held` does."""
        return (state for _, state in self.held())

    def held(self) -> Iterator[tuple[Pin, TableState]]:
        """Yield every pinned version with its pin, also if that is not confirmed or has expired.

        One whose snapshot is gone can never be confirmed, and holds nothing.
        """
        for pin in self._stored.all(self.reader.log.table_id):
            try:
                yield pin, self.state(pin)
            except NotFoundError:
                continue

    def remove_expired(self) -> None:
        """Delete the pins that have expired, unless they are confirmed meanwhile."""
        table_id, now_ms = self.reader.log.table_id, self.clock.now_ms()
        for pin in self._stored.all(table_id):
            if pin.is_expired(now_ms):
                self._stored.delete(table_id, pin.owner, only=pin)

    @property
    def _stored(self) -> ItemPins:
        return self.reader.log.pages.pins

    def _made(self, owner: PinOwner, state: TableState, expires_ms: int | None) -> Pin:
        """Store a snapshot of the version; return the pin of it, which is to be confirmed."""
        from dormouse.log.snapshot import encode_snapshot  # it imports Arrow

        head, table_id = self.reader.log.head(), self.reader.log.table_id
        snapshot_id = not_below(head.low_water_mark if head else LOWEST_ID, self.ids.new())
        body = encode_snapshot(table_id, without_expired(state))
        self.reader.snapshots.put(snapshot_id, body)
        now_ms = self.clock.now_ms()
        return Pin(
            owner,
            state.version,
            state.time_ms,
            state.generation,
            state.rows,
            snapshot_id,
            len(body),
            pinned_ms=now_ms,
            expires_ms=now_ms + self.attempt_ms,
        )

    def _confirmed(self, pin: Pin, expires_ms: int | None) -> Pin:
        """Confirm a stored pin, or delete it and say why it cannot be."""
        table_id = self.reader.log.table_id
        try:
            self._check_whole(pin)
        except (NotFoundError, ContendedError):
            self._stored.delete(table_id, pin.owner, only=pin)
            raise
        confirmed = replace(pin, is_confirmed=True, expires_ms=expires_ms)
        if self._stored.replace(table_id, pin, confirmed):
            return confirmed
        for other in self._stored.all(table_id):
            if other.owner == pin.owner and other.is_confirmed:
                return other  # another process was quicker
        raise ContendedError(
            f"the pin {pin.owner.key} of {self.reader.log.title} was removed before "
            "it was confirmed",
            hint="nothing is pinned; try again",
        )

    def _check_whole(self, pin: Pin) -> None:
        """Check that no collector that did not see the stored pin deletes what it needs.

        Raises:
            ContendedError: the snapshot was stored too long ago.
            NotFoundError: a shard is deleted, or may be at any moment; or the table was deleted.
        """
        head = self.reader.log.head()
        if head is None or head.low_water_mark > pin.snapshot_id:
            raise ContendedError(
                f"to pin version {pin.version} of {self.reader.log.title} took too long",
                hint="nothing is pinned; try again",
            )
        state, now = self.state(pin), self.current()
        until_ms = self.clock.now_ms() + CLOCK_MARGIN_MS - self.keep_ms
        shards = [shard for shard, references in state.reference_counts.items() if references]
        missing = [shard for shard in shards if shard not in now.shards]
        due = [shard for shard in shards if now.unreferenced.get(shard, until_ms + 1) <= until_ms]
        if due and not missing:
            missing = self._unheld(due, pin)
        if missing:
            raise NotFoundError(
                f"version {pin.version} of {self.reader.log.title} cannot be pinned any more: "
                f"shard {missing[0]} is deleted, or may be at any moment",
                hint="pin a later version; a longer gc_delay_seconds keeps versions longer",
            )

    def _unheld(self, shards: list[str], pin: Pin) -> list[str]:
        """Return the shards that no confirmed pin of another owner holds."""
        for other in self._stored.all(self.reader.log.table_id):
            if other.is_confirmed and other.owner != pin.owner and shards:
                counts = self.state(other).reference_counts
                shards = [shard for shard in shards if not counts.get(shard, 0)]
        return shards

    def _read(self, pin: Pin) -> TableState:
        snapshot = Snapshot(pin.snapshot_id, pin.version, pin.time_ms, pin.size_bytes)
        try:
            return self.reader.snapshot(snapshot)
        except CollectedError:
            there = self._stored.all(self.reader.log.table_id)
            if any(one.snapshot_id == pin.snapshot_id and one.is_confirmed for one in there):
                raise CorruptDataError(
                    f"the snapshot of pin {pin.owner.key} of {self.reader.log.title} is lost",
                    hint="bring it back from an older object version, or remove the tag",
                ) from None
            raise NotFoundError(
                f"version {pin.version} of {self.reader.log.title} is not pinned any more"
            ) from None


# Reads the part of the newest version that has a few keys, without the whole state.
#
# There are three rounds of requests. A round is what is asked for at once:
#
# 1. the head;
# 2. the indexes of the newest snapshot and of the increments after it, of which only the ends are
#    fetched; the segments since; the open page of the log;
# 3. the blocks of the wanted keys; the deltas of the page.
#
# What is returned has every commit that ended before the read began. The head is read first and
# says up to which version snapshot, increments and segments go. They never change, so it does not
# matter when they are read. What follows that version is in pages, which are read after the head.
# If maintenance moves any of it meanwhile, something is missing, and there is no part.
#
# If one of the commits since may concern the keys (`Concern`), only the fold knows whether it
# does, and that needs the state: then there is no part either, and the state is loaded.
#
# Nor is there one of a small state, which takes fewer requests whole; of a state whose snapshot has
# no key index; if the keys need many blocks; and after a process has read parts several times: it
# will be asked for more, and the whole state in memory answers that by one small read.
#
# Nothing is written, so a crash leaves nothing.

LEAST_BYTES = 1024 * 1024
"""A state of a smaller snapshot is read whole."""
MOST_BLOCKS = 16
"""So many blocks, of each snapshot or increment, are read for one part at most."""
MOST_BYTES = 512 * 1024
"""So many bytes of blocks are read for one part at most: blocks of a leaf with many shards are
large, and what they say is looked through row by row."""
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

    def part(self, ranges: Sequence[KeyRange]) -> TableState | None:
        """Return the part of the newest version that has all rows of some ranges of keys; None if
        the whole state is to be loaded instead.

        Raises:
            CorruptDataError: what it is read from is damaged.
            NotFoundError: the table was destroyed.
        """
        if self._parts >= MOST_PARTS or not 0 < len(ranges) <= MOST_RANGES or KeyRange() in ranges:
            return None
        self._parts += 1
        try:
            return self._part(tuple(ranges))
        except (_NoPartError, CollectedError, MissingBlobError):
            return None  # what is missing, and should not be, the load of the whole state reports

    def _part(self, ranges: tuple[KeyRange, ...]) -> TableState:
        manifest = self.reader.manifest()
        if manifest.newest is None or manifest.newest.size_bytes < LEAST_BYTES:
            raise _NoPartError
        from dormouse.log.key_index import Concern  # loads what computes with columns

        since: list[Delta] = []
        facts, part = self.overlap(
            lambda: self._kept(manifest, ranges), lambda: since.extend(self._since(manifest))
        )
        concern = Concern(part)
        if any(concern.is_raised_by(delta.entries) for delta in since):
            raise _NoPartError
        pieces = part.pieces()
        return PartOfState(
            version=facts.version + len(since),
            time_ms=facts.time_ms,
            generation=facts.generation,
            key_types=facts.key_types,
            deletions=facts.deletions,
            shards=shards_of(pieces),
            pieces=pieces,
            covers=ranges,
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

    def _kept(
        self, manifest: Manifest, ranges: tuple[KeyRange, ...]
    ) -> tuple[IndexFacts, KnownPart]:
        """Return what a manifest's snapshot and increments say of some keys, and of the state."""
        indexes = [*self._indexes_of(manifest).values()]
        facts = indexes[-1].facts
        if not all(_fits(span, facts.key_types) for span in ranges):
            raise _NoPartError  # the table is being reset to keys of other types
        return facts, self._known(runs_of(manifest), indexes, ranges)

    def _indexes_of(self, manifest: Manifest) -> dict[str, KeyIndex]:
        """Return the indexes of the newest snapshot and its increments, as far as not known yet."""
        before = dict(self._indexes)  # another thread may replace them meanwhile
        indexes = key_indexes(self.reader, runs_of(manifest), before)
        if indexes is None:
            raise _NoPartError
        self._indexes = indexes
        return indexes

    def _known(
        self, runs: Sequence[Run], indexes: Sequence[KeyIndex], ranges: tuple[KeyRange, ...]
    ) -> KnownPart:
        """Return what the blocks of some keys say."""
        from dormouse.log.key_index import known_part

        numbers = [index.blocks(ranges) for index in indexes]
        if max(map(len, numbers)) > MOST_BLOCKS:
            raise _NoPartError
        places = [
            (run, index, number)
            for run, index, of in zip(runs, indexes, numbers, strict=True)
            for number in of
        ]
        spans = [
            BlobRange(run.id, run.size_bytes, *index.place(number)) for run, index, number in places
        ]
        if sum(each.end - each.start for each in spans) > MOST_BYTES:
            raise _NoPartError
        bodies = self.reader.ranges(self.reader.snapshots, spans)
        with self.reader.damage_reported():
            pairs = [
                (run, index.rows(number, body, name_of(run)))
                for (run, index, number), body in zip(places, bodies, strict=True)
            ]
            return known_part([[rows for of, rows in pairs if of == run] for run in runs], ranges)


def _fits(span: KeyRange, key_types: KeyTypes) -> bool:
    """Return whether the ends of a range can be compared with keys of these types."""
    ends = (span.min, span.max or ())
    size = len(key_types)  # an end may go on with sort keys
    return not any(key_problem(end[:size], key_types, fewest_parts=0) for end in ends)
