"""What the rows of a table must be, version by version, from what was dropped and asked for alone.

The state is believed about nothing. Each version is looked at when it comes to be: the shards it
names are read as they were put, and what they hold of their partitions together tells which files
are in the table. Such a file must be there whole and once, in this version and all that follow.
That each file comes to be among them is checked when all is at rest (`final_checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dormouse.errors import NotFoundError
from dormouse.keys import KeyRange, encode_key
from dormouse.state.sources import Source
from dormouse.state.state import DisputeReason, TableState
from dormouse.state.validation import broken_invariants
from dormouse.stored.paths import shard_path
from tests.simulation.backpressure import Compactions
from tests.simulation.event_log import Violation
from tests.simulation.rows import AGE_MS, Kind, Row, entombed
from tests.simulation.shapes import Shape

VERSIONS_KEPT = 300


@dataclass(frozen=True, slots=True)
class Dropped:
    """A file as it was dropped, and when; `rows` is None for an invalid one.

    Its rows, and no others, have its `mark`.
    """

    source: Source
    rows: tuple[Row, ...] | None
    time_ms: int
    mark: int = 0


@dataclass(slots=True)
class Version:
    """The rows of one version of a `generation`, which were checked when it came to be, its shards,
    and what was then known of files and purges; `until_ms` is its end.
    """

    stored: list[Row]
    generation: int
    shards: frozenset[str]
    taken: frozenset[str]
    claimed: frozenset[str]
    maybe: set[tuple[str, str]]
    gone: set[tuple[str, str]]
    deleted: set[tuple[str, str]]
    until_ms: int | None = None


@dataclass
class PurgeWatch:
    """A purge that goes on: rows with these letters, of the files whose rows it has hidden."""

    letters: str
    sources: frozenset[str]


@dataclass
class Oracle:
    """What is known of one table. `content` gives what an object held when it was put.

    `deletions` are the letters that each deletion hides, by its id. `taken` are the files whose
    rows were seen in the table, `claimed` those that it said to have.
    """

    table_id: str
    kind: Kind
    shape: Shape
    content: Callable[[str], bytes]
    dropped: dict[str, Dropped]
    deletions: Mapping[str, str]
    slack_ms: int
    generation: int = 0
    taken: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    taken_ms: dict[str, int] = field(default_factory=dict)
    versions: dict[int, Version] = field(default_factory=dict)
    newest: int = 0
    referenced: frozenset[str] = frozenset()
    lost_ms: dict[str, int] = field(default_factory=dict)
    purges: dict[str, PurgeWatch] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)
    maybe: set[tuple[str, str]] = field(default_factory=set)
    gone: set[tuple[str, str]] = field(default_factory=set)
    deleted: set[tuple[str, str]] = field(default_factory=set)
    last_number: int = 0
    letters_purged: set[str] = field(default_factory=set)
    compactions: Compactions = field(default_factory=Compactions)
    _rows: dict[str, list[Row]] = field(default_factory=dict)

    def see(self, state: TableState, now_ms: int, restored_to: int | None = None) -> None:
        """Check a version that has just come to be, and remember it.

        If its generation is new, it began with the rows of the version `restored_to`, or none.

        Raises:
            Violation: it is not as it must be.
        """
        if broken := broken_invariants(state):
            self.fail(f"version {state.version} breaks an invariant: {broken[0]}")
        begun_with = None
        if state.generation != self.generation:
            begun_with = self.versions.get(restored_to) if restored_to is not None else None
            self._begin(state.generation, begun_with, restored_to)
        self.claimed |= {s for s in self.dropped if s in state.sources}
        self._see_references(state, now_ms)
        self._see_takings(state)
        stored = self._see_rows(state, now_ms)
        is_next = begun_with is not None and state.version == self.newest + 1
        if is_next and begun_with is not None and Counter(stored) != Counter(begun_with.stored):
            self.fail(
                f"version {state.version} has other rows than {restored_to}, its restored one"
            )
        if self.kind.keeps_latest:
            for purge in self.purges.values():
                self.maybe |= {(s, letter) for s in self.taken for letter in purge.letters}
        self._check(stored, state.version, now_ms)
        if self.newest in self.versions:
            self.versions[self.newest].until_ms = now_ms
        self.versions[state.version], self.newest = self._version(stored), state.version
        self.versions.pop(state.version - VERSIONS_KEPT, None)

    def begin_purge(self, purge_id: str, letters: str) -> None:
        """Note that a purge is on its way. Its deletions have hidden what it removes."""
        self.letters_purged |= set(letters)
        if purge_id not in self.purged:
            hidden = {s for s in self.taken if all((s, each) in self.deleted for each in letters)}
            self.purges.setdefault(purge_id, PurgeWatch(letters, frozenset(hidden)))
            if self.kind.keeps_latest:  # tombstones in place of the rows may be there, or not
                self.maybe |= {(s, letter) for s in hidden for letter in letters}

    def end_purge(
        self, purge_id: str, *, finished: bool, now_ms: int, purged_version: int = 0
    ) -> None:
        """Note that a purge is over; if it is finished, nothing is left of what it was to remove.

        The registry says that earlier versions than `purged_version` may still have it.

        Raises:
            Violation: something is.
        """
        purge = self.purges.pop(purge_id, None)
        if purge is not None and finished:
            ended = {(s, letter) for s in purge.sources for letter in purge.letters}
            self.purged.add(purge_id)
            self.maybe -= ended
            self.gone |= ended
            for number, version in self.versions.items():
                if number >= purged_version and version.generation == self.generation:
                    version.maybe -= ended
                    version.gone |= ended
            if self.newest in self.versions:
                self._check(self.versions[self.newest].stored, self.newest, now_ms)

    def check_deleted(
        self, shard: str, now_ms: int, delay_ms: int, held: Iterable[int] = ()
    ) -> None:
        """Check that a shard could be deleted just now, while some versions are `held`.

        Raises:
            Violation: it is part of the table, or was so recently that a query may read it.
        """
        for version in held:
            if version in self.versions and shard in self.versions[version].shards:
                self.fail(f"shard {shard} was deleted, which pinned version {version} needs")
        if shard in self.referenced:
            self.fail(f"shard {shard} was deleted, which version {self.newest} refers to")
        since_ms = self.lost_ms.pop(shard, None)
        if since_ms is not None and now_ms - since_ms < delay_ms - self.slack_ms:
            self.fail(f"shard {shard} was deleted {now_ms - since_ms} ms after its last reference")

    def check_answer(self, found: list[Row], version: int, wanted: KeyRange, now_ms: int) -> None:
        """Check what a query of a version has given.

        Raises:
            Violation: it is something else.
        """
        if version not in self.versions:
            return
        known = [
            r
            for r in self.versions[version].stored
            if wanted.contains(encode_key(self.shape.key(r)))
        ]
        must, can = self.answers(known, now_ms)
        self._compare(Counter(found), must, can, f"a query of version {version}, {wanted},")

    def answers(self, stored: list[Row], now_ms: int) -> tuple[Counter[Row], Counter[Row]]:
        """Return what a query of stored rows must give, and what it can give."""
        if not self.kind.ages:
            return self.kind.answer(stored), self.kind.answer(stored)
        must = Counter(row for row in stored if not self._ages(row, now_ms))
        return must, Counter(row for row in stored if not self._has_aged(row, now_ms))

    def is_before(self, version: int, generation: int) -> bool:
        """Return whether a version is of an earlier generation than this one."""
        known = self.versions.get(version)
        return known is not None and known.generation < generation

    def check_empty(self, found: int, version: int) -> None:
        """Check that a table which another schema awaits was found empty.

        Raises:
            Violation: rows of before were read by it.
        """
        if found:
            self.fail(f"{found} rows of version {version} are read by a schema they do not have")

    def check_count(self, found: int, version: int, wanted: KeyRange) -> None:
        """Check how many rows a query of a version has counted.

        Raises:
            Violation: it is another number.
        """
        if version in self.versions:
            known = [
                r
                for r in self.versions[version].stored
                if wanted.contains(encode_key(self.shape.key(r)))
            ]
            if found != (must := self.kind.answer(known).total()):
                self.fail(f"a count of version {version}, {wanted}, is {found}, not {must}")

    def shows(self, known: Dropped) -> bool:
        """Return whether a file that was taken in shows, now that all is at rest.

        Its rows may have aged, gone in a purge, or given way to later ones.
        """
        if self.kind.ages:
            return False
        rows = [row for row in known.rows or () if row[0] not in self.letters_purged]
        if self.kind.name in ("last", "latest"):
            others = [row for s in self.taken for row in self.dropped[s].rows or ()]
            rows = [row for row in rows if self.kind.answer([*others, row])[row]]
        return bool(rows)

    def is_kept(self, version: int, now_ms: int, delay_ms: int) -> bool:
        """Return whether a version must still be readable."""
        known = self.versions.get(version)
        if known is None or version < self.newest - VERSIONS_KEPT:
            return False
        return known.until_ms is None or now_ms - known.until_ms < delay_ms - self.slack_ms

    def fail(self, text: str) -> None:
        """Raise a violation about this table."""
        raise Violation(f"table {self.table_id} ({self.kind.name}): {text}", self.table_id)

    def _begin(self, generation: int, version: Version | None, number: int | None) -> None:
        """Begin a generation with what was known of a version, or with nothing."""
        self.generation = generation
        if version is None:
            self.taken = self.claimed = frozenset()
            self.maybe, self.gone, self.deleted = set(), set(), set()
            for purge in self.purges.values():  # a file that comes again has its rows again
                purge.sources = frozenset()
            return
        back = {place for place in self.gone - version.gone if place[0] in version.taken}
        if back:
            self.fail(f"what was purged is restored with version {number}: {sorted(back)[:3]}")
        self.taken, self.claimed = version.taken, version.claimed
        self.maybe, self.gone = set(version.maybe), set(version.gone)
        self.deleted = set(version.deleted)

    def _version(self, stored: list[Row]) -> Version:
        known = self.taken, self.claimed, set(self.maybe), set(self.gone), set(self.deleted)
        return Version(stored, self.generation, self.referenced, *known)

    def _see_references(self, state: TableState, now_ms: int) -> None:
        now_there = frozenset(r.shard for r in state.all_references())
        for shard in sorted(self.referenced - now_there):
            self.lost_ms[shard] = now_ms
        self.referenced = now_there

    def _see_takings(self, state: TableState) -> None:
        """Check that jobs took just the rows there are of each shard: none was lost on the way."""
        for shard, dispute in state.disputed.items():
            if dispute.reason is DisputeReason.ROWS_LOST:
                self.fail(f"version {state.version} disputes shard {shard}: {dispute}")
        for shard, takings in state.taken.items():
            keys = [self.shape.key(row) for row in self.rows_of(shard, state.version)]
            for taking in takings:
                if taking.rows != (rows := sum(map(taking.range.contains, map(encode_key, keys)))):
                    self.fail(f"version {state.version}: {taking} of shard {shard} has {rows}")

    def _see_rows(self, state: TableState, now_ms: int) -> list[Row]:
        """Note what files there are, and what a new deletion hides of those there were before;
        return the rows that no deletion hides, and what is left of the others.
        """
        stored = [
            (row, state.shards[reference.shard].sequence)
            for span, references in state.partitions_to_read(KeyRange())
            for reference in references
            for row in self.rows_of(reference.shard, state.version)
            if span.contains(encode_key(self.shape.key(row)))
        ]
        before = self.taken
        self.taken |= self._files_of([row for row, _ in stored])
        self.taken_ms |= dict.fromkeys(self.taken - before, now_ms)
        letters = {each.number: set(self.deletions[each.id]) for each in state.deletions}
        for number, hidden in letters.items():
            if number > self.last_number:
                self.letters_purged |= hidden
                self.deleted |= {(source, letter) for source in before for letter in hidden}
                since = self.taken - before  # by the same commit, in whatever order
                self.maybe |= {(source, letter) for source in since for letter in hidden}
        self.last_number = state.last_number

        def is_hidden(row: Row, sequence: int) -> bool:
            return any(n > sequence and row[0] in hidden for n, hidden in letters.items())

        left = (entombed(row) if is_hidden(row, sequence) else row for row, sequence in stored)
        return [row for row in left if self.kind.keeps_latest or row[4]]

    def _files_of(self, stored: list[Row]) -> set[str]:
        """Return the files that rows come from: by their marks, or by their notes if these stay."""
        if self.kind.keeps_latest:
            notes = {row[2] for row in stored}
            files = self.dropped.items()
            return {s for s, known in files if any(r[2] in notes for r in known.rows or ())}
        marks = 0
        for row in stored:
            marks |= row[4]
        return {s for s, known in self.dropped.items() if known.mark and marks // known.mark % 16}

    def rows_of(self, shard: str, version: int) -> list[Row]:
        """Return the rows of a shard as it was put, in order."""
        if shard not in self._rows:
            try:
                body = self.content(shard_path(self.table_id, shard))
            except NotFoundError as error:
                self.fail(f"version {version} refers to shard {shard}: {error}")
                raise
            self._rows[shard] = self.shape.rows_in_file(body)
        return self._rows[shard]

    def _check(self, stored: list[Row], version: int, now_ms: int) -> None:
        """Hold what a version stores against what its files had."""
        sure: list[Row] = []
        unsure: list[Row] = []
        for source in sorted(self.taken):
            for row in self.dropped[source].rows or ():
                place = (source, row[0])
                if place in self.maybe or (self.kind.ages and self._ages(row, now_ms)):
                    unsure.append(row)
                elif place not in self.gone and place not in self.deleted:
                    sure.append(row)
                elif place not in self.gone and self.kind.keeps_latest:
                    sure.append(entombed(row))
        if self.kind.joins:
            open_ = {row[0] for row in unsure}
            stored = [row for row in stored if row[0] not in open_]
            sure, unsure = [row for row in sure if row[0] not in open_], []
        if self.kind.keeps_latest:
            sure, unsure = self._latest(sure)
        must = self.kind.answer(sure)
        can = must + Counter(unsure)
        self._compare(self.kind.answer(stored), must, can, f"version {version}")

    def _compare(
        self, found: Counter[Row], must: Counter[Row], can: Counter[Row], what: str
    ) -> None:
        if lost := must - found:
            self.fail(f"{what} lacks {_few(lost)}")
        if more := found - can:
            self.fail(f"{what} has {_few(more)} too many")

    def _latest(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        """Return which rows must be seen, and which can be: those that came when what hides them
        may have been gone. A tombstone goes when it is old, but not while it hides what is there.
        """
        age_ms = int(str(self.kind.properties["tombstone_age_seconds"])) * 1000
        source_of = {row[2]: s for s in self.taken for row in self.dropped[s].rows or ()}
        must: dict[str, Row] = {}
        gone_ms: dict[str, int] = {}
        can = []
        for row in sorted(rows, key=lambda row: row[2], reverse=True):
            letter, source = row[0], source_of[row[2]]
            if letter in must:
                continue
            if not row[4]:  # it was deleted after it was dropped
                until_ms = self.dropped[source].time_ms + age_ms - self.slack_ms
                gone_ms[letter] = min(until_ms, gone_ms.get(letter, until_ms))
            elif letter not in gone_ms:
                must[letter] = row
            elif self.taken_ms[source] >= gone_ms[letter]:
                can.append(row)
        return list(must.values()), can

    def _ages(self, row: Row, now_ms: int) -> bool:
        """Return whether a row may have aged for somebody."""
        return now_ms - row[1] >= AGE_MS - self.slack_ms

    def _has_aged(self, row: Row, now_ms: int) -> bool:
        """Return whether a row has aged for everybody."""
        return now_ms - row[1] >= AGE_MS + self.slack_ms


def _few(rows: Counter[Row]) -> str:
    shown = ", ".join(map(str, sorted(rows.elements())[:3]))
    return f"{rows.total()} rows: {shown}{' …' if rows.total() > 3 else ''}"
