"""The keys of subjects of tables, an item each.

An item has the newest generation of keys that its subject had, and the key, unless that was
forgotten. So a reader of a value knows whether its key was forgotten or lost, and a value of an
earlier key is never tried with a later one. The items of a table have sixteen owners: DynamoDB
takes about a thousand writes a second of each.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from string import hexdigits
from threading import Lock

from cachetools import TTLCache

from dormouse.encryption import NAME_BYTES, SubjectKey, new_key
from dormouse.errors import ContendedError, CorruptDataError
from dormouse.items.store import BODY, Item, ItemStore, Key, Put, put, unchanged
from dormouse.stored.decoding import raise_corrupt

KEPT_SECONDS = 50
"""How long a process reads on by a key that it has read: a minute, with the time to read it."""
_KEPT = 50_000
"""Keys, of about 300 bytes with their names."""
_AT_ONCE = 100
"""What a transaction of DynamoDB takes."""
_ATTEMPTS = 8
_LOST = 1 << 16
"""The generation of a subject that is forgotten and has no item: above any that it can have had."""


class ItemSubjects:
    """`encryption.SubjectKeys` as items; safe for many threads and processes."""

    def __init__(
        self,
        items: ItemStore,
        erase: Callable[[], object] = lambda: None,
        newest: TTLCache[tuple[str, bytes], SubjectKey] | None = None,
    ) -> None:
        """Keep them in `items`; `erase` removes what is left of items that were replaced. Those
        that are read stay in the cache `newest`.
        """
        self._items, self._erase, self._lock = items, erase, Lock()
        self._newest = TTLCache(_KEPT, KEPT_SECONDS) if newest is None else newest

    def made(self, table_id: str, names: Collection[bytes]) -> Mapping[bytes, SubjectKey]:
        """Return the key of each subject; who has none gets one."""
        return self._changed(table_id, names, makes=True)[0]

    def known(self, table_id: str, marks: Collection[bytes]) -> Mapping[bytes, SubjectKey | None]:
        """Return the key of each mark; None if it is forgotten, as far as is known.

        Raises:
            CorruptDataError: one is lost, though it was not forgotten; or an item is damaged.
        """
        with self._lock:
            cached = {mark: self._newest.get((table_id, mark[:NAME_BYTES])) for mark in marks}
        names = [mark[:NAME_BYTES] for mark, key in cached.items() if not key or key.mark < mark]
        fresh = {name: key for name, (_, key) in self._read(table_id, names).items()}
        newest = {mark: fresh.get(mark[:NAME_BYTES], key) for mark, key in cached.items()}
        if any(key is None or key.mark < mark for mark, key in newest.items()):
            raise CorruptDataError(
                "the key of a subject is lost",
                hint="bring the keys of subjects back from a backup, if there is one; or forget "
                "the subject",
            )
        with self._lock:
            self._newest.update({(table_id, name): key for name, key in fresh.items() if key})
        return {m: key if key and key.key and key.mark == m else None for m, key in newest.items()}

    def forget(self, table_id: str, names: Collection[bytes]) -> int:
        """Forget the keys of subjects for good; return how many there were."""
        count = self._changed(table_id, names, makes=False)[1]
        with self._lock:
            for name in names:
                self._newest.pop((table_id, name), None)
        self._erase()
        return count

    def delete(self, table_id: str) -> None:
        """Delete all that is known of the subjects of a table that is deleted."""
        for digit in hexdigits[:16]:
            owner = f"{table_id}#{digit}"
            names = self._items.names("subjects", owner)
            self._items.delete(Key("subjects", owner, name) for name in names)
        self._erase()

    def _changed(
        self, table_id: str, names: Collection[bytes], *, makes: bool
    ) -> tuple[dict[bytes, SubjectKey], int]:
        """Make or forget keys until each is there, or none; return the newest as they were read
        then, and how many there were before.
        """
        count = 0
        for _ in range(_ATTEMPTS):
            pairs = self._read(table_id, names, forgives=not makes)
            newest = {name: key for name, (_, key) in pairs.items() if key}
            due = [n for n in pairs if n not in newest or bool(newest[n].key) != makes]
            if not due:
                return newest, count
            for start in range(0, len(due), _AT_ONCE):
                batch = due[start : start + _AT_ONCE]
                keys = [_next(name, newest.get(name), makes=makes) for name in batch]
                if self._items.write(*(_put(table_id, key, pairs[key.name][0]) for key in keys)):
                    count += 0 if makes else sum(name in newest for name in batch)
        raise ContendedError("other processes kept changing the same keys of subjects")

    def _read(
        self, table_id: str, names: Iterable[bytes], *, forgives: bool = False
    ) -> dict[bytes, tuple[Item | None, SubjectKey | None]]:
        """Return item and key of each subject.

        Raises:
            CorruptDataError: an item is damaged, and not forgiven: then there is no key in it.
        """
        names = [*dict.fromkeys(names)]
        items = self._items.get(*(_place(table_id, name) for name in names)) if names else []
        with raise_corrupt("the key of a subject is damaged", hint="forget the subject"):
            pairs = zip(names, items, strict=True)
            return {name: (item, _key_of(name, item, forgives=forgives)) for name, item in pairs}


def _next(name: bytes, old: SubjectKey | None, *, makes: bool) -> SubjectKey:
    if makes:
        return SubjectKey(name, old.generation + 1 if old else 1, new_key())
    return SubjectKey(name, old.generation if old else _LOST, None)


def _place(table_id: str, name: bytes) -> Key:
    digits = name.hex()
    return Key("subjects", f"{table_id}#{digits[0]}", digits)


def _put(table_id: str, key: SubjectKey, item: Item | None) -> Put:
    body = key.generation.to_bytes(4, "big") + (key.key or b"")
    return put(_place(table_id, key.name), body, unchanged(item))


def _key_of(name: bytes, item: Item | None, *, forgives: bool) -> SubjectKey | None:
    try:
        body = item.data(BODY) if item else b""
    except ValueError:
        if not forgives:
            raise
        body = b""
    return SubjectKey(name, int.from_bytes(body[:4], "big"), body[4:] or None) if body else None
