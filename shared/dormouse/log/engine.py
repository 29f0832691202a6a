"""The state of a table as a log of deltas, ordered by small conditional updates.

A commit stores its transactions as one delta under a new id, and then appends that id to the log
(`log.log`, `log.pages`): that one update decides the order. Whether a transaction holds is decided
when the delta is folded, in that order, by the same rules for everyone (`log.tail`); its writer
reads the verdict. So no commit conflicts with another, and a retry rewrites nothing.

What a crash leaves: after the delta is stored, a blob that nothing names; after the append, a
commit whose author does not know of it, and finds out by committing the same again.

The engine knows three ports: the log, its head (both in `log.pages`) and the blobs (`blobs`). What
a state is kept in is up to its `Reader`: `aws.state_store` and `items.blobs` make them.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from dormouse import errors
from dormouse.keys import KeyRange
from dormouse.log import compaction
from dormouse.log.blobs import ABOVE_ALL_IDS, Overlap, encode_delta, identity_of, in_turn
from dormouse.log.log import CollectedError, Reader, packed
from dormouse.log.pages import LOWEST_ID, Manifest, Page, not_below
from dormouse.log.pinning import PartialReads, Pinning
from dormouse.log.tail import LogTail, kept_versions, state_at
from dormouse.schema.schema import KeyTypes
from dormouse.state import rules
from dormouse.state.fold import Verdict
from dormouse.state.state import (
    Entry,
    InitialisePartitions,
    RestoreTable,
    TableState,
    Transaction,
    without_expired,
)
from dormouse.state.validation import entry_violations
from dormouse.system import Clock, Ids

# Group commit: threads that commit at the same time share one delta.

Entries = tuple[Entry, ...]
Outcomes = tuple[rules.Outcome, ...]


@dataclass(slots=True, eq=False)
class PendingCommit:
    """One thread's entries, and their outcomes. Its turn comes when they are decided, or when
    the thread is to commit for all that wait."""

    entries: Entries
    turn: threading.Event = field(default_factory=threading.Event)
    outcomes: Outcomes | None = None
    failure: BaseException | None = None


class GroupCommit:
    """One commit at a time: threads that come meanwhile share the next. A lone one never waits."""

    def __init__(self, commit: Callable[[Entries], Outcomes]) -> None:
        """Commit with `commit`, which returns an outcome for each entry."""
        self._commit = commit
        self._lock = threading.Lock()
        self._waiting: list[PendingCommit] = []
        self._is_busy = False

    def commit(self, entries: Entries) -> Outcomes:
        """Commit entries, in one delta with those of other threads; raise what `commit` raises."""
        own = PendingCommit(entries)
        with self._lock:
            self._waiting.append(own)
            leads = not self._is_busy
            self._is_busy = True
        if not leads:
            own.turn.wait()
        if own.outcomes is None and own.failure is None:
            self._lead()
        if own.failure is not None:
            raise own.failure
        return own.outcomes or ()

    def _lead(self) -> None:
        """Commit for all that wait, and let one of those that came meanwhile lead next."""
        with self._lock:
            sharing, self._waiting = self._waiting, []
        try:
            outcomes = self._commit(tuple(entry for each in sharing for entry in each.entries))
            for each in sharing:
                each.outcomes = outcomes[: len(each.entries)]
                outcomes = outcomes[len(each.entries) :]
        except BaseException as failure:  # whatever it is, no thread may wait for ever
            for each in sharing:
                each.failure = failure
        finally:
            with self._lock:
                following = self._waiting[:1]
                self._is_busy = bool(following)
            for each in (*sharing, *following):
                each.turn.set()


def _unobserved(report: rules.CommitReport) -> None:
    """Take the place of an observer."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a store commits, and what it keeps.

    A version can be read for `keep_seconds` after it was current. What takes longer than
    `upload_seconds` from its upload to the log is uploaded again; clocks may differ by less.
    `overlap` stores the delta of a commit and reads those of others at once, or in turn, and so the
    pieces that a part of the state is read from.
    """

    keep_seconds: int = 15 * 60
    upload_seconds: int = 15 * 60
    observe: Callable[[rules.CommitReport], None] = _unobserved
    overlap: Overlap = in_turn


DEFAULTS = Options()


class StateStore:
    """The state of one table; safe for many threads. Many processes may have a store of it at once.

    A store that lives long keeps the state in memory: then `current` costs one read of a page when
    nothing is new. Once the state is terminated or destroyed, every call raises NotFoundError.
    """

    def __init__(self, reader: Reader, clock: Clock, ids: Ids, options: Options = DEFAULTS) -> None:
        """Use the table whose log and blobs `reader` reads; nothing is read yet."""
        self.reader, self._log, self._options = reader, reader.log, options
        self._table_id, self._retry_policy = reader.log.table_id, reader.log.retry_policy
        self._clock, self._ids = clock, ids
        self._tail = LogTail(reader)
        self._partial_reads = PartialReads(reader, options.overlap)
        self._group = GroupCommit(self._append)
        keep_ms, upload_ms = options.keep_seconds * 1000, options.upload_seconds * 1000
        self._compaction = compaction.LogCompaction(reader, ids, keep_ms)
        self._collector = compaction.Collector(reader, clock, keep_ms, upload_ms)
        self.pins = Pinning(reader, clock, ids, keep_ms, upload_ms, self.current)

    def current(self) -> TableState:
        """Return the newest version: it includes every commit that ended before the call began."""
        return self._retry_policy.retry(self._tail.newest)

    def is_newest(self, version: int) -> bool:
        """Return whether no commit followed a version: one read, and no state is loaded."""
        with suppress(CollectedError):
            return not self._retry_policy.retry(lambda: self._log.ids_after(version))
        return False

    def part(self, ranges: Callable[[], Sequence[KeyRange]]) -> TableState:
        """Return the newest version as `current` does, or of it what readers of these ranges of
        keys need: its `partitions_to_read` and `shards`, without a tree, jobs and totals.

        A process that has the state in memory brings that up to date. Another one asks for the
        `ranges` and reads a few blocks, if it can (`log.key_index`), else the whole state.
        """
        if not self._tail.is_warm:
            part = self._retry_policy.retry(lambda: self._partial_reads.part(ranges()))
            if part is not None:
                return part
        return self.current()

    def at(self, *, version: int | None = None, time_ms: int | None = None) -> TableState:
        """Return a version, or the one that was current at a time, as long as it is kept or pinned.

        Raises:
            NotFoundError: it is no longer kept, or there is no such version yet.
            InvalidRequestError: neither or both are given.
        """
        try:
            return self._retry_policy.retry(
                lambda: state_at(self.reader, version=version, time_ms=time_ms)
            )
        except errors.NotFoundError:
            for pin in self.pins.all():
                if pin.version == version:
                    return self.pins.state(pin)
            raise

    def history(self) -> list[rules.VersionRecord]:
        """Return the versions that are kept without a pin, the oldest first."""
        return self._retry_policy.retry(lambda: kept_versions(self.reader))

    def commit(self, *transactions: Transaction, generation: int) -> tuple[rules.Outcome, ...]:
        """Commit transactions in one delta, each judged by itself, and return the outcome of each.

        Threads that commit at the same time share a delta.

        Raises:
            InvalidRequestError: one of them can hold in no state of the table; nothing was written.
            ContendedError: all attempts lost; nothing was committed.
            UnavailableError: nothing was committed.
            OutcomeUnknownError: they may have been committed. Commit the same again to find out.
        """
        if not transactions:
            return ()
        now_ms = self._clock.now_ms()
        entries = tuple(Entry(each, now_ms, generation) for each in transactions)
        admit(entries, self._retry_policy.retry(self._tail.last_seen), self.current)
        return self._group.commit(entries)

    def restore(self, earlier: TableState, *, generation: int) -> rules.Outcome:
        """Begin a generation with the partitions, rows and sources of `earlier`, which stays pinned
        until then; return the outcome.

        Jobs of that version are released. Repeatable: a generation begins once. Order of writes:
        the snapshot of the version, the delta that has the same id, the log.
        Raises: as `commit`.
        """
        transaction = RestoreTable(generation, earlier.version)
        entries = (Entry(transaction, self._clock.now_ms(), generation),)
        (outcome,) = self._append(entries, without_expired(earlier))
        return outcome

    def begin(self, state: TableState) -> None:
        """Begin the log with a state, of a version that no other log had (`pages.first_version`).

        Order of writes: the snapshot of the state, the log. Raises: as `Log.begin`.
        """
        self._log.begin(self._compaction.put_snapshot(state))

    def maintain(self) -> None:
        """Compact the log and collect its garbage, as far as due. Any number may at once.

        Raises:
            InvariantError: the state contradicts itself; no snapshot was written.
            UnavailableError, OutcomeUnknownError: the rest is left to the next call.
        """
        head = self._retry_policy.retry(self._log.head)
        if head is None:
            return
        earlier = head
        if self._retry_policy.retry(lambda: self._compaction.compact(earlier)):
            head = self._retry_policy.retry(self._log.head) or earlier
        manifest = head.manifest
        self._retry_policy.retry(lambda: self._compaction.merge_history(manifest))
        if compaction.is_snapshot_due(manifest, self.reader.snapshot_share):
            state = self.current()
            if self._compaction.snapshot(state):
                self._tail.kept(state)
        elif compaction.is_increment_due(manifest):
            self._keep_increment(manifest)
        if self._collector.is_due(head):
            self._retry_policy.retry(self._collector.collect)

    def _keep_increment(self, manifest: Manifest) -> None:
        """Keep what changed since the last cut of the log that this process knows the state of."""
        state, cut = self.current(), self._tail.cut
        if cut is None or cut.version not in manifest.cuts:
            self._tail.reset()  # another process kept others since: begin with its last one
            state, cut = self.current(), self._tail.cut
        with suppress(CollectedError):
            if cut and self._compaction.increment(cut, state, manifest):
                self._tail.kept(state)

    def log_length(self) -> int:
        """Count the versions since the newest snapshot: what a new process has to fold."""
        newest = self._retry_policy.retry(self.reader.manifest).newest
        return self.current().version - (newest.version if newest else 0)

    def terminate(self) -> None:
        """Close the state for good: no process can commit or read any more; blobs stay. Idempotent.

        This is done before a state is rebuilt from the shards, so that no commit lands that the
        rebuild would miss. The pages are deleted, for an append needs nothing but a page with room.
        """
        head = self._log.pages.close(self._table_id)
        self._log.pages.delete_pages(self._table_id, head.first_page, head.last_page + 1)
        self._log.pages.pins.clear(self._table_id)

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted.

        The log is closed first: from then on no process can commit or read. Its head of a hundred
        bytes stays, so that a writer that slept cannot begin the log again.
        """
        self.terminate()
        self._retry_policy.retry(self._delete_blobs)

    def delete_late(self) -> None:
        """Delete the blobs that were put while the state was destroyed, or later. Repeatable.

        Nothing else can come late: pages and the manifest change only while the log is open.
        Raises InvariantError: the log is not closed; nothing was deleted.
        """
        head = self._retry_policy.retry(lambda: self._log.pages.head(self._table_id))
        if head is None or not head.closed:
            raise errors.InvariantError(f"the state of {self._log.title} was never destroyed")
        self._retry_policy.retry(self._delete_blobs)
        self._log.pages.pins.clear(self._table_id)

    def _delete_blobs(self) -> None:
        for blobs in (self.reader.deltas, self.reader.segments, self.reader.snapshots):
            blobs.delete_stale(ABOVE_ALL_IDS, ())

    @compaction.gc_paused()
    def _append(self, entries: Entries, earlier: TableState | None = None) -> Outcomes:
        """Append a delta wherever the log ends; what holds there is known after the fold."""
        started_ms, attempts, sent_bytes, mark = self._clock.now_ms(), 0, 0, LOWEST_ID
        for _ in range(self._retry_policy.attempts):
            delta_id, size_bytes = self._upload_and_look(entries, mark, earlier)
            sent_bytes += size_bytes
            # Twice as many as last time may come between: a look is cheaper than a full page.
            page = self._log.page_after(self._tail.last_seen().version, 2 * self._tail.overtaken)
            with self._tail.awaiting(delta_id, entries):
                placement = self._log.append(delta_id, page)
                attempts += placement.attempts
                if placement.page and placement.version is not None:
                    verdicts, version = self._verdicts(delta_id, placement.page), placement.version
                    self._report(version, attempts, sent_bytes, started_ms, verdicts)
                    return tuple(_outcome(verdict, version) for verdict in verdicts)
            mark = placement.low_water_mark or mark
        raise errors.ContendedError(
            f"every commit to {self._log.title} came too late after its upload",
            hint="nothing was changed; try again later",
        )

    def _upload_and_look(
        self, entries: Entries, mark: str, earlier: TableState | None
    ) -> tuple[str, int]:
        """Store a delta, and fold what others committed; return as `_upload`.

        So the append goes to the page where the log ends, and few deltas are left between that and
        this one. And the fold begins before the delta, else it would never learn the verdict.

        A writer that others overtook looks while its delta is on its way: time is short, and where
        the delta will be cannot be known. Another one looks before, for that is where it will be.
        """
        upload = partial(self._upload, entries, mark, earlier)
        if self.reader.carries and not self._tail.overtaken:
            self.current()
            return upload(carried=packed(self._tail.next_carried()))
        return self._options.overlap(upload, self.current)

    def _upload(
        self,
        entries: Entries,
        mark: str,
        earlier: TableState | None,
        carried: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, int]:
        """Store a delta under a new id; return the id, and how many bytes were sent.

        If it restores a version, a snapshot of that is stored under the same id before. The id is
        not below a low-water mark met before: otherwise a machine whose clock is behind could never
        commit again.
        """
        delta_id, sent_bytes = not_below(mark, self._ids.new()), 0
        if earlier is not None:
            from dormouse.log.snapshot import encode_snapshot  # it imports Arrow

            snapshot = encode_snapshot(self._table_id, earlier)
            self.reader.snapshots.put(delta_id, snapshot)
            sent_bytes = len(snapshot)
        body = encode_delta(entries, identity_of(self._table_id, delta_id), carried)
        self.reader.deltas.put(delta_id, body)
        return delta_id, sent_bytes + len(body)

    def _verdicts(self, delta_id: str, page: Page) -> tuple[Verdict, ...]:
        try:
            return self._retry_policy.retry(lambda: self._tail.verdicts(delta_id, page))
        except (errors.UnavailableError, errors.CorruptDataError) as error:
            # The delta is in the log all the same, so to the caller this is no clean failure.
            raise errors.OutcomeUnknownError(
                f"a commit to {self._log.title} landed, but its verdict is unread: {error}",
                hint="commit the same again to find out; delete nothing it may need",
            ) from error

    def _report(
        self,
        version: int,
        attempts: int,
        size_bytes: int,
        started_ms: int,
        verdicts: Sequence[Verdict],
    ) -> None:
        milliseconds = self._clock.now_ms() - started_ms
        rejected = sum(bool(verdict.violations) for verdict in verdicts)
        self._options.observe(
            rules.CommitReport(version, attempts, size_bytes, milliseconds, len(verdicts), rejected)
        )


