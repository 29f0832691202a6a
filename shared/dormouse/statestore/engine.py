"""The state of a table as a log of deltas, ordered by small conditional updates.

A commit stores its transactions as one delta under a new id, and then appends that id to the log
(`log`, `pages`): that one update decides the order. Whether a transaction holds is decided when the
delta is folded, in that order, by the same rules for everyone (`follower`); its writer reads the
verdict. So no commit conflicts with another, and a retry rewrites nothing.

A strict commit is appended only as what follows the very version its writer tried it on. Then it is
known to hold before it is written; another writer's commit in between costs a new attempt.

What a crash leaves: after the delta is stored, a body nobody names; after the append, a commit
whose author was not told, and who learns of it by committing the same again.

Where deltas, segments and snapshots lie is said by who composes the engine (`s3`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    InvariantError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.fold.fold import Verdict
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry, Transaction
from dormouse.ports import Clock, Ids
from dormouse.state_store import AlreadyCommitted, CommitReport, Committed, Outcome, Rejected
from dormouse.statestore.admission import admit
from dormouse.statestore.codec import encode_delta
from dormouse.statestore.collection import Collector
from dormouse.statestore.consolidation import Consolidator, snapshot_due
from dormouse.statestore.follower import Follower
from dormouse.statestore.groups import Entries, Group, Outcomes
from dormouse.statestore.history import state_at
from dormouse.statestore.log import Placement
from dormouse.statestore.pages import LOWEST_FLOOR, not_below, place_after
from dormouse.statestore.reading import Reader, fold_delta


def _unobserved(report: CommitReport) -> None:
    """Stand where the wiring puts an observer."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a store commits, and what it keeps.

    A version can be read for `keep_seconds` after it was current. What takes longer than
    `upload_seconds` from its upload to the log is uploaded again; clocks may differ by less.
    """

    is_strict: bool = False
    keep_seconds: int = 15 * 60
    upload_seconds: int = 15 * 60
    observe: Callable[[CommitReport], None] = _unobserved


DEFAULTS = Options()


class LogStateStore:
    """One table's state; a `protocol.StateStore`, safe for many threads.

    A store that lives long keeps the state in memory: then `current` costs one read of a page when
    nothing is new. Every call raises NotFoundError once the table's state was destroyed.
    """

    def __init__(self, reader: Reader, clock: Clock, ids: Ids, options: Options = DEFAULTS) -> None:
        """Use the table whose log and bodies `reader` reads; nothing is read yet."""
        self._reader, self._log, self._options = reader, reader.log, options
        self._table_id, self._patience = reader.log.table_id, reader.log.patience
        self._clock, self._ids = clock, ids
        self._follower = Follower(reader)
        self._group = Group(self._commit_strictly if options.is_strict else self._append)
        keep_ms, upload_ms = options.keep_seconds * 1000, options.upload_seconds * 1000
        self._consolidator = Consolidator(reader, ids, keep_ms)
        self._collector = Collector(reader, clock, keep_ms, upload_ms)

    def current(self) -> TableState:
        """Return the newest version: at least every commit that ended before the call began."""
        return self._patience.insist(self._follower.newest)

    def at(self, *, version: int | None = None, time_ms: int | None = None) -> TableState:
        """Return a version, or the one that was current at a time, as long as it is kept.

        Raises:
            NotFoundError: it is not kept any more, or is yet to come.
            InvalidRequestError: neither or both are given.
        """
        return self._patience.insist(
            lambda: state_at(self._reader, version=version, time_ms=time_ms)
        )

    def commit(self, *transactions: Transaction, generation: int) -> tuple[Outcome, ...]:
        """Commit transactions in one delta, each for itself, and give the outcome of each.

        What threads commit at the same time goes in one delta.

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
        admit(entries, self._patience.insist(self._follower.last_seen), self.current)
        return self._group.commit(entries)

    def maintain(self) -> None:
        """Do what keeps reads cheap and the metadata small, if it is due. Any number may at once.

        Raises:
            InvariantError: the state contradicts itself; no snapshot was written.
            UnavailableError, OutcomeUnknownError: the rest is left to the next call.
        """
        head = self._patience.insist(self._log.head)
        if head is None:
            return
        seen = head
        if self._patience.insist(lambda: self._consolidator.consolidate(seen)):
            head = self._patience.insist(self._log.head) or seen
        if snapshot_due(head.root, head.last_page, self._reader.segments is not None):
            self._consolidator.snapshot(self.current(), head.root)
        if self._collector.is_due(head):
            self._patience.insist(self._collector.collect)

    def log_length(self) -> int:
        """Count the versions since the newest snapshot: what a new process has to fold."""
        newest = self._patience.insist(self._reader.root).newest
        return self.current().version - (newest.version if newest else 0)

    def reopen(self) -> None:
        """Drop what is kept in memory: the next look reads what is stored."""
        self._follower.forget()

    def terminate(self) -> None:
        """Let nobody commit or read any more, for good; deltas and snapshots stay. Repeatable.

        The pages go, for an append asks for nothing but a page with room.
        """
        head = self._log.pages.close(self._table_id)
        self._log.pages.delete_pages(self._table_id, head.first_page, head.last_page + 1)

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted.

        The log is closed first: from then on nobody can commit or read. Its head stays, a hundred
        bytes, so that a writer that slept cannot begin the log anew.
        """
        self.terminate()
        for kept in (self._reader.deltas, self._reader.segments, self._reader.snapshots):
            if kept is not None:
                kept.delete(list(kept.ids()))

    def delete_late(self) -> None:
        """Delete the deltas that were put while the state was destroyed, or later. Repeatable.

        Nothing else can come late: pages and the root are changed only while the log is open.

        Raises:
            InvariantError: the log is not closed; nothing was deleted.
        """
        head = self._patience.insist(lambda: self._log.pages.head(self._table_id))
        if head is None or not head.closed:
            raise InvariantError(f"the state of table {self._table_id} was never destroyed")
        self._patience.insist(lambda: self._reader.deltas.delete(list(self._reader.deltas.ids())))

    def _append(self, entries: Entries) -> Outcomes:
        """Commit in any order: what follows which version, and what holds then, is seen after."""
        started_ms, attempts, body = self._clock.now_ms(), 0, encode_delta(entries)
        # The fold begins before the delta, or it would never pass it and tell the verdict.
        page, _ = place_after(self._patience.insist(self._follower.last_seen).version)
        floor = LOWEST_FLOOR
        for uploads in range(1, self._patience.attempts + 1):
            delta_id = self._upload(body, floor)
            with self._follower.awaiting(delta_id, entries):
                placed = self._log.append(delta_id, page)
                attempts += placed.attempts
                if placed.version is not None:
                    verdicts = self._verdicts(delta_id)
                    sent_bytes = uploads * len(body)
                    self._report(placed.version, attempts, sent_bytes, started_ms, verdicts)
                    return _outcomes(verdicts, placed.version)
            floor = placed.floor or floor
        raise ContendedError(
            f"every commit to table {self._table_id} came too late after its upload",
            hint="nothing was changed; try again later",
        )

    def _commit_strictly(self, entries: Entries) -> Outcomes:
        """Commit what holds at the newest version as the next one, or try anew."""
        started_ms, attempts, sent_bytes = self._clock.now_ms(), 0, 0
        delta_id, floor = "", LOWEST_FLOOR
        uploaded: Entries = ()
        for failures in range(self._patience.attempts):
            if failures:
                self._patience.pause(failures)
            state = self.current()
            verdicts = fold_delta(state, entries)[1]
            holding = _holding(entries, verdicts)
            if not holding:
                self._report(state.version, attempts, sent_bytes, started_ms, verdicts)
                return _outcomes(verdicts, state.version)
            if holding != uploaded:
                body = encode_delta(holding)
                delta_id, uploaded = self._upload(body, floor), holding
                sent_bytes += len(body)
            placed = self._place_after(state.version, delta_id, holding)
            attempts += placed.attempts
            if placed.version is not None:
                self._report(placed.version, attempts, sent_bytes, started_ms, verdicts)
                return _outcomes(verdicts, placed.version)
            if placed.floor:
                floor, uploaded = placed.floor, ()
        raise ContendedError(
            f"{self._patience.attempts} attempts to change table {self._table_id} met others",
            hint="nothing was changed; try again later",
        )

    def _place_after(self, version: int, delta_id: str, entries: Entries) -> Placement:
        page, _ = place_after(version)
        with self._follower.awaiting(delta_id, entries):
            return self._log.append(delta_id, page, after=version)

    def _upload(self, body: bytes, floor: str) -> str:
        """Store a delta under a new id and give it: one that is not below a floor met before.

        Without that, a machine whose clock is behind could never commit again.
        """
        delta_id = not_below(floor, self._ids.new())
        self._patience.insist(lambda: self._reader.deltas.put(delta_id, body))
        return delta_id

    def _verdicts(self, delta_id: str) -> tuple[Verdict, ...]:
        try:
            return self._patience.insist(lambda: self._follower.verdicts(delta_id))
        except (UnavailableError, CorruptDataError) as error:
            # The delta is in the log all the same, so to the caller this is no clean failure.
            raise OutcomeUnknownError(
                f"a commit to table {self._table_id} landed, but its verdict is unread: {error}",
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
            CommitReport(version, attempts, size_bytes, milliseconds, len(verdicts), rejected)
        )


def _holding(entries: Entries, verdicts: Sequence[Verdict]) -> Entries:
    pairs = zip(entries, verdicts, strict=True)
    return tuple(e for e, verdict in pairs if not (verdict.repeated or verdict.violations))


def _outcomes(verdicts: Sequence[Verdict], version: int) -> Outcomes:
    return tuple(_outcome(verdict, version) for verdict in verdicts)


def _outcome(verdict: Verdict, version: int) -> Outcome:
    if verdict.repeated:
        return AlreadyCommitted()
    return Rejected(verdict.violations) if verdict.violations else Committed(version)
