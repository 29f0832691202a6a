"""The registry of tables: `ports.Tables`.

Items for each table, written and deleted together: ``name#<name>`` with the id, so that a name
belongs to one table; ``id#<id>`` with all the rest; and ``copy#id#<id>``, the same once more, from
which `table_repair` brings back what is damaged. The item ``instance``, and its copy, hold the
properties that tables have unless their own say otherwise; ``access``, and its copy, the access
rules.

What was deleted has a tombstone (`tombstones`). An id never has one and a table that is not in
deletion: each is put in a transaction that checks for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from dormouse.access import AccessRules, dump_rules
from dormouse.errors import (
    AlreadyExistsError,
    ContendedError,
    CorruptDataError,
    DamagedEntryError,
    NotFoundError,
)
from dormouse.items.store import (
    ABSENT,
    Change,
    Check,
    Delete,
    Item,
    ItemStore,
    Key,
    put,
    unchanged,
)
from dormouse.items.table_items import (
    ACCESS,
    COPY,
    ID,
    INSTANCE,
    NAME,
    Settings,
    copy_key,
    id_key,
    id_named,
    lost,
    name_key,
    rules_of,
    settings_body,
    settings_of,
    table_body,
    table_of,
)
from dormouse.items.table_repair import Repair
from dormouse.items.tombstones import ItemTombstones
from dormouse.tables.table import Table, Tombstone, can_be_name, with_applied_request

_Held = TypeVar("_Held")

ATTEMPTS = 8
"""How often a change starts over because another process changed the same table."""


class ItemTables:
    """`Tables` as items."""

    def __init__(self, items: ItemStore) -> None:
        """Keep them in `items`."""
        self._items, self._tombstones = items, ItemTombstones(items)

    def get(self, table_id: str) -> Table | None:
        """Return a table by id; None if there is none (any more)."""
        item, instance = self._items.get(id_key(table_id), INSTANCE)
        if item is None:
            self._check_gone(table_id)
            return None
        return table_of(item, self._settings(instance)[0])

    def named(self, name: str) -> Table | None:
        """Return a table by name; None if there is none."""
        item = self._get(name_key(name)) if can_be_name(name) else None
        if not item:
            return None
        table_id = id_named(item)
        entry, instance = self._items.get(id_key(table_id), INSTANCE)
        if entry:
            return table_of(entry, self._settings(instance)[0], name)
        if self._get(name_key(name)) != item:
            return None  # deleted just now, the name with it
        raise lost(id_key(table_id), name=name, table_id=table_id)

    def all(self) -> list[Table]:
        """Return all tables by name. Raises CorruptDataError if anything is damaged."""
        tables, damaged = self.list_readable()
        if damaged:
            raise damaged[0]
        return tables

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        """Return all readable tables by name, and the damaged entries."""
        items = self._items.scan("tables", ID, NAME)
        defaults, wrong = self._settings(self._get(INSTANCE))
        survey = _Survey()
        survey.add(items, defaults)
        # A table created or deleted during the listing may seem to lack an item: read it again.
        for name in survey.without_entry:
            survey.look(partial(self.named, name))
        for table in survey.without_name:
            survey.look(partial(self._found, table))
        tables = sorted(survey.by_id.values(), key=lambda table: table.name)
        return tables, [*survey.damaged, *([wrong] if wrong else [])]

    def repair(self, which: str = "") -> list[str]:
        """Restore damaged items of one table, or of all; return a description of each.

        Raises:
            CorruptDataError: some cannot be brought back; all else was.
        """
        items = self._items.scan("tables", ID, NAME, INSTANCE.owner, ACCESS.owner, COPY)
        return Repair(self._items, self._tombstones).repair(items, which)

    def create(self, table: Table) -> None:
        """Add a table; that it was added before, by the same id and name, is no error.

        Raises:
            AlreadyExistsError: the name is taken by another id, the id by another name, or the id
                has a tombstone.
        """
        self._begin_defaults()
        is_new = self._items.write(
            put(name_key(table.name), table.id, ABSENT),
            *_with_copy(id_key(table.id), table_body(table), None),
            self._tombstones.none_of(table.id),
        )
        if not is_new:
            kept = self.get(table.id)
            if kept is None or kept.name != table.name:
                raise AlreadyExistsError(f"there is a table {table.name!r} already")

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table by what `change` makes of the newest; return that.

        A change for a request whose change was made before is not made again.

        Raises:
            NotFoundError: there is no such table, or its deletion has begun, which nothing undoes.
            AlreadyExistsError: it is to have the name of another table.
            ContendedError: others kept changing the same table; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            item, instance = self._items.get(id_key(table_id), INSTANCE)
            if item is None:
                self._check_gone(table_id)
                raise NotFoundError(f"there is no table {table_id!r} any more")
            kept = table_of(item, self._settings(instance)[0])
            if request_id and request_id in kept.applied_requests:
                return kept
            wanted = with_applied_request(change(kept), request_id)
            if kept.deleting and not wanted.deleting:
                raise NotFoundError(f"table {kept.name!r} is being deleted")
            if wanted == kept:
                return wanted
            renaming = self._renaming(kept, wanted) if wanted.name != kept.name else []
            body = table_body(wanted)
            if self._items.write(*_with_copy(id_key(table_id), body, item), *renaming):
                return wanted
        raise ContendedError(f"others keep changing table {table_id!r}; try again")

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Keep for ever that an id is no table's; return the tombstone it has, the first one put.

        Return None, with nothing done, if the id is registered and not in deletion.
        """
        key = id_key(tombstone.table_id)
        for _ in range(ATTEMPTS):
            item = self._get(key)
            # an entry that seems to be in deletion may be damaged, so it is read as a whole
            if item is not None and not table_of(item, {}).deleting:
                return self.tombstone(tombstone.table_id)
            # the copy of an entry that was lost goes, so that nobody waits for a repair
            copies = [] if item else [Delete(copy_key(key))]
            no_table = Check(key, unchanged(item))
            if self._items.write(no_table, *copies, *self._tombstones.puts(tombstone)):
                return tombstone
            if found := self.tombstone(tombstone.table_id):
                return found
        raise ContendedError(f"others keep changing table {tombstone.table_id!r}; try again")

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if it has none."""
        return self._tombstones.get(table_id)

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones whose deletion began at a time or later, the oldest first.

        Besides, what is wrong with those that are damaged.
        """
        return self._tombstones.since(since_ms)

    def delete(self, table: Table) -> None:
        """Remove a table, under whatever name; none of that id is no error."""
        key = id_key(table.id)
        for _ in range(ATTEMPTS):
            item = self._get(key)
            named = table_of(item, {}) if item else table
            name = self._get(name_key(named.name))
            freed = self._freed(named, name, is_registered=item is not None)
            if self._items.write(Delete(key, unchanged(item)), Delete(copy_key(key)), *freed):
                return
        raise ContendedError(f"others keep changing table {table.id!r}; try again")

    def defaults(self) -> Settings:
        """Return the properties set for the instance, of their copy where they are damaged.

        Raises:
            CorruptDataError: both are damaged.
        """
        return dict(self._settings(self._get(INSTANCE))[0])

    def change_defaults(self, change: Callable[[Settings], Settings]) -> Settings:
        """Replace the properties set for the instance by what `change` makes of them; return that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
            CorruptDataError: what is set is damaged or lost; nothing was changed.
        """

        def read(item: Item | None) -> Settings:
            return dict(settings_of(item)) if item else {}

        return self._change(INSTANCE, read, lambda kept: change(kept.copy()), settings_body)

    def access_rules(self) -> AccessRules:
        """Return the access rules of the instance; None if access is by instance.

        Raises:
            CorruptDataError: they are damaged or lost, so nobody may be let in.
        """
        return rules_of(self._whole(ACCESS))

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        """Replace the access rules by what `change` makes of them; return that.

        Raises:
            ContendedError: others kept changing them; nothing was changed.
            CorruptDataError: they are damaged or lost; nothing was changed.
        """
        return self._change(ACCESS, rules_of, change, dump_rules)

    def _change(
        self,
        key: Key,
        read: Callable[[Item | None], _Held],
        change: Callable[[_Held], _Held],
        body: Callable[[_Held], str],
    ) -> _Held:
        """Replace what an item of the instance, and its copy, hold; return what they hold then."""
        for _ in range(ATTEMPTS):
            item = self._whole(key)
            kept = read(item)
            wanted = change(kept)
            if wanted == kept or self._items.write(*_with_copy(key, body(wanted), item)):
                return wanted
        raise ContendedError("others keep changing the instance; try again")

    def _whole(self, key: Key) -> Item | None:
        """Return an item that has a copy; None if it was never put.

        Raises:
            DamagedEntryError: only the copy is left: else it would be lost with the next change.
        """
        item = self._get(key)
        if not item and self._get(copy_key(key)):
            raise lost(key)
        return item

    def _check_gone(self, table_id: str) -> None:
        """Check that a table which is not there was deleted, or never was.

        Raises:
            DamagedEntryError: only the copy of its entry is left, so the entry was lost.
        """
        key = id_key(table_id)
        if self._get(copy_key(key)) and not self._get(key):  # else it was made just now
            raise lost(key, table_id=table_id)

    def _settings(
        self, item: Item | None
    ) -> tuple[Mapping[str, int | str], DamagedEntryError | None]:
        """Return the instance's properties, and what is wrong if they are those of the copy.

        All tables go by them: if they could not be read, one item would stop the whole instance.
        """
        try:
            if item:
                return settings_of(item), None
            wrong = lost(INSTANCE)
        except DamagedEntryError as error:
            wrong = error
        copy = self._get(copy_key(INSTANCE))
        if copy:
            return settings_of(copy), wrong
        if item:
            raise wrong
        return {}, None  # no table was ever created

    def _begin_defaults(self) -> None:
        """Put the instance's properties, of which none is set, unless they were ever there.

        So that they are missing always means that they were lost.
        """
        if self._get(INSTANCE):
            return
        copy = put(copy_key(INSTANCE), settings_body({}), ABSENT)
        self._items.write(put(INSTANCE, settings_body({}), ABSENT), copy)

    def _found(self, table: Table) -> Table | None:
        """Return a table whose name leads nowhere, if it is still there.

        Raises:
            DamagedEntryError: so it is, and its name still leads nowhere.
        """
        newest = self.get(table.id)
        if newest is None:
            return None
        name = self._get(name_key(newest.name))
        if not name or id_named(name) != newest.id:
            raise lost(name_key(newest.name), name=newest.name, table_id=newest.id)
        return newest

    def _renaming(self, kept: Table, wanted: Table) -> list[Change]:
        """Return the changes that give a table another name.

        Raises:
            AlreadyExistsError: another table has it.
        """
        new, old = self._items.get(name_key(wanted.name), name_key(kept.name))
        if new and id_named(new) != kept.id:
            raise AlreadyExistsError(f"there is a table {wanted.name!r} already")
        return [put(name_key(wanted.name), wanted.id, unchanged(new)), *self._freed(kept, old)]

    def _freed(
        self, table: Table, name: Item | None, *, is_registered: bool = True
    ) -> list[Change]:
        """Return the change that frees the name of a table, unless another table has it."""
        try:
            is_its_own = name is not None and id_named(name) == table.id
        except DamagedEntryError:
            is_its_own = is_registered  # then its entry says whose it is
        return [Delete(name_key(table.name), unchanged(name))] if is_its_own else []

    def _get(self, key: Key) -> Item | None:
        (item,) = self._items.get(key)
        return item


