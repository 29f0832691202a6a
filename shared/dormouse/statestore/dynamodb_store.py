"""The state store that keeps everything in DynamoDB: bodies as items, the state in three tables.

The log is that of `engine`: a commit of whatever size is a body, one update of a page, and a read
of its verdict, and conflicts with no other commit. The state at the end of each page is then put
into the tables off the commit path (`dynamodb_snapshots`), where the references of one partition
can be read without all the others.
"""

from __future__ import annotations

from itertools import islice

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.shards import Reference
from dormouse.model.state import TableState
from dormouse.ports import Clock, Ids
from dormouse.state_store import REBUILD
from dormouse.statestore import pages as log_pages
from dormouse.statestore.dynamodb_bodies import DynamoBodies
from dormouse.statestore.dynamodb_retirement import delete_all
from dormouse.statestore.dynamodb_snapshots import DynamoSnapshots
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.items import Items
from dormouse.statestore.log import CollectedError, Log
from dormouse.statestore.pages import Pages, Root, Snapshot
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.reading import Reader, check_rules, fold_delta

_VERSIONS_AT_ONCE = 16
"""How many versions one call puts at most, so that it stays short after a long rest."""


class DynamoDBStateStore(LogStateStore):
    """The engine over items of DynamoDB."""

    def __init__(
        self,
        table_id: str,
        items: Items,
        pages: Pages,
        clock: Clock,
        ids: Ids,
        *,
        patience: Patience = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""
        log = Log(table_id, pages, patience)
        self._items, self._versions = items, DynamoSnapshots(log, items)
        reader = Reader(log, DynamoBodies(table_id, items), None, self._versions)
        super().__init__(reader, clock, ids, options)

    def maintain(self) -> None:
        """Put the states at the ends of pages into the tables; delete what is not needed any more.

        Any number may at once.

        Raises:
            InvariantError: the state contradicts itself; it was not put.
        """
        head = self._patience.insist(self._log.head)
        for _ in range(_VERSIONS_AT_ONCE):
            if head is None or head.last_page <= _next_page(head.root):
                break
            self._advance(head.root)
            head = self._patience.insist(self._log.head)
        if head is not None and self._collector.is_due(head):
            self._patience.insist(self._collector.collect)

    def reopen(self) -> None:
        """Drop what is kept in memory: the next look reads what is stored."""
        super().reopen()
        self._versions.forget()

    def references_of(self, partition: str) -> tuple[int, list[Reference]]:
        """Return the newest version, and the references in one partition at it, by shard id.

        Reads that partition's references and, beside them, only what the commits since the end of
        the last page are judged by.
        """
        return self._patience.insist(lambda: self._references_of(partition))

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted."""
        super().destroy()
        self._patience.insist(lambda: delete_all(self._table_id, self._items))

    def _advance(self, root: Root) -> None:
        """Put the state at the end of the page that follows the newest snapshot, and name it.

        That it is this version and no newer one makes all that is put for a version the same.
        """
        due = log_pages.version_before(_next_page(root) + 1)
        try:
            state = self._patience.insist(lambda: self._state_at(due, root.newest))
            self._consolidator.snapshot(state, root)
        except CollectedError:
            return  # another was quicker

    def _state_at(self, version: int, newest: Snapshot | None) -> TableState:
        state = self._reader.snapshot(newest) if newest else TableState()
        following = self._reader.from_pages(state.version)
        for delta in islice(following, version - state.version):
            state, _ = fold_delta(state, delta.entries)
        return state

    def _references_of(self, partition: str) -> tuple[int, list[Reference]]:
        missed: Root | None = None
        while (root := self._reader.root()) != missed:
            try:
                return self._references_by(root, partition)
            except (NotFoundError, CollectedError):
                missed = root  # the version was collected, if the root is another by now
        raise CorruptDataError(
            f"the root of table {self._table_id} names what is not there",
            hint=REBUILD,
        )

    def _references_by(self, root: Root, partition: str) -> tuple[int, list[Reference]]:
        state = self._versions.open(root.newest) if root.newest else TableState()
        check_rules(state.rules, state.version)
        for delta in self._reader.from_pages(state.version):
            state, _ = fold_delta(state, delta.entries)
        found = state.references_in(partition)
        if root.newest:
            self._versions.ensure_readable(root.newest)
        return state.version, found


def _next_page(root: Root) -> int:
    """Return the page whose end is the next version to be put into the tables."""
    return log_pages.place_after(root.newest.version)[0] if root.newest else 0
