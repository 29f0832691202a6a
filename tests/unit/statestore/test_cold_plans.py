"""What a process that begins asks for to plan the look-up of one key."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from bench.state.commits import Run
from bench.state.tables import PERIOD, Plan, cold_plan, cold_plans, worst_table
from bench.state.workload import KEYS, TABLE, built, key
from dormouse.keys import KeyRange
from dormouse.log.pages import MOST_INCREMENTS, PAGE_CAPACITY
from dormouse.log.snapshot import encode_snapshot
from tests.support.depth import in_turn

REFERENCES = 20_000
ROUNDS = 3
"""The head; where blocks lie, the segments and the open page; the blocks and the deltas."""


@cache
def snapshot() -> bytes:
    return encode_snapshot(TABLE, built(REFERENCES), has_key_index=True)


def assert_bounded(plans: list[Plan], most_requests: int, most_bytes: int) -> None:
    for plan in plans:
        assert plan.rounds <= ROUNDS
        assert plan.asked <= most_requests
        assert plan.requests.read.total() <= most_bytes


@pytest.mark.parametrize(
    ("kept_in", "most_requests", "most_bytes"),
    in_turn([("s3", 20, 186_000), ("dynamodb", 6, 258_000)], parts=2),
)
def test_a_cold_plan_at_the_worst_point_takes_three_rounds(
    kept_in: str, most_requests: int, most_bytes: int
) -> None:
    """With as many increments as there can be, and a commit before the next one is due."""
    table = worst_table(snapshot(), kept_in, MOST_INCREMENTS * PERIOD)
    head, plans = table.pages.head(TABLE), cold_plans(table)
    assert head
    assert len(head.manifest.increments) == MOST_INCREMENTS
    page = table.pages.page(TABLE, head.last_page)
    assert page
    assert len(page.ids) == PAGE_CAPACITY - 1
    assert len(plans) > 5
    assert_bounded(plans, most_requests, most_bytes)


@pytest.mark.parametrize(
    ("kept_in", "most_requests", "most_bytes"),
    in_turn([("s3", 16, 160_000), ("dynamodb", 6, 180_000)], parts=2),
)
def test_a_cold_plan_is_bounded_at_any_time(
    kept_in: str, most_requests: int, most_bytes: int
) -> None:
    run, random = Run(REFERENCES, snapshot(), 1000, kept_in), Random(7)
    plans = []
    for _ in range(11):
        run.commit(PAGE_CAPACITY - 1)
        found = cold_plan(run.table, KeyRange.exactly(key(random.randrange(KEYS))))
        plans += [found] if found else []
        run.commit(1)
        run.maintainer.maintain()
    assert len(plans) > 5
    assert_bounded(plans, most_requests, most_bytes)
