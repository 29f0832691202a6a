"""Items of three DynamoDB tables, as a small protocol the DynamoDB store is made over.

An item has a hash key, under which items lie in the order of their range keys, and values. Items
are never changed: they are put once, or again as they were, and deleted at the end. The store is
made of `dynamodb_bodies` and `dynamodb_snapshots`; `dynamodb_items` has the real items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ItemTable = Literal["references", "shards", "partitions"]
Value = str | int | bytes | bool | tuple[str, ...]
Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ItemKey:
    """Where an item lies."""

    table: ItemTable
    hash: str
    range: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item as it lies there."""

    key: ItemKey
    values: Values

    def size_bytes(self) -> int:
        """Return about what DynamoDB counts of it towards its limits."""
        sizes = (len(name) + _size_bytes(value) for name, value in self.values.items())
        return len(self.key.hash) + len(self.key.range) + 2 + sum(sizes)


class Items(Protocol):
    """Items, strongly consistent; safe for many threads.

    Every call may raise UnavailableError: then what it was to do is done in part, as a whole or not
    at all, or may be yet. All can be repeated.
    """

    def put(self, item: Item) -> None:
        """Keep an item; one that is there under its key is this one, put before."""

    def put_while(self, table_id: str, revision: int, items: Sequence[Item]) -> bool:
        """Keep items as long as the root of an open log has this revision.

        False if it has not any more: then some of them may be kept. None is put after that, however
        late the request for it arrives.
        """

    def query(
        self, table: ItemTable, hash_key: str, *, prefix: str = "", up_to: str | None = None
    ) -> Iterator[Item]:
        """Return the items under a hash key in order, page by page, each page as it is when read.

        Gives those whose range key begins with `prefix` or, if it is given, is at most `up_to`.

        Raises:
            CorruptDataError: one is damaged; it is named.
        """

    def keys(self, table: ItemTable, hash_key: str, *, prefix: str = "") -> Iterator[ItemKey]:
        """Yield the keys of the items that `query` gives, whatever is in the items.

        What is damaged is found so, and can be deleted.
        """

    def delete(self, keys: Sequence[ItemKey]) -> None:
        """Delete items; one that is not there is no error."""


def _size_bytes(value: Value) -> int:
    match value:
        case bool():
            return 1
        case int():
            return 21
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case tuple():
            return 3 + sum(len(part.encode()) + 1 for part in value)
