"""The registry of tables: unique names, immutable ids.

Items for each table, written and deleted together: ``name#<name>`` with the id, so that a name
belongs to one table; ``id#<id>`` with all the rest; and ``copy#id#<id>``, the same once more, from
which `Repair` brings back what is damaged. The item ``instance``, and its copy, hold the properties
of tables unless their own say otherwise; ``access``, and its copy, the access rules.

What was deleted has a tombstone. An id never has one and a table that is not in
deletion: each is put in a transaction that checks for the other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import msgspec

from dormouse.access import AccessRules, dump_rules, load_rules
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
    has,
    put,
    put_json,
    unchanged,
)
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.tables.properties import parse_settings, properties_of
from dormouse.tables.table import Origin, Table, Tombstone, can_be_name, with_applied_request

_Held = TypeVar("_Held")

ATTEMPTS = 8
"""How often a change starts over because another process changed the same table."""
NAME, ID, COPY = "name#", "id#", "copy#"
"""What the owners of names, entries and copies begin with."""
INSTANCE, ACCESS = Key("tables", "instance"), Key("tables", "access")
Settings = dict[str, int | str]
_OF_INSTANCE = {INSTANCE: "the instance's properties", ACCESS: "the access rules"}


class ItemTables:
    """The tables of an instance, its properties and its access rules."""

    def __init__(self, items: ItemStore) -> None:
        self._items = items

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
        items = {item.key.owner: item for item in self._items.scan("tables", ID, NAME)}
        defaults, wrong = self._settings(self._get(INSTANCE))
        damaged: list[DamagedEntryError] = []

        def readable(parse: Callable[..., _Held], *of: object) -> _Held | None:
            try:
                return parse(*of)
            except DamagedEntryError as error:
                damaged.append(error)
                return None

        ids = {
            owner.removeprefix(NAME): readable(id_named, item)
            for owner, item in items.items()
            if owner.startswith(NAME)
        }
        called = {table_id: name for name, table_id in ids.items()}
        tables = [
            readable(table_of, item, defaults, called.get(owner.removeprefix(ID), ""))
            for owner, item in items.items()
            if owner.startswith(ID)
        ]
        # A table created or deleted during the listing may seem to lack an item: read it again.
        damaged_names = {error.name for error in damaged}
        by_id = {table.id: table for table in tables if table}
        again = [
            readable(self.named, name)
            for name, table_id in ids.items()
            if table_id and ID + table_id not in items
        ] + [
            readable(self._found, table)
            for table in by_id.values()
            if ids.get(table.name) != table.id and table.name not in damaged_names
        ]
        by_id |= {table.id: table for table in again if table}
        in_order = sorted(by_id.values(), key=lambda table: table.name)
        return in_order, [*damaged, *([wrong] if wrong else [])]

    def repair(self, which: str = "") -> list[str]:
        """Restore damaged items of a table, by name or id, or of all; return a description of each.
        Raises CorruptDataError if some cannot be restored; all others were.
        """
        items = self._items.scan("tables", ID, NAME, INSTANCE.owner, ACCESS.owner, COPY)
        return Repair(self._items).repair(items, which)

    def create(self, table: Table) -> None:
        """Add a table; that it was added before, by the same id and name, is no error.
        Raises AlreadyExistsError: its name is taken, or its id is dead.
        """
        self._begin_defaults()
        is_new = self._items.write(
            put(name_key(table.name), table.id, ABSENT),
            *_with_copy(id_key(table.id), table_body(table), None),
            Check(_tombstone_key(table.id), ABSENT),
        )
        if not is_new:
            before = self.get(table.id)
            if before is None or before.name != table.name:
                raise AlreadyExistsError(f"there is a table {table.name!r} already")

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table by what `change` makes of the newest; return that.

        `change` may be called several times. With a `request_id`, the change takes effect once,
        however often it is requested. Errors raised by `change` are passed on.

        Raises:
            NotFoundError: there is no such table, or it is being deleted, which cannot be undone.
            AlreadyExistsError: another table has the new name.
            ContendedError: concurrent changes won every attempt; nothing was changed.
        """
        for _ in range(ATTEMPTS):
            item, instance = self._items.get(id_key(table_id), INSTANCE)
            if item is None:
                self._check_gone(table_id)
                raise NotFoundError(f"there is no table {table_id!r} any more")
            before = table_of(item, self._settings(instance)[0])
            if request_id and request_id in before.applied_requests:
                return before
            after = with_applied_request(change(before), request_id)
            if before.deleting and not after.deleting:
                raise NotFoundError(f"table {before.name!r} is being deleted")
            if after == before:
                return after
            renaming = self._renaming(before, after) if after.name != before.name else []
            body = table_body(after)
            if self._items.write(*_with_copy(id_key(table_id), body, item), *renaming):
                return after
        raise ContendedError(f"others keep changing table {table_id!r}; try again")

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        """Keep for ever that an id is no table's; return its tombstone, the first one put.

        Return None, and change nothing, if a table with this id is registered and stays.
        """
        key = id_key(tombstone.table_id)
        for _ in range(ATTEMPTS):
            item = self._get(key)
            # an entry that seems to be in deletion may be damaged, so it is read as a whole
            if item is not None and not table_of(item, {}).deleting:
                return self.tombstone(tombstone.table_id)
            # the copy of an entry that was lost goes, so that nobody waits for a repair
            copies: list[Change] = [] if item else [Delete(copy_key(key))]
            no_table = Check(key, unchanged(item))
            first = put_json(_tombstone_key(tombstone.table_id), tombstone, ABSENT)
            copies.append(put_json(_tombstone_place(tombstone), tombstone))
            if self._items.write(no_table, first, *copies):
                return tombstone
            if earlier := self.tombstone(tombstone.table_id):
                return earlier
        raise ContendedError(f"others keep changing table {tombstone.table_id!r}; try again")

    def tombstone(self, table_id: str) -> Tombstone | None:
        """Return the tombstone of an id; None if it has none."""
        item = self._get(_tombstone_key(table_id))
        return _tombstone(item) if item else None

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        """Return the tombstones of deletions since a time, in order, and the damaged ones."""
        tombstones, damaged = [], []
        for item in self._items.query("state", IN_ORDER, least=_time_text(since_ms)):
            try:
                tombstones.append(_tombstone(item))
            except CorruptDataError as error:
                damaged.append(error)
        return tombstones, damaged

    def delete(self, table: Table) -> None:
        """Remove a table, under whatever name; none of that id is no error."""
        key = id_key(table.id)
        for _ in range(ATTEMPTS):
            item = self._get(key)
            newest = table_of(item, {}) if item else table
            name = self._get(name_key(newest.name))
            freed = self._freed(newest, name, is_registered=item is not None)
            if self._items.write(Delete(key, unchanged(item)), Delete(copy_key(key)), *freed):
                return
        raise ContendedError(f"others keep changing table {table.id!r}; try again")

    def defaults(self) -> Settings:
        """Return the properties set for the instance, of their copy where they are damaged."""
        return dict(self._settings(self._get(INSTANCE))[0])

    def change_defaults(self, change: Callable[[Settings], Settings]) -> Settings:
        """Replace the properties set for the instance by what `change` makes of them.
        Raises ContendedError: concurrent changes won every attempt; nothing was changed.
        """

        def read(item: Item | None) -> Settings:
            return dict(settings_of(item)) if item else {}

        return self._change(INSTANCE, read, lambda settings: change(settings.copy()), settings_body)

    def access_rules(self) -> AccessRules:
        """Return the access rules of the instance; None if access is by instance.
        Raises CorruptDataError: they are damaged or lost, so nobody may be let in.
        """
        return rules_of(self._whole(ACCESS))

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        """Replace the access rules by what `change` makes of them; return that.

        Raises:
            ContendedError: concurrent changes won every attempt; nothing was changed.
            CorruptDataError: they are damaged or lost; nothing was changed.
        """
        return self._change(ACCESS, rules_of, change, dump_rules)

    def _change(
        self,
        key: Key,
        parse: Callable[[Item | None], _Held],
        change: Callable[[_Held], _Held],
        body: Callable[[_Held], str],
    ) -> _Held:
        """Replace what an item of the instance, and its copy, hold; return what they hold then."""
        for _ in range(ATTEMPTS):
            item = self._whole(key)
            before = parse(item)
            after = change(before)
            if after == before or self._items.write(*_with_copy(key, body(after), item)):
                return after
        raise ContendedError("others keep changing the instance; try again")

    def _whole(self, key: Key) -> Item | None:
        """Return an item that has a copy; None if it was never put.
        Raises DamagedEntryError: only the copy is left: else it would be lost with the next change.
        """
        item = self._get(key)
        if not item and self._get(copy_key(key)):
            raise lost(key)
        return item

    def _check_gone(self, table_id: str) -> None:
        """Check that a table which is not there was deleted, or never was.
        Raises DamagedEntryError: only the copy of its entry is left, so the entry was lost.
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
        Raises DamagedEntryError: so it is, and its name still leads nowhere.
        """
        newest = self.get(table.id)
        if newest is None:
            return None
        name = self._get(name_key(newest.name))
        if not name or id_named(name) != newest.id:
            raise lost(name_key(newest.name), name=newest.name, table_id=newest.id)
        return newest

    def _renaming(self, before: Table, after: Table) -> list[Change]:
        """Return the changes that give a table a name. Raises AlreadyExistsError."""
        new, old = self._items.get(name_key(after.name), name_key(before.name))
        if new and id_named(new) != before.id:
            raise AlreadyExistsError(f"there is a table {after.name!r} already")
        return [put(name_key(after.name), after.id, unchanged(new)), *self._freed(before, old)]

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