@dataclass
class _Survey:
    """The readable tables, the damaged entries, and names and entries that lack the other."""

    by_id: dict[str, Table] = field(default_factory=dict)
    damaged: list[DamagedEntryError] = field(default_factory=list)
    without_entry: list[str] = field(default_factory=list)
    without_name: list[Table] = field(default_factory=list)

    def add(self, items: Iterable[Item], defaults: Mapping[str, int | str]) -> None:
        """Survey all names and entries, in whatever order they were listed."""
        names: list[Item] = []
        entries: dict[str, Item] = {}
        for item in items:
            if item.key.owner.startswith(ID):
                entries[item.key.owner.removeprefix(ID)] = item
            else:
                names.append(item)
        ids: dict[str, str] = {}
        for item in names:
            try:
                ids[item.key.owner.removeprefix(NAME)] = id_named(item)
            except DamagedEntryError as error:
                self.damaged.append(error)
        called = {table_id: name for name, table_id in ids.items()}
        for table_id, item in entries.items():
            try:
                self.by_id[table_id] = table_of(item, defaults, called.get(table_id, ""))
            except DamagedEntryError as error:
                self.damaged.append(error)
        self.without_entry = [name for name, table_id in ids.items() if table_id not in entries]
        damaged = {error.name for error in self.damaged}
        self.without_name = [
            table
            for table in self.by_id.values()
            if ids.get(table.name) != table.id and table.name not in damaged
        ]

    def look(self, newest: Callable[[], Table | None]) -> None:
        """Add what a second read of a table returns."""
        try:
            found = newest()
        except DamagedEntryError as error:
            self.damaged.append(error)
            return
        if found is not None:
            self.by_id[found.id] = found


def _with_copy(key: Key, body: str, seen: Item | None) -> tuple[Change, Change]:
    """Return the changes that put an item in the place of the one seen, or of none, and its copy.

    A copy is put over whatever is there, but not of an item that nobody has seen.
    """
    copy = put(copy_key(key), body, ABSENT) if seen is None else put(copy_key(key), body)
    return put(key, body, unchanged(seen)), copy
