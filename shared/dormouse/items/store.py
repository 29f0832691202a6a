"""Items, each a few named parts under a key: the port of all that is small and changes in place.

A key is a space, which is a table of DynamoDB, an owner and a name. The items of one owner are
listed together, in the order of their names. `write` makes several changes if all their conditions
hold, or none. A part has a checksum of itself, its name, the key and the time at which the item
expires. So each change can write only some parts without reading the others, and a changed part, or
one that was copied to another key, is noticed when it is read. A checksum is 8 bytes of BLAKE2b,
and protects against damage, not against forgery.

Most items have one part, `body`. The page of a log has a list of ids: its checksum is the sum of
those of its ids, so `append` is one blind write. It detects lost, changed and foreign ids, but not
a wrong order.

A part that is as it was read, damaged or not, has the same checksum: a condition compares no more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, NamedTuple, Protocol

import msgspec

from dormouse.errors import CorruptDataError

Space = Literal["tables", "jobs", "state", "deltas", "snapshots", "subjects"]
Body = str | bytes
BODY, IDS, MARK = "body", "ids", "mark"
"""The part that most items have, and the parts of an item that takes ids."""
ONLY = "0"
"""The name of an item that is the only one of its owner."""
FORMAT = 1
ID_BYTES = 16
LAST = "\U0010ffff"
"""Follows all that an owner or a name can have after a prefix."""
_SUM_BYTES = 8
_MODULUS = 2 ** (8 * _SUM_BYTES)


class Key(NamedTuple):
    """Where an item lies."""

    space: Space
    owner: str
    name: str = ONLY


class Part(NamedTuple):
    """A part as it is stored: None, or what the store has instead, where it is damaged."""

    body: Body | None
    checksum: object


@dataclass(frozen=True, slots=True)
class Item:
    """An item as it is stored; `read` verifies it.

    `damage` says what else the store has there than an item.
    """

    key: Key
    parts: Mapping[str, Part]
    expires_s: int | None = None
    format: int = FORMAT
    damage: str = ""

    def __hash__(self) -> int:
        """Return a hash: what is read of equal items can be cached."""
        return hash(self.key)

    def read(self, name: str = BODY) -> Body:
        """Return a part.

        Raises:
            ValueError: it is damaged or missing.
            CorruptDataError: another version of Dormouse wrote it.
        """
        part = self.parts.get(name)
        if self.damage or part is None or part.body is None:
            raise ValueError(self.damage or f"it has no {name}")
        checksum = checksum_of(self.key, name, part.body, self.expires_s, self.format)
        if part.checksum != checksum:
            raise ValueError(f"the checksum of its {name} is not that of what it holds")
        if self.format != FORMAT:
            raise CorruptDataError(
                f"it is of format {self.format}; the one known here is {FORMAT}",
                hint="it was written by another version of Dormouse: use that one",
            )
        return part.body

    def text(self, name: str = BODY) -> str:
        """Return a part that is text. Raises: as `read`."""
        if not isinstance(body := self.read(name), str):
            raise ValueError(f"its {name} is no text")
        return body

    def data(self, name: str) -> bytes:
        """Return a part that is bytes. Raises: as `read`."""
        if not isinstance(body := self.read(name), bytes):
            raise ValueError(f"its {name} is not bytes")
        return body


def checksum_of(
    key: Key, name: str, body: Body, expires_s: int | None = None, format: int | None = None
) -> bytes:
    """Return the checksum of a part of an item."""
    place = (FORMAT if format is None else format, *key, name)
    if name == IDS and isinstance(body, bytes):
        return _sum_of(place, ids_of(body)).to_bytes(_SUM_BYTES)
    text = msgspec.msgpack.encode((place, body, expires_s))
    return blake2b(text, digest_size=_SUM_BYTES).digest()


def id_sum(key: Key, new_id: bytes) -> int:
    """Return what an id adds to the checksum of the ids of an item."""
    return _sum_of((FORMAT, *key, IDS), [new_id])


def _sum_of(place: tuple[object, ...], ids: Iterable[bytes]) -> int:
    """Return the sum of the checksums of some ids, each of 6 bytes: many fit a number of 8."""
    total, prefix = 0, blake2b(msgspec.msgpack.encode(place), digest_size=6)
    for each in ids:  # a commit comes here with up to 48 of them, twice
        one = prefix.copy()
        one.update(each)
        total += int.from_bytes(one.digest())
    return total


@dataclass(frozen=True, slots=True)
class If:
    """A condition of a change: whether the item is there, and what checksums its parts have."""

    exists: bool | None = None
    checksums: Mapping[str, object] = field(default_factory=dict)

    def holds(self, item: Item | None) -> bool:
        """Return whether an item, or none, is as wanted."""
        parts: Mapping[str, Part] = item.parts if item else {}
        for name, checksum in self.checksums.items():
            if (parts[name].checksum if name in parts else None) != checksum:
                return False
        return self.exists in (None, item is not None)


ANY, ABSENT, PRESENT = If(), If(exists=False), If(exists=True)


def unchanged(item: Item | None) -> If:
    """Return the condition that the item of a body is the one that was read, or that none is."""
    if item is None:
        return ABSENT
    part = item.parts.get(BODY)
    return If(exists=True, checksums={BODY: part.checksum if part else None})


def has(key: Key, body: Body | None = None, **parts: Body | None) -> If:
    """Return the condition that an item that does not expire has these parts; None is none."""
    parts |= {BODY: body} if body is not None else {}
    sums = {name: None if b is None else checksum_of(key, name, b) for name, b in parts.items()}
    return If(checksums=sums)


@dataclass(frozen=True, slots=True)
class Put:
    """Put an item in the place of whatever is there."""

    key: Key
    parts: Mapping[str, Body]
    when: If = ANY
    expires_s: int | None = None

    def item(self) -> Item:
        """Return the item that is put."""
        return Item(
            self.key,
            {
                name: Part(body, checksum_of(self.key, name, body, self.expires_s))
                for name, body in self.parts.items()
            },
            self.expires_s,
        )


@dataclass(frozen=True, slots=True)
class Set:
    """Change some parts of an item, which does not expire; None removes a part."""

    key: Key
    parts: Mapping[str, Body | None]
    when: If


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an item; none is no error."""

    key: Key
    when: If = ANY


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but let nothing be written unless a condition holds."""

    key: Key
    when: If


Change = Put | Set | Delete | Check


def put(key: Key, body: Body, when: If = ANY, *, expires_s: int | None = None) -> Put:
    """Return the change that puts an item of one part."""
    return Put(key, {BODY: body}, when, expires_s)


def put_json(key: Key, value: object, when: If = ANY, *, expires_s: int | None = None) -> Put:
    """Return the change that puts an item of one part, a value as JSON."""
    return put(key, msgspec.json.encode(value).decode(), when, expires_s=expires_s)


class ItemStore(Protocol):
    """Items of many spaces, each call atomic, and each read strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be later.
    """

    def get(self, *keys: Key, never_change: bool = False) -> list[Item | None]:
        """Return the items of some keys, None where there is none; not of one moment.

        Of items that `never_change` what any replica has is right, for less: only that there is
        none has to be read consistently. Many of them are read at once.
        """

    def query(self, space: Space, owner: str, *, least: str = "") -> Iterator[Item]:
        """Yield the items of an owner by name, from a name on."""

    def names(
        self, space: Space, owner: str, *, least: str = "", most: str = LAST
    ) -> Iterator[str]:
        """Yield the names of an owner's items, damaged or not, from a name up to another."""

    def scan(self, space: Space, *prefixes: str) -> Iterator[Item]:
        """Yield all items whose owner begins with one of these, in any order."""

    def write(self, *changes: Change) -> bool:
        """Make all changes; False, and nothing done, if a condition does not hold.

        Each is of another item. One is cheaper than several.
        """

    def append(self, key: Key, new_id: bytes, *, room: int) -> Item | None:
        """Append an id to an item's ids; return the item as it then is, None if there is none.

        Do so only if the item does not hold the id, has fewer than `room` ids, and if its mark is
        not above the id.
        """

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete many items, which is not atomic; none is no error. It can be repeated.
        Raises UnavailableError: some may not be deleted.
        """


def changed(change: Change, item: Item | None) -> Item | None:
    """Return an item, or none, after a change of it whose condition holds."""
    match change:
        case Put():
            return change.item()
        case Set(key, parts):
            rest = dict(item.parts) if item else {}
            for name, body in parts.items():
                rest.pop(name, None)
                if body is not None:
                    rest[name] = Part(body, checksum_of(key, name, body))
            return replace(item, parts=rest) if item else Item(key, rest)
        case Delete():
            return None
        case Check():
            return item


def with_id(item: Item, new_id: bytes, room: int) -> Item:
    """Return an item after an append: itself if the id may not be appended."""
    ids, mark = item.parts.get(IDS), item.parts.get(MARK)
    if ids is None or not (isinstance(ids.body, bytes) and isinstance(ids.checksum, bytes)):
        return item
    present = ids_of(ids.body)
    if new_id in present or len(present) >= room:
        return item
    if mark is None or not isinstance(mark.body, bytes) or mark.body > new_id:
        return item
    total = int.from_bytes(ids.checksum) + id_sum(item.key, new_id)
    part = Part(ids.body + new_id, (total % _MODULUS).to_bytes(_SUM_BYTES))
    return replace(item, parts={**item.parts, IDS: part})


def ids_of(body: bytes) -> Sequence[bytes]:
    """Return the ids that a part lists."""
    return [body[at : at + ID_BYTES] for at in range(0, len(body), ID_BYTES)]