def _with_copy(key: Key, body: str, before: Item | None) -> tuple[Change, Change]:
    """Return the changes that put an item in the place of the one seen, or of none, and its copy.

    A copy is put over whatever is there, but not of an item that nobody has seen.
    """
    copy = put(copy_key(key), body, ABSENT) if before is None else put(copy_key(key), body)
    return put(key, body, unchanged(before)), copy


class StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table but for its id, which is its place."""

    name: str
    schema: msgspec.Raw
    properties: dict[str, int | str]
    online: bool
    created_ms: int
    deleting: bool = False
    log: str = ""
    logs: tuple[str, ...] = ()
    generation: int = 0
    schema_generation: int = 0
    reset_ms: int = 0
    tree: str = ""
    renamed_ms: int = 0
    applied_requests: tuple[str, ...] = ()
    origins: tuple[tuple[str, str], ...] = ()
    restored: str = ""
    purged_version: int = 0
    finer_until_ms: int = 0


_STORED_AS_THEY_ARE = set(StoredTable.__struct_fields__) - {"schema", "properties", "origins"}


def name_key(name: str) -> Key:
    """Return the key of the item that holds the id of the table of this name."""
    return Key("tables", NAME + name)


def id_key(table_id: str) -> Key:
    """Return the key of the item that holds all of a table."""
    return Key("tables", ID + table_id)


def copy_key(key: Key) -> Key:
    """Return the key of the copy of an item."""
    return Key("tables", COPY + key.owner)


def table_body(table: Table) -> str:
    """Return the stored form of a table."""
    form = StoredTable(
        schema=_schema_body(table.schema),
        properties=table.settings,
        origins=tuple((origin.bucket, origin.table_name) for origin in table.origins),
        **{name: getattr(table, name) for name in _STORED_AS_THEY_ARE},
    )
    return msgspec.json.encode(form).decode()


def settings_body(settings: Mapping[str, int | str]) -> str:
    """Return the stored form of the instance's properties."""
    return msgspec.json.encode(settings).decode()


