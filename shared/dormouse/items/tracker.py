"""The records of jobs: `ports.Tracker`. What they keep, and for how long, says `jobs`.

An item for each job, by its table and its id. The tables that requests are about are items of the
owner ``(requests)``. A write reads an item and replaces it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import msgspec

from dormouse.errors import ContendedError, CorruptDataError
from dormouse.items.store import Item, ItemStore, Key, Put, put, unchanged
from dormouse.jobs import BOUND_KEPT_SECONDS, seconds_kept
from dormouse.state.jobs import DAMAGED, JobEvent, JobRecord, Tracked, fold_event
from dormouse.stored.decoding import decode_json, raise_corrupt

ATTEMPTS = 8
"""How often a write starts over because another process recorded the same job."""
REQUESTS = "(requests)"
MAX_KEY_BYTES = 1024
_DAY_SECONDS = 24 * 60 * 60
_ALWAYS = ("table_id", "job_id", "kind", "state")


class ItemTracker:
    """`Tracker` as items."""

    def __init__(self, items: ItemStore) -> None:
        """Keep them in `items`."""
        self._items = items

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Record what happened to a job. A damaged record is treated as absent, and replaced."""

        def newest(item: Item | None) -> Put | None:
            wanted = fold_event(record_of(item) if item else None, job, event, at_ms)
            return None if wanted is None else put_record(wanted, item)

        self._change(Key("jobs", job.table_id, job.id), newest)

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or it is damaged."""
        if not _can_be_keys(table_id, job_id):  # dead letters may say anything
            return None
        (item,) = self._items.get(Key("jobs", table_id, job_id))
        record = record_of(item) if item else None
        return record if record is not None and record.state != DAMAGED else None

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield a table's records, in job id order; all of them."""
        yield from map(record_of, self._items.query("jobs", table_id))

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Return the table which a request is about: `table_id`, unless a call gave another before.

        Raises:
            CorruptDataError: which it is cannot be read any more.
        """
        kept_s = now_ms // 1000 + BOUND_KEPT_SECONDS
        about = table_id

        def bound(item: Item | None) -> Put | None:
            nonlocal about
            about = _bound_to(item) if item else table_id
            if item and (item.expires_s or 0) >= kept_s:
                return None
            # a day longer, so that not each call is a write
            return put(key, about, unchanged(item), expires_s=kept_s + _DAY_SECONDS)

        key = Key("jobs", REQUESTS, request)
        self._change(key, bound)
        return about

    def _change(self, key: Key, change: Callable[[Item | None], Put | None]) -> None:
        """Replace an item by the result of `change`, unless that is None."""
        for _ in range(ATTEMPTS):
            (item,) = self._items.get(key)
            wanted = change(item)
            if wanted is None or self._items.write(wanted):
                return
        raise ContendedError(f"others keep writing of job {key.name!r}; try again")


def put_record(record: JobRecord, seen: Item | None) -> Put:
    """Return the change that puts a record in the place of what was seen; it expires."""
    held = {field.name: getattr(record, field.name) for field in fields(record)}
    body = {name: value for name, value in held.items() if value or name in _ALWAYS}
    key = Key("jobs", record.table_id, record.job_id)
    expires_s = record.updated_ms // 1000 + seconds_kept(record)
    return put(key, msgspec.json.encode(body).decode(), unchanged(seen), expires_s=expires_s)


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
    """Return the table that a request is about.

    Raises:
        CorruptDataError: it is damaged.
    """
    problem = f"what is kept of request {item.key.name!r} is damaged"
    with raise_corrupt(problem, hint="ask again under another request_id"):
        return item.text()


def _can_be_keys(*texts: str) -> bool:
    try:
        return {0 < len(text.encode()) <= MAX_KEY_BYTES for text in texts} == {True}
    except UnicodeEncodeError:
        return False
