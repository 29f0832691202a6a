"""Small records, each an item with JSON: jobs, pins of versions, publications.

- `ItemTracker`: an item for each job, by its table and its id. The tables that requests are about
  are items of the owner ``(requests)``.
- `ItemPins`: an owner of pins has one item, ``<table>#P`` and the key of the owner, so that one
  query finds the pins of a table.
- `ItemPublications`: a table has one item, ``<table>#I``. They lie beside the logs and not in the
  registry, which is listed each minute.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from string import hexdigits
from threading import Lock
from typing import Any

from cachetools import TTLCache

from dormouse.encryption import NAME_BYTES, SubjectKey, new_key
from dormouse.errors import ContendedError, CorruptDataError
from dormouse.items.store import (
    ABSENT,
    BODY,
    PRESENT,
    Delete,
    If,
    Item,
    ItemStore,
    Key,
    Put,
    has,
    put,
    put_json,
    unchanged,
)
from dormouse.schema.schema import ROW_IDS_PER_MS
from dormouse.state.jobs import DAMAGED, JobEvent, JobRecord, Tracked, fold_event
from dormouse.state.versions import Pin, PinOwner, PublicationRecord
from dormouse.stored.decoding import decode_json, raise_corrupt

ATTEMPTS = 8
"""How often a write starts over because another process recorded the same job."""
REQUESTS, ROW_IDS = "(requests)", "(row ids)"
RECORDS_KEPT_SECONDS = 7 * 24 * 60 * 60
REFUSALS_KEPT_SECONDS = 35 * 24 * 60 * 60
"""Longer than audits look at a dropped file: one that was refused is not judged again by itself."""
BOUND_KEPT_SECONDS = 30 * 24 * 60 * 60
"""Twice as long as SQS keeps any message, a dead letter too."""
LOST_PUBLICATION = "`dormouse iceberg publish NAME --all` publishes all of it again, from the state"
"""What to do about a record of a publication that is damaged or lost."""
LOST_ROW_IDS = "set row_origin=on until it has expired, a month after the last ingest"
MAX_KEY_BYTES = 1024
_DAY_SECONDS = 24 * 60 * 60
_ALWAYS = ("table_id", "job_id", "kind", "state")


class ItemTracker:
    """The records of jobs, for people. They are kept for seven days, those of refused files for 35.
    No row depends on them. A write reads an item and replaces it as a whole.

    The tracker also knows which table each request is about, for longer than it can be redelivered.
    """

    def __init__(self, items: ItemStore) -> None:
        self._items = items

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Record what happened to a job. A damaged record is treated as absent, and replaced."""

        def newest(item: Item | None) -> Put | None:
            record = fold_event(record_of(item) if item else None, job, event, at_ms)
            return None if record is None else put_record(record, item)

        self._change(Key("jobs", job.table_id, job.id), newest)

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or it is damaged."""
        if not _can_be_keys(table_id, job_id):  # dead letters may say anything
            return None
        (item,) = self._items.get(Key("jobs", table_id, job_id))
        record = record_of(item) if item else None
        return record if record is not None and record.state != DAMAGED else None

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield all records of a table in job id order, including `DAMAGED` ones."""
        yield from map(record_of, self._items.query("jobs", table_id))

    def bind(self, request: str, about: str, now_ms: int, instead_of: str = "") -> str:
        """Return what a request is about, such as a table: what the first call said, unless that is
        `instead_of`.

        The answer is kept for thirty days after the last call. Raises CorruptDataError: which it is
        cannot be read any more.
        """
        kept_s = now_ms // 1000 + BOUND_KEPT_SECONDS
        answer = about

        def bound(item: Item | None) -> Put | None:
            nonlocal answer
            found = _bound_to(item) if item else instead_of
            answer = about if found == instead_of else found
            if item and answer == found and (item.expires_s or 0) >= kept_s:
                return None
            # a day longer, so that not each call is a write
            return put(key, answer, unchanged(item), expires_s=kept_s + _DAY_SECONDS)

        key = Key("jobs", REQUESTS, request)
        self._change(key, bound)
        return answer

    def reserve_row_ids(self, table_id: str, count: int, now_ms: int) -> int:
        """Return the first of so many ids that no row of a table has, nor gets by another call.

        They begin at the time, which is far beyond how fast rows come: so a copy of the table, or
        one whose item is lost, goes on with others. Raises CorruptDataError.
        """
        first = now_ms * ROW_IDS_PER_MS

        def reserved(item: Item | None) -> Put:
            nonlocal first
            with raise_corrupt("what is kept of ids of rows is damaged", hint=LOST_ROW_IDS):
                first = max(first, int(item.text()) if item else 0)
            kept_s = now_ms // 1000 + BOUND_KEPT_SECONDS
            return put(key, str(first + count), unchanged(item), expires_s=kept_s)

        key = Key("jobs", ROW_IDS, table_id)
        self._change(key, reserved)
        return first

    def _change(self, key: Key, change: Callable[[Item | None], Put | None]) -> None:
        """Replace an item by the result of `change`, unless that is None."""
        for _ in range(ATTEMPTS):
            (item,) = self._items.get(key)
            result = change(item)
            if result is None or self._items.write(result):
                return
        raise ContendedError(f"others keep writing of job {key.name!r}; try again")