@lru_cache(maxsize=64)
def id_named(item: Item) -> str:
    """Return the table id that the item of a name holds. Raises DamagedEntryError."""
    with _read(item.key.owner, name=item.key.owner.removeprefix(NAME)):
        return item.text()


@lru_cache(maxsize=8)
def settings_of(item: Item) -> Mapping[str, int | str]:
    """Return the properties an item sets. Raises DamagedEntryError: the item is damaged."""
    with _read(item.key.owner):
        return parse_settings(decode_json(item.text(), dict[str, object]))


def rules_of(item: Item | None) -> AccessRules:
    """Return the access rules of an item; None without one. Raises DamagedEntryError."""
    if item is None:
        return None
    with _read(item.key.owner):
        return load_rules(item.text())


def table_of(item: Item, defaults: Mapping[str, int | str], name: str = "") -> Table:
    """Return the table an item holds, over the instance's properties.

    `name` is what the table is known to be called, if the item does not say.
    Raises DamagedEntryError: the item is damaged.
    """
    try:  # not within `_read`, whose calls would be most of those of a table that is cached
        return _table(item, tuple(defaults.items()))
    except CorruptDataError as error:
        raise _damaged(error, name, _table_id(item)) from error


def lost(key: Key, *, name: str = "", table_id: str = "") -> DamagedEntryError:
    """Return the error for a missing item that others depend on."""
    return DamagedEntryError(
        f"the registry's item {key.owner!r} is missing",
        name=name,
        table_id=table_id,
        hint=_hint(name or table_id),
    )


