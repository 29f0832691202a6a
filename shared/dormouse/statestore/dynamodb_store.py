"""The state store that keeps everything in DynamoDB: bodies as items, the state in three tables.

The log is that of `engine`: a commit of whatever size is a body, one update of a page, and a read
of its verdict, and conflicts with no other commit. The state at the end of each page is then put
into the tables off the commit path (`dynamodb_snapshots`), where the references of one partition
can be read without all the others.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError
from dormouse.model.invariants import broken_invariants
from dormouse.model.shards import Reference
from dormouse.model.state import TableState
from dormouse.model.transactions import Entry
from dormouse.ports import Clock, Ids
from dormouse.statestore import pages as log_pages
from dormouse.statestore.codec import decode_delta
from dormouse.statestore.dynamodb_bodies import DynamoBodies
from dormouse.statestore.dynamodb_retirement import delete_all, retire_versions
from dormouse.statestore.dynamodb_snapshots import READS_AT_ONCE, DynamoSnapshots
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.items import Items
from dormouse.statestore.log import Log
from dormouse.statestore.pages import Head, Pages, Root, Snapshot
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.reading import Reader, fold_delta
from dormouse.statestore.snapshots import without_forgotten

KEEP_VERSIONS_MS = 15 * 60 * 1000
"""How long a version stays readable after the next was made: longer than a function runs."""
_VERSIONS_AT_ONCE = 16


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
        keep_versions_ms: int = KEEP_VERSIONS_MS,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""
        self._items, self._keep_versions_ms = items, keep_versions_ms
        self._versions = DynamoSnapshots(table_id, items, clock, patience)
        deltas = DynamoBodies(table_id, items)
        reader = Reader(Log(table_id, pages, patience), deltas, None, self._versions)
        super().__init__(reader, clock, ids, options)

    def maintain(self) -> None:
        """Put the states at the ends of pages into the tables. Any number may at once.

        Raises:
            InvariantError: the state contradicts itself; it was not put.
        """
        head, moved = self._log.head(), False
        for _ in range(_VERSIONS_AT_ONCE):
            if head is None or head.last_page <= _next_page(head.root.newest):
                break
            self._advance(head)
            head, moved = self._log.head(), True
        if moved and head is not None and head.root.newest is not None:
            self._retire(head.root.newest)

    def references_of(self, partition: str) -> tuple[int, list[Reference]]:
        """Give the newest version, and the references in one partition at it, by shard id.

        Reads that partition's references and, beside them, only what the commits since the end of
        the last page are judged by.
        """
        return self._patience.insist(lambda: self._references_of(partition))

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted."""
        super().destroy()
        self._patience.insist(lambda: delete_all(self._table_id, self._items))

    def _advance(self, head: Head) -> None:
        """Put the state at the end of the page that follows the root, and make it the root.

        That it is this version and no newer one makes all that is put for a version the same.
        """
        root = head.root.newest
        due = (_next_page(root) + 1) * log_pages.PAGE_CAPACITY
        before = TableState()
        if root is not None:
            try:
                before = self._patience.insist(lambda: self._versions.load(root))
            except NotFoundError as error:
                self._ensure_overtaken(root, error)
                return
        state = without_forgotten(self._patience.insist(lambda: self._folded(before, due)))
        if broken := broken_invariants(state):
            raise InvariantError(
                f"table {self._table_id} at version {due}: {'; '.join(broken[:5])}",
                hint="it was not written, so that the log still shows how it came to this",
            )
        made = Root(head.root.revision + 1, (self._versions.save("", state, root),))
        self._log.pages.set_root(self._table_id, made)

    def _retire(self, root: Snapshot) -> None:
        since_ms = self._clock.now_ms() - self._keep_versions_ms
        self._patience.insist(lambda: retire_versions(self._table_id, self._items, root, since_ms))

    def _references_of(self, partition: str) -> tuple[int, list[Reference]]:
        while True:
            head = self._log.head()
            root = head.root.newest if head else None
            if root is None:
                state = self._folded(TableState())
                return state.version, state.references_in(partition)
            try:
                state = self._folded(self._versions.open(root))
                found = state.references_in(partition)
                self._versions.ensure_readable(root)
            except NotFoundError as error:
                self._ensure_overtaken(root, error)
            else:
                return state.version, found

    def _folded(self, state: TableState, version: int | None = None) -> TableState:
        """Give the state at `version`, or the newest, made of an earlier one."""
        ids = self._log.ids_after(state.version)
        if version is not None:
            ids = ids[: version - state.version]
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            for entries in pool.map(self._entries, ids):
                state, _ = fold_delta(state, entries)
        return state

    def _entries(self, delta_id: str) -> tuple[Entry, ...]:
        try:
            return decode_delta(self._reader.deltas.get(delta_id), f"delta {delta_id}")
        except NotFoundError as error:
            self._log.head()  # raises if it is gone because the table is
            raise CorruptDataError(
                f"the state of table {self._table_id} lacks delta {delta_id}",
                hint="the log names it: restore the tables in DynamoDB to one point in time",
            ) from error

    def _ensure_overtaken(self, root: Snapshot, error: NotFoundError) -> None:
        """Raise unless there is a newer root than one whose version is not there any more."""
        head = self._log.head()
        if head is None or head.root.newest == root:
            raise CorruptDataError(
                f"the state of table {self._table_id} lacks version {root.version}",
                hint="the head names it: restore the tables in DynamoDB to one point in time",
            ) from error


def _next_page(root: Snapshot | None) -> int:
    """Give the page whose end is the next version to be put into the tables."""
    return root.version // log_pages.PAGE_CAPACITY if root else 0
