"""Tables in memory that count what is asked of them, and plans of look-ups at their worst point.

A table is at its worst for who loads it just before a snapshot is due, and before an increment,
with 47 deltas in the open page. The increments are those that maintenance would have kept, and the
last commits are made by the store itself. In between, transactions are folded without a log, which
takes a tenth of the time. Counts are exact: nothing here takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from bench.figures import emit
from bench.state.counting import CountingDynamoDB, CountingPages, CountingStorage, Key, Requests
from bench.state.workload import KEYS, TABLE, Clock, Ids, Mix, key
from dormouse.aws.state_store import S3StateStore
from dormouse.items.blobs import ItemStateStore
from dormouse.keys import KeyRange
from dormouse.log.blobs import BlobRange, BlobStore
from dormouse.log.compaction import (
    COMMITS_TO_INCREMENT,
    gc_paused,
    has_key_index,
)
from dormouse.log.engine import LogStateStore
from dormouse.log.increments import changes_between, encode_increment, rebased
from dormouse.log.log import fold_delta
from dormouse.log.pages import (
    LOWEST_ID,
    MOST_INCREMENTS,
    PAGE_CAPACITY,
    Head,
    Increment,
    Manifest,
    Page,
    Pages,
    Segment,
    Snapshot,
    ends_at,
)
from dormouse.log.pinning import PartialReads
from dormouse.log.tail import index_place_of, key_indexes
from dormouse.ports import Storage
from dormouse.state.state import Entry, TableState
from tests.support.hooked_pages import HookedPages
from tests.support.memory_storage import MemoryStorage


@dataclass
class Table:
    """One table in memory, and how often each of its stores asked for what."""

    storage: Storage
    pages: HookedPages
    clock: Clock
    items: dict[Key, Mapping[str, Any]]
    kept_in: str

    def store(self, requests: Requests, seed: int) -> LogStateStore:
        pages, ids = CountingPages(self.pages, requests), Ids(self.clock, seed)
        if self.kept_in == "dynamodb":
            items = CountingDynamoDB(self.items, requests).store
            return ItemStateStore(TABLE, items, pages, self.clock, ids)
        storage = CountingStorage(self.storage, requests)
        return S3StateStore(TABLE, storage, pages, self.clock, ids)


def table_of(snapshot: bytes, kept_in: str = "s3") -> Table:
    """Return a table whose state is a snapshot of version 0, kept in `s3` or in `dynamodb`."""
    storage, pages, clock = MemoryStorage(), HookedPages(), Clock()
    table = Table(storage, pages, clock, {}, kept_in)
    first = Snapshot(f"{0:032x}", 0, 0, len(snapshot), index_place_of(snapshot))
    table.store(Requests(), 0).reader.snapshots.put(first.id, snapshot)
    pages.open_page(TABLE, 0, LOWEST_ID)
    pages.set_manifest(TABLE, Manifest(1, (first,)))
    return table


PERIOD = -(-COMMITS_TO_INCREMENT // PAGE_CAPACITY) * PAGE_CAPACITY
"""Commits from increment to increment, where maintenance follows each full page."""


def spans(periods: int) -> list[int]:
    """Return how many periods each increment spans after so many: 8 are 6, 1 and 1."""
    ends = ends_at(periods, MOST_INCREMENTS)
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def worst_table(snapshot: bytes, kept_in: str, commits: int) -> Table:
    """Return a table with about so many commits since its snapshot, kept in `s3` or `dynamodb`."""
    table = table_of(snapshot, kept_in)
    state = cut = table.store(Requests(), 1).current()
    ids = Ids(table.clock, 3)
    deltas = Mix(state, ids, 4).deltas()
    increments: list[Increment] = []
    for span in spans(commits // PERIOD):
        for transactions in islice(deltas, span * PERIOD):
            table.clock.ms += 1000
            with gc_paused():
                entries = [Entry(each, table.clock.ms, 0) for each in transactions]
                state, _ = fold_delta(state, entries)
        increments.append(_keep_increment(table, ids.new(), cut, state, increments))
        cut = state
    _end_log_at(table, state.version, increments)
    writer, maintainer = table.store(Requests(), 1), table.store(Requests(), 2)
    writer.current()
    for transactions in islice(deltas, PERIOD - 1):
        table.clock.ms += 1000
        writer.commit(*transactions, generation=0)
        if writer.current().version % PAGE_CAPACITY == 0:
            maintainer.maintain()
    assert writer.current().version - state.version == PERIOD - 1
    return table


def _keep_increment(
    table: Table,
    increment_id: str,
    cut: TableState,
    state: TableState,
    before: Sequence[Increment],
) -> Increment:
    laid_over = rebased(state, cut)
    assert laid_over is not None, "nothing was reset"
    by_key = has_key_index(state)
    reader = table.store(Requests(), 0).reader
    indexes = key_indexes(reader, before, {}) if by_key else None
    body = encode_increment(changes_between(TABLE, cut, laid_over, by_key=by_key), indexes)
    reader.snapshots.put(increment_id, body)
    facts = cut.version, state.version, state.time_ms, len(body)
    return Increment(increment_id, *facts, index_place_of(body))


def _end_log_at(table: Table, version: int, increments: list[Increment]) -> None:
    """Make a log whose pages up to a version were compacted; that segment itself is not there."""
    head = table.pages.head(TABLE)
    assert head is not None
    segments = (Segment(f"{1:032x}", 0, version, 1),) if version else ()
    for number in range(head.last_page + 1, version // PAGE_CAPACITY + 1):
        table.pages.open_page(TABLE, number, head.low_water_mark)
    table.pages.delete_pages(TABLE, 0, version // PAGE_CAPACITY)
    manifest = replace(
        head.manifest,
        revision=head.manifest.revision + 1,
        increments=tuple(increments),
        segments=segments,
    )
    table.pages.set_manifest(TABLE, manifest)


_Result = TypeVar("_Result")


@dataclass
class Plan:
    """What one plan asked for. A round is what is asked for at once."""

    requests: Requests = field(default_factory=Requests)
    rounds: int = 0

    @property
    def asked(self) -> int:
        return self.requests.counts["get"] + self.requests.counts["dynamo_reads"]

    def overlap(self, first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
        """Do two things in turn, and count the rounds of the one that has more."""
        began = self.rounds
        result = first()
        ended, self.rounds = self.rounds, began
        second()
        self.rounds = max(ended, self.rounds)
        return result

    def count(self, ask: Callable[[], _Result]) -> _Result:
        """Count a round; in DynamoDB all requests for some blobs, as one may follow another."""
        before = self.requests.counts["dynamo_reads"]
        found = ask()
        self.rounds += max(1, self.requests.counts["dynamo_reads"] - before)
        return found


class _Blobs:
    def __init__(self, inner: BlobStore, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        return self._plan.count(lambda: self._inner.get(blob_ids)) if blob_ids else []

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        yield from self.get(blob_ids)

    def get_ranges(self, wanted: Sequence[BlobRange]) -> list[bytes]:
        return self._plan.count(lambda: self._inner.get_ranges(wanted)) if wanted else []


class _Pages:
    def __init__(self, inner: Pages, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def head(self, table_id: str) -> Head | None:
        return self._plan.count(lambda: self._inner.head(table_id))

    def page(self, table_id: str, number: int) -> Page | None:
        return self._plan.count(lambda: self._inner.page(table_id, number))


PLANS = 20
"""So many processes plan a look-up of one key."""


def cold_plan(table: Table, wanted: KeyRange) -> Plan | None:
    """Return what a new process asks for to plan a look-up; None if it needs the whole state."""
    plan = Plan()
    reader = table.store(plan.requests, 5).reader
    counted: dict[str, Any] = {}
    for name in ("deltas", "segments", "snapshots"):
        counted[name] = _Blobs(getattr(reader, name), plan)
    pages: Any = _Pages(reader.log.pages, plan)
    seen: Any = replace(reader, log=replace(reader.log, pages=pages), **counted)
    part = PartialReads(seen, plan.overlap).part([wanted])
    return plan if part else None


def cold_plans(table: Table) -> list[Plan]:
    """Return the plans of so many processes that begin, each of another key."""
    random = Random(7)
    found = (cold_plan(table, KeyRange.exactly(key(random.randrange(KEYS)))) for _ in range(PLANS))
    return [plan for plan in found if plan]


def show_plans(part: str, of: str, at: int, plans: Sequence[Plan]) -> None:
    """Print the most that plans asked for.

    `whole` is the share of the look-ups that had to load the state, because a commit after all that
    is kept by keys may concern the key; the other figures are of those that had not.
    """
    if plans:
        emit(
            part,
            of,
            at,
            requests=max(plan.asked for plan in plans),
            rounds=max(plan.rounds for plan in plans),
            bytes_read=max(plan.requests.read.total() for plan in plans),
            rru=max(plan.requests.counts["rru"] for plan in plans),
            whole=1 - len(plans) / PLANS,
        )


def worst_plans(snapshot: str, commits: int, kept_in: str) -> None:
    """Print the most that a plan asks for, of a snapshot with so many commits since."""
    table = worst_table(Path(snapshot).read_bytes(), kept_in, commits)
    head = table.pages.head(TABLE)
    assert head is not None
    emit("cold_plan_worst", kept_in, commits, increments=len(head.manifest.increments))
    show_plans("cold_plan_worst", kept_in, commits, cold_plans(table))
