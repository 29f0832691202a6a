"""Count what a process that begins asks for to plan a look-up of one key, at the worst point.

That is just before an increment and a snapshot are due, with 47 deltas in the open page. Called
with a snapshot and the commits since. Counts are exact: nothing here takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from bench.common.figures import emit
from bench.state.commits import PLANS, Table
from bench.state.counting import Requests
from bench.state.memory import KEYS, TABLE, key
from bench.state.worst import worst_table
from dormouse.keys import KeyRange
from dormouse.log.blobs import BlobRange, BlobStore
from dormouse.log.pages import Head, Page, Pages
from dormouse.log.pinning import PartialReads

_Result = TypeVar("_Result")
STORES = ("s3", "dynamodb")


@dataclass
class Plan:
    """What one plan asked for. A round is what is asked for at once."""

    requests: Requests = field(default_factory=Requests)
    rounds: int = 0

    @property
    def asked(self) -> int:
        """The number of requests."""
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
    """Blobs, seen through a counter of rounds."""

    def __init__(self, inner: BlobStore, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Count a round unless nothing is asked for."""
        return self._plan.count(lambda: self._inner.get(blob_ids)) if blob_ids else []

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Count a round unless nothing is asked for."""
        yield from self.get(blob_ids)

    def get_ranges(self, wanted: Sequence[BlobRange]) -> list[bytes]:
        """Count a round unless nothing is asked for."""
        return self._plan.count(lambda: self._inner.get_ranges(wanted)) if wanted else []


class _Pages:
    """Pages, seen through a counter of rounds."""

    def __init__(self, inner: Pages, plan: Plan) -> None:
        self._inner, self._plan = inner, plan

    def head(self, table_id: str) -> Head | None:
        """Count a round."""
        return self._plan.count(lambda: self._inner.head(table_id))

    def page(self, table_id: str, number: int) -> Page | None:
        """Count a round."""
        return self._plan.count(lambda: self._inner.page(table_id, number))


def cold_plan(table: Table, wanted: KeyRange) -> Plan | None:
    """Return what a new process asks for to plan a look-up; None if it needs the whole state."""
    plan = Plan()
    reader, counted = table.store(plan.requests, 5).reader, {}
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


def measure(snapshot: bytes, commits: int, kept_in: str) -> None:
    """Print the most that a plan asks for."""
    table = worst_table(snapshot, kept_in, commits)
    plans = cold_plans(table)
    head = table.pages.head(TABLE)
    assert head is not None
    most = max(plans, key=lambda plan: plan.requests.read.total())
    emit(
        "cold_plan_worst",
        kept_in,
        commits,
        increments=len(head.manifest.increments),
        requests=max(plan.asked for plan in plans),
        rounds=max(plan.rounds for plan in plans),
        bytes_read=most.requests.read.total(),
        rru=max(plan.requests.counts["rru"] for plan in plans),
        whole=1 - len(plans) / PLANS,
        **{f"bytes_of_{kind}": size for kind, size in most.requests.read.items()},
    )


def main() -> None:
    """Measure both stores, or one of them."""
    match sys.argv[1:]:
        case [snapshot, commits, *kept_in]:
            for each in kept_in or STORES:
                measure(Path(snapshot).read_bytes(), int(float(commits)), each)
        case _:
            sys.exit("usage: python -m bench.state.cold_plans SNAPSHOT COMMITS [STORE]")


if __name__ == "__main__":
    main()
