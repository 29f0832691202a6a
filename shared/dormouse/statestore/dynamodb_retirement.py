"""What only versions needed that can be read no more; deleted after the items that named those.

Which items a version superseded is written down with it (``<table>#G``). Everything here may be
done by any number at once and again: what is deleted never comes back. Used by `dynamodb_store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dormouse.errors import CorruptDataError
from dormouse.statestore.dynamodb_records import KINDS, Kind, Name, hashes, is_gone, name_of, padded
from dormouse.statestore.dynamodb_remembered import (
    LETTERS,
    is_forgotten,
    remembered_hash,
    remembered_since,
)
from dormouse.statestore.dynamodb_states import Totals
from dormouse.statestore.items import Item, ItemKey, Items

_KIND_OF: dict[str, Kind] = {kind[0]: kind for kind in KINDS}


def version_key(table_id: str, snapshot_id: str) -> ItemKey:
    """Return the key of the item that says a version is readable."""
    return ItemKey("references", f"{table_id}#V", snapshot_id)


def superseded_item(table_id: str, version: int, number: int, names: Sequence[Name]) -> Item:
    """Return an item that lists names whose items older than `version` count no more from it on."""
    key = ItemKey("references", f"{table_id}#G", f"{padded(version)}#{number:06d}")
    return Item(key, {"names": tuple(name.kind[0] + name.text for name in names)})


def delete_unneeded(table_id: str, items: Items) -> None:
    """Delete what no version needs that can be read."""
    named = items.query("references", version_key(table_id, "").hash)
    readable = [Totals.of_values(item.values) for item in named]
    if readable:
        oldest = min(readable, key=lambda totals: totals.version)
        _delete_superseded(table_id, items, oldest)
        _delete_forgotten(table_id, items, oldest)


def delete_all(table_id: str, items: Items) -> None:
    """Delete all that makes up the versions of a table; its log must be closed."""
    places = [
        (table, key) for kind in KINDS for table, keys in [hashes(table_id, kind)] for key in keys
    ]
    hash_keys = [f"{table_id}#{letter}" for letter in ("V", "G", *LETTERS)]
    for table, hash_key in [*places, *(("references", key) for key in hash_keys)]:
        items.delete(list(items.keys(table, hash_key)))


def _delete_superseded(table_id: str, items: Items, oldest: Totals) -> None:
    """Delete the items which count no more from the oldest readable version on."""
    for listed in items.query("references", f"{table_id}#G", up_to=padded(oldest.version + 1)):
        version = int(listed.key.range.partition("#")[0])
        for name in _names(listed):
            older, gone = _superseded_by(table_id, items, name, version)
            items.delete(older)
            items.delete(gone)  # last: without it, an older one would count again
        items.delete([listed.key])


def _superseded_by(
    table_id: str, items: Items, name: Name, version: int
) -> tuple[list[ItemKey], list[ItemKey]]:
    """Return a name's items older than a version, and the one of the version if it is gone by
    it."""
    place = name.key(table_id, version)
    older, gone = [], []
    for item in items.query(place.table, place.hash, prefix=f"{name.text}@"):
        text, since = name_of(item.key)
        if text == name.text and since < version:
            older.append(item.key)
        elif item.key == place and is_gone(item.values):
            gone.append(item.key)
    return older, gone


def _delete_forgotten(table_id: str, items: Items, oldest: Totals) -> None:
    """Delete what the oldest readable version does not remember any more."""
    for letter, since in remembered_since(oldest.sealed_to, oldest.time_ms).items():
        for item in items.query("references", remembered_hash(table_id, letter)):
            generation = item.values.get("generation")
            past = isinstance(generation, int) and generation < oldest.generation
            if not past and not is_forgotten(item, since):
                break
            items.delete([item.key])


def _names(listed: Item) -> Iterator[Name]:
    names = listed.values.get("names")
    if not isinstance(names, tuple):
        raise CorruptDataError(f"item {listed.key} lists no names")
    return (Name(_KIND_OF[text[0]], text[1:]) for text in names)
