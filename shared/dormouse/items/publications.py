"""The records of what is published of each table: `ports.publications.Publications`.

A table has one item, ``<table>#I``, with the record as JSON. They lie beside the logs and not in
the registry, which is listed each minute.
"""

from __future__ import annotations

import msgspec

from dormouse.items.store import ABSENT, Delete, If, ItemStore, Key, Put, has, put
from dormouse.ports import LOST_PUBLICATION
from dormouse.state.versions import PublicationRecord
from dormouse.stored.decoding import decode_json, raise_corrupt


class ItemPublications:
    """`Publications` as items."""

    def __init__(self, items: ItemStore) -> None:
        """Keep them in `items`."""
        self._items = items

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none."""
        (item,) = self._items.get(_key(table_id))
        if item is None:
            return None
        problem = f"the record of what is published of table {table_id} is damaged"
        with raise_corrupt(problem, hint=LOST_PUBLICATION):
            return decode_json(item.text(), PublicationRecord)

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        when = has(_key(table_id), **_put(table_id, old, ABSENT).parts) if old else ABSENT
        return self._items.write(_put(table_id, new, when))

    def delete(self, table_id: str) -> None:
        """Delete the record of a table, damaged or not; none is no error."""
        self._items.write(Delete(_key(table_id)))


def _key(table_id: str) -> Key:
    return Key("state", f"{table_id}#I")


def _put(table_id: str, record: PublicationRecord, when: If) -> Put:
    return put(_key(table_id), msgspec.json.encode(record).decode(), when)
