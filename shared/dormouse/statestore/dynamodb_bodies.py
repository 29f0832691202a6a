"""Bodies as items of the references table, in as many parts as the limit of an item asks for.

They lie under ``<table>#D<lane>``, each part under ``<body id>#<number>``; the first part says how
many there are. Used by `dynamodb_store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dormouse.errors import NotFoundError
from dormouse.statestore.dynamodb_records import lane, lanes
from dormouse.statestore.items import Item, ItemKey, Items

PART_BYTES = 350_000
"""Below the 400 KB an item may have, with room for its keys."""


class DynamoBodies:
    """`bodies.Bodies` as items."""

    def __init__(self, table_id: str, items: Items) -> None:
        """Keep bodies of `table_id`."""
        self._table_id, self._items = table_id, items

    def put(self, body_id: str, body: bytes) -> None:
        """Keep a body; one that is there under this id is this one, put before."""
        parts = [body[at : at + PART_BYTES] for at in range(0, max(1, len(body)), PART_BYTES)]
        for number, part in enumerate(parts):
            key = ItemKey("references", self._hash(body_id), f"{body_id}#{number:04d}")
            self._items.put(Item(key, {"body": part, "parts": len(parts)}))

    def get(self, body_id: str) -> bytes:
        """Return a body. Raises NotFoundError, also if only some of it is there."""
        found = list(self._parts(body_id))
        if not found or len(found) != found[0].values.get("parts"):
            raise NotFoundError(f"there is no body {body_id!r} of table {self._table_id}")
        return b"".join(data for p in found if isinstance(data := p.values.get("body"), bytes))

    def ids(self) -> Iterator[str]:
        """Return the ids of all bodies there are, some of which may be incomplete."""
        for hash_key in lanes(f"{self._table_id}#D"):
            last = ""
            for key in self._items.keys("references", hash_key):
                body_id = key.range.rpartition("#")[0]
                if body_id != last:
                    yield body_id
                last = body_id

    def delete(self, body_ids: Sequence[str]) -> None:
        """Delete bodies; one that is not there is no error."""
        keys = self._items.keys
        hashed = [(body_id, self._hash(body_id)) for body_id in body_ids]
        self._items.delete(
            [key for name, place in hashed for key in keys("references", place, prefix=f"{name}#")]
        )

    def _parts(self, body_id: str) -> Iterator[Item]:
        return self._items.query("references", self._hash(body_id), prefix=f"{body_id}#")

    def _hash(self, body_id: str) -> str:
        return f"{self._table_id}#D{lane(body_id)}"