@lru_cache(maxsize=64)
def _table(item: Item, defaults: tuple[tuple[str, int | str], ...]) -> Table:
    """Return the table of an item: it is read for each request, and rarely changes."""
    with raise_corrupt(f"the registry's item {item.key.owner!r} cannot be read"):
        form = decode_json(item.text(), StoredTable)
        settings = parse_settings(form.properties)
        return Table(
            id=_table_id(item),
            schema=_schema(bytes(form.schema)),
            properties=properties_of(dict(defaults), settings),
            own=frozenset(settings),
            origins=tuple(Origin(*origin) for origin in form.origins),
            **{name: getattr(form, name) for name in _STORED_AS_THEY_ARE},
        )


@lru_cache(maxsize=64)
def _schema(body: bytes) -> Schema:
    return Schema.loads(body.decode())


@lru_cache(maxsize=64)
def _schema_body(schema: Schema) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(schema.to_json()))


def _table_id(item: Item) -> str:
    return item.key.owner.removeprefix(COPY).removeprefix(ID)


@contextmanager
def _read(owner: str, *, name: str = "") -> Iterator[None]:
    """Raise what is wrong with an item as DamagedEntryError, with how to bring it back."""
    try:
        with raise_corrupt(f"the registry's item {owner!r} cannot be read"):
            yield
    except CorruptDataError as error:
        raise _damaged(error, name) from error


def _damaged(error: CorruptDataError, name: str, table_id: str = "") -> DamagedEntryError:
    hint = error.hint or _hint(name or table_id)
    return DamagedEntryError(str(error), name=name, table_id=table_id, hint=hint)


def _hint(which: str) -> str:
    command = f"dormouse rebuild {which}".rstrip()
    return f"`{command}` brings it back from the registry's copy"


@dataclass
class Repair:
    """One repair of the registry: what is damaged becomes what it was, from the copy beside it.

    An entry and its copy are written at once, so either is what the other was. A name is made again
    of the entry that has it. Each item is put only over the very item that was looked at, and only
    while its copy is the one that was looked at: any number may do this at once, beside all others,
    and a table that is deleted meanwhile stays deleted.
    """

    items: ItemStore
    repaired: list[str] = field(default_factory=list)
    hopeless: list[str] = field(default_factory=list)
    unread: bool = False
    """Whether neither some entry nor its copy can be read: then its name is unknown."""

    def repair(self, items: Iterable[Item], which: str) -> list[str]:
        """Mend what of these items is damaged, of the table of this name or id, if one is given.
        Raises CorruptDataError: some cannot be repaired; all else was.
        """
        there = {item.key.owner: item for item in items}
        entries = {owner.removeprefix(COPY) for owner in there if not owner.startswith(NAME)}
        tables: dict[str, tuple[Table, str]] = {}
        for owner in sorted(entries):
            key = Key("tables", owner)
            body = self._whole_entry(key, there.get(owner), there.get(COPY + owner), which)
            if body is not None and owner.startswith(ID):
                table = _table_in(key, body)
                tables[table.name] = table, body
        names = {owner.removeprefix(NAME) for owner in there if owner.startswith(NAME)}
        for name in sorted({*tables, *names}):
            entry = tables.get(name)
            if which in ("", name, entry[0].id if entry else name):
                self._mend_name(name, entry, there.get(NAME + name))
        if not which:
            self._mend_tombstones()
        if self.hopeless:
            raise CorruptDataError(
                f"of {', '.join(self.hopeless)} the copy is damaged or missing too",
                hint="restore them from a backup: a folder's dormouse.sqlite; on AWS the table of "
                "tables in DynamoDB, or that of logs, from a point in time",
            )
        return self.repaired

    def _whole_entry(
        self, key: Key, item: Item | None, copy: Item | None, which: str
    ) -> str | None:
        """Return an entry as it should be, and put it, or its copy, where it is damaged."""
        good_item, good_copy = _is_whole(item), _is_whole(copy)
        good = item if good_item else copy if good_copy else None
        body = good.text() if good else None
        if good_item and good_copy:
            return body
        self.unread |= body is None  # a name that leads nowhere may be this one's, so it stays
        table = _table_in(key, body) if body is not None and key.owner.startswith(ID) else None
        names = (table.id, table.name) if table else (key.owner.removeprefix(ID),)
        if which and which not in names:
            return body
        if body is None:
            self.hopeless.append(repr(key.owner))
        elif good_item:
            what = f"the copy of {_described(key, table)}"
            self._write(what, put(copy_key(key), body, unchanged(copy)), Check(key, has(key, body)))
        else:
            # A table that was deleted meanwhile must not come back: its copy went, or its
            # tombstone was put.
            checks = [Check(copy_key(key), unchanged(copy))]
            if table is not None and not table.deleting:
                checks.append(Check(_tombstone_key(table.id), ABSENT))
            self._write(_described(key, table), put(key, body, unchanged(item)), *checks)
        return body

    def _mend_name(self, name: str, owner: tuple[Table, str] | None, item: Item | None) -> None:
        """Let a name lead to the table that has it, or nowhere."""
        key, leads_to = name_key(name), _leads_to(item)
        if owner is not None:
            table, body = owner
            if leads_to != table.id:
                entry = id_key(table.id)
                change = put(key, table.id, unchanged(item))
                self._write(f"the name {name!r}", change, Check(entry, has(entry, body)))
        elif item and not leads_to and self.unread:
            self.hopeless.append(repr(key.owner))
        elif item and not leads_to:
            free = Delete(key, unchanged(item))
            self._write(f"the name {name!r}, which no table has", free)

    def _mend_tombstones(self) -> None:
        for item in self.items.query("state", IN_ORDER):
            table_id = item.key.name.partition("#")[2]
            (other,) = self.items.get(_tombstone_key(table_id))
            tombstone, copy = _readable_tombstone(item), _readable_tombstone(other)
            name = f"the tombstone of table {table_id!r}"
            if tombstone is not None and copy is None:
                self._write(name, put_json(_tombstone_key(table_id), tombstone, unchanged(other)))
            elif tombstone is None and copy is not None and _tombstone_place(copy) == item.key:
                self._write(name, put_json(item.key, copy, unchanged(item)))
            elif tombstone is None:
                self.hopeless.append(name)

    def _write(self, what: str, *changes: Change) -> None:
        if self.items.write(*changes):  # else others changed it just now, which mends it too
            self.repaired.append(what)


