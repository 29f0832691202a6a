"""What a state remembers, sources and transactions, as items that hold thousands each.

They lie under ``<table>#I`` (ingested) and ``<table>#T`` of the references table, as
``<version>#<number>``: what is remembered from that version on. Nothing is ever taken out: who
reads leaves out what is too old by the time of the state, or of an older generation, and an item of
which nothing would be left is deleted. Used by `dynamodb_snapshots`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import msgspec
from rpds import HashTrieMap

from dormouse.model.decoding import decode_json, told_as_corrupt
from dormouse.model.layered import LayeredMap
from dormouse.model.state import SOURCES_REMEMBERED_MS, TRANSACTIONS_REMEMBERED_MS, TableState
from dormouse.statestore.dynamodb_records import changed, padded
from dormouse.statestore.items import Item, ItemKey

_PER_ITEM = 4000
"""Ids in one item: 20 bytes each if they are digests, and far below 400 KB if they are not."""

REMEMBERED_MS = {"I": SOURCES_REMEMBERED_MS, "T": TRANSACTIONS_REMEMBERED_MS}
"""The kinds of items, by the letter in their hash key, and for how long what they hold counts."""


class _Times(msgspec.Struct, array_like=True):
    ids: list[str]
    times_ms: list[int]


def remembered_hash(table_id: str, letter: str) -> str:
    """Give the hash key of one kind of what a table remembers."""
    return f"{table_id}#{letter}"


def learned(table_id: str, before: TableState, after: TableState) -> Iterator[Item]:
    """Give the items for what `after` remembers and `before` did not, or from another time."""
    for letter, known, now_known in (
        ("I", before.sources, after.sources),
        ("T", before.transactions, after.transactions),
    ):
        since_ms = after.time_ms - REMEMBERED_MS[letter]
        fresh = sorted(
            (at, name)
            for name in changed(known, now_known)
            if (at := now_known.get(name)) is not None and at > since_ms and at != known.get(name)
        )
        for number, start in enumerate(range(0, len(fresh), _PER_ITEM)):
            chunk = fresh[start : start + _PER_ITEM]
            times = _Times([name for _, name in chunk], [at for at, _ in chunk])
            place = f"{padded(after.version)}#{number:06d}"
            yield Item(
                ItemKey("references", remembered_hash(table_id, letter), place),
                {
                    "generation": after.generation,
                    "until_ms": chunk[-1][0],
                    "ids": zlib.compress(msgspec.json.encode(times)),
                },
            )


def recalled(
    items: Iterable[Item], letter: str, version: int, generation: int, time_ms: int
) -> LayeredMap[str, int]:
    """Give what a state of that version, generation and time remembers, of all items of a kind."""
    since_ms = time_ms - REMEMBERED_MS[letter]
    times_ms: dict[str, int] = {}
    for item in items:
        current = item.values.get("generation") == generation and not is_forgotten(item, since_ms)
        if item.key.range < padded(version + 1) and current:
            times = _times(item)
            times_ms.update(zip(times.ids, times.times_ms, strict=True))
    kept = {name: at for name, at in times_ms.items() if at > since_ms}
    return LayeredMap(HashTrieMap(kept))


def is_forgotten(item: Item, since_ms: int) -> bool:
    """Tell whether all that an item holds is from `since_ms` or before."""
    until_ms = item.values.get("until_ms")
    return isinstance(until_ms, int) and until_ms <= since_ms


def _times(item: Item) -> _Times:
    stored = item.values.get("ids")
    with told_as_corrupt(f"item {item.key} holds no ids"):
        try:
            body = zlib.decompress(stored if isinstance(stored, bytes) else b"")
        except zlib.error as error:
            raise ValueError(str(error)) from error
        return decode_json(body, _Times)
