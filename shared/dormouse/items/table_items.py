"""The stored forms of tables and of the instance's properties; used by `tables`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from dormouse.access import AccessRules, load_rules
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.items.store import Item, Key
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.tables.properties import parse_settings
from dormouse.tables.table import Origin, Table

NAME, ID, COPY = "name#", "id#", "copy#"
"""What the owners of names, entries and copies begin with."""
INSTANCE, ACCESS = Key("tables", "instance"), Key("tables", "access")
Settings = dict[str, int | str]
_STORED_AS_THEY_ARE = (
    *("name", "online", "deleting", "created_ms", "log", "logs", "generation", "tree"),
    *("schema_generation", "reset_ms", "renamed_ms", "applied_requests", "restored"),
    "purged_version",
)


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
    stored = StoredTable(
        schema=_schema_body(table.schema),
        properties=table.settings,
        origins=tuple((origin.bucket, origin.table_name) for origin in table.origins),
        **{name: getattr(table, name) for name in _STORED_AS_THEY_ARE},
    )
    return msgspec.json.encode(stored).decode()


def settings_body(settings: Mapping[str, int | str]) -> str:
    """Return the stored form of the instance's properties."""
    return msgspec.json.encode(settings).decode()


@lru_cache(maxsize=64)
def id_named(item: Item) -> str:
    """Return the id of the table that the item of a name holds.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item.key.owner, name=item.key.owner.removeprefix(NAME)):
        return item.text()


@lru_cache(maxsize=8)
def settings_of(item: Item) -> Mapping[str, int | str]:
    """Return the properties an item sets.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item.key.owner):
        return parse_settings(decode_json(item.text(), dict[str, object]))


def rules_of(item: Item | None) -> AccessRules:
    """Return the access rules that an item holds; None without one.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    if item is None:
        return None
    with _read(item.key.owner):
        return load_rules(item.text())


def table_of(item: Item, defaults: Mapping[str, int | str], name: str = "") -> Table:
    """Return the table an item holds, over the instance's properties.

    `name` is what the table is known to be called, if the item does not say.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    try:
        return _table(item, tuple(defaults.items()))
    except CorruptDataError as error:
        table_id = _table_id(item)
        raise _damaged(error, name, table_id) from error


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
        stored = decode_json(item.text(), StoredTable)
        table = Table(
            id=_table_id(item),
            schema=_schema(bytes(stored.schema)),
            origins=tuple(Origin(*origin) for origin in stored.origins),
            **{name: getattr(stored, name) for name in _STORED_AS_THEY_ARE},
        )
        return table.with_settings(parse_settings(stored.properties), dict(defaults))


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
