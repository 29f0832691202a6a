"""The state of a table as a log of deltas, ordered by small conditional updates.

A commit stores its transactions as one delta under a new id, and then appends that id to the log
(`log`, `pages`): that one update decides the order. Whether a transaction holds is decided
when the delta is folded, in that order, by the same rules for everyone (`follower`); its writer
reads the verdict. So no commit conflicts with another, and a retry rewrites nothing.

What a crash leaves: after the delta is stored, a body nobody names; after the append, a commit
whose author was not told, and who learns of it by committing the same again.

Where deltas and snapshots lie is said by who composes the engine (`s3`).
"""

from __future__ import annotations

from dormouse.errors import (
    CorruptDataError,
    InvariantError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.model.fold import Verdict
from dormouse.model.invariants import broken_invariants
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry, Transaction
from dormouse.ports import Clock, Ids
from dormouse.statestore.bodies import Bodies, Snapshots
from dormouse.statestore.codec import encode_delta
from dormouse.statestore.follower import Follower
from dormouse.statestore.log import Log
from dormouse.statestore.pages import Pages, Root, place_after
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.protocol import AlreadyCommitted, Committed, Outcome, Rejected
from dormouse.statestore.snapshots import snapshot_due, without_forgotten


class LogStateStore:
    """One table's state; a `protocol.StateStore`, safe for many threads.

    A store that lives long keeps the state in memory: then `current` costs one read of a page when
    nothing is new. Every call raises NotFoundError once the table's state was destroyed.
    """

    def __init__(
        self,
        table_id: str,
        pages: Pages,
        deltas: Bodies,
        snapshots: Snapshots,
        clock: Clock,
        ids: Ids,
        *,
        patience: Patience = WITHOUT_PAUSES,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""
        self._table_id, self._pages = table_id, pages
        self._deltas, self._snapshots = deltas, snapshots
        self._clock, self._ids, self._patience = clock, ids, patience
        self._log = Log(table_id, pages, patience)
        self._follower = Follower(self._log, deltas, snapshots)

    def current(self) -> TableState:
        """Give the newest version: at least every commit that ended before the call began."""
        return self._patience.insist(self._follower.newest)

    def commit(self, *transactions: Transaction, generation: int) -> tuple[Outcome, ...]:
        """Commit transactions in one delta, each for itself, and give the outcome of each.

        Raises:
            ContendedError: all attempts lost; nothing was committed.
            UnavailableError: nothing was committed.
            OutcomeUnknownError: they may have been committed. Commit the same again to find out.
        """
        if not transactions:
            return ()
        now_ms = self._clock.now_ms()
        entries = tuple(Entry(transaction, now_ms, generation) for transaction in transactions)
        # The fold begins before the delta, or it would never pass it and tell the verdict.
        before = self._patience.insist(self._follower.last_seen)
        delta_id = self._ids.new()
        body = encode_delta(entries)
        self._patience.insist(lambda: self._deltas.put(delta_id, body))
        with self._follower.awaiting(delta_id, entries):
            page, _ = place_after(before.version)
            version = self._log.append(delta_id, page)
            verdicts = self._verdicts(delta_id)
        return tuple(_outcome(verdict, version) for verdict in verdicts)

    def maintain(self) -> None:
        """Write a snapshot if it is due. Any number may at once: the newest becomes the root.

        Raises:
            InvariantError: the state contradicts itself; no snapshot was written.
        """
        head = self._log.head()
        state = self.current()
        if head is None or not snapshot_due(state.version, head.root):
            return
        if broken := broken_invariants(state):
            raise InvariantError(
                f"table {self._table_id} at version {state.version}: {'; '.join(broken[:5])}",
                hint="no snapshot was written, so that the log still shows how it came to this",
            )
        kept, snapshot_id = without_forgotten(state), self._ids.new()
        root = self._patience.insist(lambda: self._snapshots.save(snapshot_id, kept, head.root))
        if not self._pages.set_root(self._table_id, root):
            self._discard_unless_root(root)

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted.

        The log is closed first: from then on nobody can commit or read. Its head stays, a hundred
        bytes, so that a writer that slept cannot begin the log anew.
        """
        head = self._pages.close(self._table_id)
        for kept in (self._deltas, self._snapshots):
            kept.delete(list(kept.ids()))
        self._pages.delete_pages(self._table_id, head.last_page)

    def _verdicts(self, delta_id: str) -> tuple[Verdict, ...]:
        try:
            return self._patience.insist(lambda: self._follower.verdicts(delta_id))
        except (UnavailableError, CorruptDataError) as error:
            # The delta is in the log all the same, so to the caller this is no clean failure.
            raise OutcomeUnknownError(
                f"a commit to table {self._table_id} landed, but its verdict is unread: {error}",
                hint="commit the same again to find out; delete nothing it may need",
            ) from error

    def _discard_unless_root(self, lost: Root) -> None:
        """Delete a snapshot that lost to one as new: it can never become the root any more.

        That it is not the root must be seen: the update may have landed, and its
        repeat been refused.
        """
        head = self._log.head()
        if head and head.root and head.root.id != lost.id and head.root.version >= lost.version:
            self._snapshots.delete([lost.id])


def _outcome(verdict: Verdict, version: int) -> Outcome:
    if verdict.repeated:
        return AlreadyCommitted()
    return Rejected(verdict.violations) if verdict.violations else Committed(version)