def _leads_to(item: Item | None) -> str:
    try:
        return id_named(item) if item else ""
    except CorruptDataError:
        return ""


def _table_in(key: Key, body: str) -> Table:
    """Return the table of a body that was verified."""
    return table_of(put(key, body, ABSENT).item(), {})


def _is_whole(item: Item | None) -> bool:
    if item is None:
        return False
    owner = item.key.owner.removeprefix(COPY)
    try:
        if owner.startswith(ID):
            table_of(item, {})
        else:
            rules_of(item) if owner == ACCESS.owner else settings_of(item)
    except CorruptDataError:
        return False
    return True


def _described(key: Key, table: Table | None) -> str:
    if table is not None:
        return f"the entry of table {table.name!r}"
    return _OF_INSTANCE.get(key, f"the item {key.owner!r}")


# Tombstones of tables lie beside the logs, where closed logs lie for ever too, because the registry
# itself is listed each minute and must not grow with every table that ever was. Two items, put at
# once:
#
# - ``<table>#T``: the tombstone, found by the id alone;
# - ``(tombstones)``, ``<deleted_ms>#<id>``: the same once more, in the order of time. A look at the
#   newest costs as much as there are, and what is older rests without a cost.


IN_ORDER = "(tombstones)"


def _tombstone_key(table_id: str) -> Key:
    return Key("state", f"{table_id}#T")


def _tombstone_place(tombstone: Tombstone) -> Key:
    return Key("state", IN_ORDER, f"{_time_text(tombstone.deleted_ms)}#{tombstone.table_id}")


def _time_text(time_ms: int) -> str:
    return f"{max(0, time_ms):015d}"


def _readable_tombstone(item: Item | None) -> Tombstone | None:
    try:
        return _tombstone(item) if item else None
    except CorruptDataError:
        return None


def _tombstone(item: Item) -> Tombstone:
    problem = f"the tombstone {item.key.owner!r}, {item.key.name} cannot be read"
    with raise_corrupt(problem, hint="`dormouse rebuild` brings it back from its copy"):
        return decode_json(item.text(), Tombstone)