def _outcome(verdict: Verdict, version: int) -> rules.Outcome:
    """Return the outcome of an entry of the delta that made a version."""
    if verdict.repeated:
        return rules.AlreadyCommitted()
    return rules.Rejected(verdict.violations) if verdict.violations else rules.Committed(version)


_REASONS = 5


def admit(entries: Sequence[Entry], state: TableState, look: Callable[[], TableState]) -> None:
    """Refuse entries, all meant for one generation, that can hold in no state of a table.

    `state` is any version of it, `look` gives the newest.
    Raises InvalidRequestError: some can hold in none.
    """
    key_types = _key_types(entries, state, look)
    for entry in entries:
        if broken := entry_violations(entry, key_types):
            reasons = "; ".join(map(str, broken[:_REASONS]))
            raise errors.InvalidRequestError(
                f"a change of the table can never hold: {reasons}", hint="nothing was written"
            )
        if isinstance(entry.transaction, RestoreTable):
            raise errors.InvalidRequestError(
                "a version is restored by `restore`, with its snapshot"
            )


def _key_types(
    entries: Sequence[Entry], state: TableState, look: Callable[[], TableState]
) -> KeyTypes:
    """Return the types of row keys in the generation of `entries`; none if that is not the newest.

    They stay as long as the generation, so any version of it knows them; else an entry is to give
    them to the table.
    """
    generation = entries[0].generation
    if state.key_types and state.generation == generation:
        return state.key_types
    transactions = (entry.transaction for entry in entries)
    types = next((t.key_types for t in transactions if isinstance(t, InitialisePartitions)), ())
    if types and not state.key_types:
        return types
    newest = look()
    return newest.key_types if newest.generation == generation else ()
