"""A state as items, one version over the other; a reader of one is not disturbed by the others.

From one version to the next only what changed is put, as items that say so of the next version
(`dynamodb_records`, `dynamodb_remembered`), and only while the root is still the version before.
The store's versions are the ends of pages; what is put for one is therefore the same whoever puts
it, and nobody puts it again later. Beside them, in the references table:

- ``<table>#V``, ``<version>``: that the version is readable, with its totals;
- ``<table>#G``, ``<version>#<number>``: the names whose older items count no more from it on.

A version is retired by deleting its item; only then are those deleted which no readable version
needs (`dynamodb_retirement`). So who finds its version's item after the rest has read it whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.layered import LayeredMap
from dormouse.model.state import TableState
from dormouse.ports import Clock
from dormouse.statestore.dynamodb_records import (
    KINDS,
    Kind,
    Name,
    changes,
    hashes,
    newest,
    padded,
)
from dormouse.statestore.dynamodb_remembered import (
    REMEMBERED_MS,
    learned,
    recalled,
    remembered_hash,
)
from dormouse.statestore.dynamodb_retirement import superseded_item, version_key
from dormouse.statestore.dynamodb_states import Records, Totals, lazy_state, whole_state
from dormouse.statestore.items import Item, Items
from dormouse.statestore.pages import Snapshot
from dormouse.statestore.patience import Patience

_NAMES_PER_LIST = 2000
_ITEMS_AT_ONCE = 1000
READS_AT_ONCE = 8
_BYTES_PER_RECORD = 200


class DynamoSnapshots:
    """`bodies.Snapshots` as items. A snapshot's id is its version."""

    def __init__(self, table_id: str, items: Items, clock: Clock, patience: Patience) -> None:
        """Keep the versions of `table_id`."""
        self._table_id, self._items = table_id, items
        self._clock, self._patience = clock, patience
        self._last: TableState | None = None

    def save(self, snapshot_id: str, state: TableState, previous: Snapshot | None) -> Snapshot:
        """Put what changed since `previous`; give what the head is to say of `state`.

        If the root moves meanwhile it is to this same version, put by another; then some of it is
        left unput, and the head refuses the root given here. `snapshot_id` is not used.
        """
        before = TableState() if previous is None else self.load(previous)
        totals = Totals.of(state, self._clock.now_ms())
        key = version_key(self._table_id, state.version)
        puts = self._puts(before, state, Item(key, totals.values()))
        while chunk := list(islice(puts, _ITEMS_AT_ONCE)):
            if not self._put_while(previous, chunk):
                break
        else:
            self._last = state
        records = totals.partitions + totals.shards + totals.references
        size_bytes = _BYTES_PER_RECORD * records
        return Snapshot(padded(state.version), state.version, state.time_ms, size_bytes)

    def load(self, root: Snapshot) -> TableState:
        """Give the state that was saved. Raises NotFoundError."""
        last = self._last
        if last is not None and last.version == root.version:
            return last
        totals = self._totals(root)
        records = {kind: self._all(kind, root) for kind in KINDS}
        state = whole_state(totals, records, *self._remembered(totals))
        self.ensure_readable(root)
        if (found := Totals.of(state)) != totals:
            raise CorruptDataError(
                f"version {root.version} of table {self._table_id} is not whole: {found}, {totals}",
                hint="restore its tables in DynamoDB to one point in time",
            )
        self._last = state
        return state

    def open(self, root: Snapshot) -> TableState:
        """Give the state that was saved, most of which is read when it is asked for.

        What is asked for may raise UnavailableError, and is to be believed if `ensure_readable`
        holds afterwards. Raises NotFoundError.
        """
        totals = self._totals(root)

        def read(kind: Kind, name: str) -> Records:
            place, of_partition = Name(kind, name).key(self._table_id, 0), kind == "reference"
            prefix = f"{name}/" if of_partition else f"{name}@"
            items = self._items.query(place.table, place.hash, prefix=prefix)
            return newest(items, root.version)

        return lazy_state(totals, read, self._all("job", root), *self._remembered(totals))

    def ensure_readable(self, root: Snapshot) -> None:
        """Raise NotFoundError if the version was retired."""
        self._totals(root)

    def ids(self) -> Iterator[str]:
        """Give the ids of the versions that can be read."""
        versions = self._items.query("references", version_key(self._table_id, 0).hash)
        return (item.key.range for item in versions)

    def delete(self, snapshot_ids: Sequence[str]) -> None:
        """Retire versions; what only they need is left to `dynamodb_retirement`."""
        self._items.delete([version_key(self._table_id, int(v)) for v in snapshot_ids])

    def _puts(self, before: TableState, after: TableState, version: Item) -> Iterator[Item]:
        """Give all items of a version, its own last."""
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

    def _put_while(self, root: Snapshot | None, items: Sequence[Item]) -> bool:
        return self._patience.insist(lambda: self._items.put_while(self._table_id, root, items))

    def _all(self, kind: Kind, root: Snapshot) -> Records:
        table, hash_keys = hashes(self._table_id, kind)

        def read(hash_key: str) -> Records:
            return newest(self._items.query(table, hash_key), root.version)

        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            return {name: record for r in pool.map(read, hash_keys) for name, record in r.items()}

    def _remembered(self, totals: Totals) -> list[LayeredMap[str, int]]:
        return [
            recalled(
                self._items.query("references", remembered_hash(self._table_id, letter)),
                letter,
                totals.version,
                totals.generation,
                totals.time_ms,
            )
            for letter in REMEMBERED_MS
        ]

    def _totals(self, root: Snapshot) -> Totals:
        key = version_key(self._table_id, root.version)
        for item in self._items.query(key.table, key.hash, prefix=key.range):
            return Totals.of_values(item.values)
        raise NotFoundError(f"version {root.version} of table {self._table_id} is not kept")
