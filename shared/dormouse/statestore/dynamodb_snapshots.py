"""A state as items, one version over the other; a reader of one is not disturbed by the others.

From one version to the next only what changed is put, as items that say so of the next version
(`dynamodb_records`, `dynamodb_remembered`), and only while the root names the version before as the
newest. Which version follows is fixed (`dynamodb_store`): so what is put for it is the same whoever
puts it, and nobody puts it again later. Beside them, in the references table:

- ``<table>#V``, ``<snapshot id>``: that the version is readable, with its totals;
- ``<table>#G``, ``<version>#<number>``: the names whose older items count no more from it on.

A version goes by the deletion of its first item; only then are those deleted which no readable
version needs (`dynamodb_retirement`). So who finds it after all the rest has read all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.state import TableState
from dormouse.state_store import REBUILD
from dormouse.statestore.dynamodb_records import (
    KINDS,
    NAMED_BY_TWO,
    Kind,
    Name,
    changes,
    hashes,
    newest,
)
from dormouse.statestore.dynamodb_remembered import (
    learned,
    recalled,
    remembered_hash,
    remembered_since,
)
from dormouse.statestore.dynamodb_retirement import delete_unneeded, superseded_item, version_key
from dormouse.statestore.dynamodb_states import Records, Totals, lazy_state, settled, whole_state
from dormouse.statestore.items import Item, Items
from dormouse.statestore.log import CollectedError, Log
from dormouse.statestore.pages import Root, Snapshot

_NAMES_PER_LIST = 2000
_ITEMS_AT_ONCE = 1000
READS_AT_ONCE = 8
_BYTES_PER_RECORD = 200


class DynamoSnapshots:
    """`bodies.Snapshots` as items. A snapshot's id is its version."""

    def __init__(self, log: Log, items: Items) -> None:
        """Keep the versions of the table whose log it is."""
        self._log, self._table_id, self._items = log, log.table_id, items
        self._last: TableState | None = None

    def save(self, snapshot_id: str, state: TableState, previous: Snapshot | None) -> Snapshot:
        """Put what changed since `previous`, the newest; give what the head is to say of `state`.

        Raises:
            CollectedError: the root was changed meanwhile; some may have been put, for whoever puts
                the same again.
        """
        root = self._root()
        if root.newest != previous:
            raise CollectedError
        before = TableState() if previous is None else self.load(previous)
        totals = Totals.of(state)
        named = Item(version_key(self._table_id, snapshot_id), totals.values())
        puts = self._puts(before, state, named)
        while chunk := list(islice(puts, _ITEMS_AT_ONCE)):
            if not self._put_while(root.revision, chunk):
                raise CollectedError
        self._last = settled(state)
        records = totals.partitions + totals.shards + totals.references
        return Snapshot(snapshot_id, state.version, state.time_ms, _BYTES_PER_RECORD * records)

    def load(self, snapshot: Snapshot) -> TableState:
        """Return the state that was saved. Raises NotFoundError."""
        last = self._last
        if last is not None and last.version == snapshot.version:
            return last
        totals = self._totals(snapshot)
        records = {kind: self._all(kind, snapshot) for kind in KINDS}
        state = whole_state(totals, records, *self._remembered(totals))
        self.ensure_readable(snapshot)
        if (found := Totals.of(state)) != totals:
            raise CorruptDataError(
                f"version {totals.version} of table {self._table_id} is not whole: "
                f"{found}, {totals}",
                hint=REBUILD,
            )
        self._last = state
        return state

    def open(self, snapshot: Snapshot) -> TableState:
        """Return the state that was saved, most of which is read when it is asked for.

        What is asked for may raise UnavailableError, and is to be believed if `ensure_readable`
        holds afterwards. Raises NotFoundError.
        """
        totals = self._totals(snapshot)

        def read(kind: Kind, name: str) -> Records:
            place, of_several = Name(kind, name).key(self._table_id, 0), kind in NAMED_BY_TWO
            prefix = f"{name}/" if of_several else f"{name}@"
            items = self._items.query(place.table, place.hash, prefix=prefix)
            return newest(items, snapshot.version)

        return lazy_state(totals, read, self._all("job", snapshot), *self._remembered(totals))

    def forget(self) -> None:
        """Drop the state kept in memory, which is that of the version saved or loaded last."""
        self._last = None

    def ensure_readable(self, snapshot: Snapshot) -> None:
        """Raise NotFoundError if the version was retired."""
        self._totals(snapshot)

    def ids(self) -> Iterator[str]:
        """Return the ids of the versions that can be read."""
        keys = self._items.keys("references", version_key(self._table_id, "").hash)
        return (key.range for key in keys)

    def delete(self, snapshot_ids: Sequence[str]) -> None:
        """Make versions unreadable, and then delete what none needs that is left."""
        self._items.delete([version_key(self._table_id, each) for each in snapshot_ids])
        delete_unneeded(self._table_id, self._items)

    def _puts(self, before: TableState, after: TableState, version: Item) -> Iterator[Item]:
        """Return all items of a version, its own last."""
        superseded: list[Name] = []
        for change in changes(before, after):
            yield change.item(self._table_id, after.version)
            if change.supersedes:
                superseded.append(change.name)
        yield from learned(self._table_id, before, after)
        for number, start in enumerate(range(0, len(superseded), _NAMES_PER_LIST)):
            names = superseded[start : start + _NAMES_PER_LIST]
            yield superseded_item(self._table_id, after.version, number, names)
        yield version

    def _root(self) -> Root:
        head = self._log.patience.insist(self._log.head)
        return head.root if head else Root()

    def _put_while(self, revision: int, items: Sequence[Item]) -> bool:
        insist = self._log.patience.insist
        return insist(lambda: self._items.put_while(self._table_id, revision, items))

    def _all(self, kind: Kind, snapshot: Snapshot) -> Records:
        table, hash_keys = hashes(self._table_id, kind)

        def read(hash_key: str) -> Records:
            return newest(self._items.query(table, hash_key), snapshot.version)

        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            return {name: record for r in pool.map(read, hash_keys) for name, record in r.items()}

    def _remembered(self, totals: Totals) -> list[OverlayMap[str, int]]:
        return [
            recalled(
                self._items.query("references", remembered_hash(self._table_id, letter)),
                totals.version,
                totals.generation,
                since,
            )
            for letter, since in remembered_since(totals.sealed_to, totals.time_ms).items()
        ]

    def _totals(self, snapshot: Snapshot) -> Totals:
        key = version_key(self._table_id, snapshot.id)
        for item in self._items.query(key.table, key.hash, prefix=key.range):
            return Totals.of_values(item.values)
        raise NotFoundError(f"version {snapshot.version} of table {self._table_id} is not kept")