def put_record(record: JobRecord, before: Item | None) -> Put:
    """Return the change that puts a record in the place of what was seen; it expires."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    body = {name: value for name, value in values.items() if value or name in _ALWAYS}
    key = Key("jobs", record.table_id, record.job_id)
    is_file = (record.kind, record.state) == ("ingest", "refused")  # requests may quote rows
    kept_seconds = REFUSALS_KEPT_SECONDS if is_file else RECORDS_KEPT_SECONDS
    expires_s = record.updated_ms // 1000 + kept_seconds
    return put_json(key, body, unchanged(before), expires_s=expires_s)


def record_of(item: Item) -> JobRecord:
    """Return the record that an item holds; where it is damaged, one that says just that."""
    table_id, job_id = item.key.owner, item.key.name
    try:
        problem = f"the record of job {job_id!r} is damaged"
        hint = "the job's next record takes its place; without one it is gone in days"
        with raise_corrupt(problem, hint=hint):
            return JobRecord(**decode_json(item.text(), dict[str, Any]))
    except CorruptDataError as error:
        return JobRecord(table_id, job_id, "", DAMAGED, reason=error.explanation)


def _bound_to(item: Item) -> str:
    problem = f"what is kept of request {item.key.name!r} is damaged"
    with raise_corrupt(problem, hint="ask again under another request_id"):
        return item.text()


def _can_be_keys(*texts: str) -> bool:
    try:
        return {0 < len(text.encode()) <= MAX_KEY_BYTES for text in texts} == {True}
    except UnicodeEncodeError:
        return False


class ItemPins:
    """The pins of the versions of many tables, by owner, each call atomic and strongly consistent.

    Every call may raise UnavailableError: nothing was changed. Those that change something may
    raise OutcomeUnknownError instead: it may have been changed, or may be later. All can be
    repeated.
    """

    def __init__(self, items: ItemStore) -> None:
        self._items = items

    def all(self, table_id: str) -> list[Pin]:
        """Return all pins of a table, by owner. Raises CorruptDataError if one is damaged."""
        return [_pin(table_id, item) for item in self._items.query("state", f"{table_id}#P")]

    def put(self, table_id: str, pin: Pin) -> Pin:
        """Put a pin unless its owner has one; return the one that the owner then has."""
        key = _pin_key(table_id, pin.owner)
        while not self._items.write(put_json(key, pin, ABSENT)):
            (item,) = self._items.get(key)
            if item:  # else it was deleted just now
                return _pin(table_id, item)
        return pin

    def replace(self, table_id: str, old: Pin, new: Pin) -> bool:
        """Put a pin in the place of one of the same owner; False unless that is there unchanged."""
        return _replace(self._items, _pin_key(table_id, new.owner), old, new)

    def delete(self, table_id: str, owner: PinOwner, *, only: Pin | None = None) -> bool:
        """Delete an owner's pin, or `only` this one, unchanged; return whether there was one."""
        key = _pin_key(table_id, owner)
        return self._items.write(Delete(key, _is(key, only) if only else PRESENT))

    def clear(self, table_id: str) -> None:
        """Delete all pins of a table."""
        names = [*self._items.names("state", f"{table_id}#P")]
        self._items.delete(Key("state", f"{table_id}#P", name) for name in names)


def _pin_key(table_id: str, owner: PinOwner) -> Key:
    return Key("state", f"{table_id}#P", owner.key)


def _pin(table_id: str, item: Item) -> Pin:
    problem = (
        f"the pin {item.key.name} of table {table_id} is damaged, so no shard of it can be deleted"
    )
    hint = "remove a tag by `dormouse untag NAME TAG`, and tag the version again"
    with raise_corrupt(problem, hint=hint):
        return decode_json(item.text(), Pin)


class ItemPublications:
    """The record of what is published of each table for readers of Iceberg, each call atomic and
    strongly consistent. Calls raise what those of pins do, and can be repeated.
    """

    def __init__(self, items: ItemStore) -> None:
        self._items = items

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none. Raises CorruptDataError."""
        (item,) = self._items.get(_publication_key(table_id))
        if item is None:
            return None
        problem = f"the record of what is published of table {table_id} is damaged"
        with raise_corrupt(problem, hint=LOST_PUBLICATION):
            return decode_json(item.text(), PublicationRecord)

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        return _replace(self._items, _publication_key(table_id), old, new)

    def delete(self, table_id: str) -> None:
        """Delete the record of a table, damaged or not; none is no error."""
        self._items.write(Delete(_publication_key(table_id)))


def _publication_key(table_id: str) -> Key:
    return Key("state", f"{table_id}#I")


def _replace(items: ItemStore, key: Key, old: object, new: object) -> bool:
    return items.write(put_json(key, new, _is(key, old) if old else ABSENT))


def _is(key: Key, record: object) -> If:
    return has(key, put_json(key, record).parts[BODY])


# The keys of subjects of tables, an item each.
#
# An item has the newest generation of keys that its subject had, and the key, unless that was
# forgotten. So a reader of a value knows whether its key was forgotten or lost, and a value of an
# earlier key is never tried with a later one. The items of a table have sixteen owners: DynamoDB
# takes about a thousand writes a second of each.


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
        Raises CorruptDataError: one is lost, though it was not forgotten; or an item is damaged.
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
        Raises CorruptDataError: an item is damaged, and not forgiven: then there is no key in it.
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
