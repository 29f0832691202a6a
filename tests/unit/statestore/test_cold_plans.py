"""What a process that begins reads to plan the look-up of one key, at any time."""

from __future__ import annotations

from random import Random

import pytest

from bench.state.commits import Run
from bench.state.counting import Requests
from bench.state.memory import KEYS, TABLE, built, key
from dormouse.keys.ranges import KeyRange
from dormouse.model.part_of_state import PartOfState
from dormouse.statestore.log.pages import PAGE_CAPACITY
from dormouse.statestore.snapshot.codec import encode_snapshot

REFERENCES = 20_000


@pytest.mark.parametrize(
    ("kept_in", "most_requests", "most_bytes"), [("s3", 22, 200_000), ("dynamodb", 10, 300_000)]
)
def test_a_cold_plan_of_one_key_is_bounded_at_any_time(
    kept_in: str, most_requests: int, most_bytes: int
) -> None:
    snapshot = encode_snapshot(TABLE, built(REFERENCES), has_key_index=True)
    run, random, parts = Run(REFERENCES, snapshot, 1000, kept_in), Random(7), 0
    for _ in range(11):
        run.commit(PAGE_CAPACITY - 1)
        requests = Requests()
        store = run.table.store(requests, 5)
        wanted = [KeyRange.exactly(key(random.randrange(KEYS)))]
        if isinstance(store.part(lambda wanted=wanted: wanted), PartOfState):
            parts += 1
            asked = requests.counts["get"] + requests.counts["dynamo_reads"]
            assert asked <= most_requests
            assert requests.read.total() <= most_bytes
        run.commit(1)
        run.maintainer.maintain()
    assert parts > 5
