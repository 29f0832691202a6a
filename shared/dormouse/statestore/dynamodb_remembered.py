"""What a state remembers, sources and transactions, as items that hold thousands each.

They lie under ``<table>#I`` (ingested) and ``<table>#T`` of the references table, as
``<version>#<number>``: what is remembered from that version on. A source has the version that it
came with, a transaction the time at which it was committed. Nothing is ever taken out: who reads
leaves out sources that are sealed and transactions that are too old, by what the state says of
itself, and what is of an older generation; an item of which nothing would be left is deleted. Used
by `dynamodb_snapshots`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from rpds import HashTrieMap

from dormouse.model.overlay_map import OverlayMap
from dormouse.model.state import TRANSACTION_RETENTION_MS, TableState
from dormouse.statestore.dynamodb_records import changed, padded
from dormouse.statestore.items import Item, ItemKey
from dormouse.stored.decoding import decode_json, raise_corrupt

_PER_ITEM = 3000
"""Ids in one item: 20 bytes each if they are digests, and below 400 KB even if they are the longest
there can be, of characters that hardly compress."""

LETTERS = ("I", "T")
"""The kinds of items, by the letter in their hash key."""


class _Numbered(msgspec.Struct, array_like=True):
    ids: list[str]
    numbers: list[int]


def remembered_since(sealed_to: int, time_ms: int) -> Mapping[str, int]:
    """Return, by the letter of each kind, the number above which what a state has of it counts."""
    return {"I": sealed_to, "T": time_ms - TRANSACTION_RETENTION_MS}


def remembered_hash(table_id: str, letter: str) -> str:
    """Return the hash key of one kind of what a table remembers."""
    return f"{table_id}#{letter}"


def learned(table_id: str, before: TableState, after: TableState) -> Iterator[Item]:
    """Yield the items for what `after` remembers and `before` did not, or by another number."""
    since = remembered_since(after.sealed_to, after.time_ms)
    for letter, known, now_known in (
        ("I", before.sources, after.sources),
        ("T", before.transactions, after.transactions),
    ):
        fresh = sorted(
            (at, name)
            for name in changed(known, now_known)
            if (at := now_known.get(name)) is not None
            and at > since[letter]
            and at != known.get(name)
        )
        for number, start in enumerate(range(0, len(fresh), _PER_ITEM)):
            chunk = fresh[start : start + _PER_ITEM]
            numbered = _Numbered([name for _, name in chunk], [at for at, _ in chunk])
            place = f"{padded(after.version)}#{number:06d}"
            yield Item(
                ItemKey("references", remembered_hash(table_id, letter), place),
                {
                    "generation": after.generation,
                    "until": chunk[-1][0],
                    "ids": zlib.compress(msgspec.json.encode(numbered)),
                },
            )


def recalled(
    items: Iterable[Item], version: int, generation: int, since: int
) -> OverlayMap[str, int]:
    """Return what a state of that version and generation remembers, of all items of a kind.

    Only what has a number above `since` counts.
    """
    numbers: dict[str, int] = {}
    for item in items:
        current = item.values.get("generation") == generation and not is_forgotten(item, since)
        if item.key.range < padded(version + 1) and current:
            held = _numbered(item)
            numbers.update(zip(held.ids, held.numbers, strict=True))
    kept = {name: at for name, at in numbers.items() if at > since}
    return OverlayMap(HashTrieMap(kept))


def is_forgotten(item: Item, since: int) -> bool:
    """Return whether all that an item holds has a number of at most `since`."""
    until = item.values.get("until")
    return isinstance(until, int) and until <= since


def _numbered(item: Item) -> _Numbered:
    stored = item.values.get("ids")
    with raise_corrupt(f"item {item.key} holds no ids"):
        try:
            body = zlib.decompress(stored if isinstance(stored, bytes) else b"")
        except zlib.error as error:
            raise ValueError(str(error)) from error
        return decode_json(body, _Numbered)
