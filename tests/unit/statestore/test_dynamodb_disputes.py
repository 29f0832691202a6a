"""Takings and disputes come back from their records as they were, in their order."""

from __future__ import annotations

import pytest

from dormouse.errors import CorruptDataError
from dormouse.model.disputes import Dispute, DisputeReason, RowsTaken
from dormouse.statestore.dynamodb_disputes import dispute_of, dispute_to, takings_of, takings_to
from dormouse.statestore.items import Values

TAKINGS = (
    RowsTaken("z", "0", 4),
    RowsTaken("a", "10", 0),
    RowsTaken("m", "11", None),
    *(RowsTaken("z", str(number), number) for number in range(12)),
)


def test_takings_keep_their_order_whatever_their_jobs_are_called_and_however_often() -> None:
    records = takings_to("s", TAKINGS)
    assert takings_of(dict(sorted(records.items()))) == {"s": TAKINGS}


@pytest.mark.parametrize("jobs", [(), ("b", "a")])
def test_a_dispute_is_read_as_it_was_written(jobs: tuple[str, ...]) -> None:
    dispute = Dispute(DisputeReason.BYTES_DAMAGED, 7, jobs)
    record = dispute_to(dispute)
    assert record is not None
    assert dispute_of("s", record) == dispute


@pytest.mark.parametrize(
    "record",
    [{}, {"reason": "unheard of", "since_ms": 1, "jobs": ()}, {"reason": "rows_lost", "jobs": ()}],
)
def test_a_record_that_no_dispute_has_is_corrupt(record: Values) -> None:
    with pytest.raises(CorruptDataError, match="over shard s"):
        dispute_of("s", record)


def test_a_record_that_no_taking_has_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="what was taken, s/1, cannot"):
        takings_of({"s/1": {"partition": "0"}})
