"""Which messages go into a batch, and which of them come back: event source mappings' rules."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse_cli.local.event_sources import failed_ids, gather, scheduled_event, sqs_event
from dormouse_cli.local.lambda_host import Outcome
from dormouse_cli.local.plan import EventSource, PlannedSchedule

BATCH = ("a", "b", "c")


def source(batch_size: int = 10, window_seconds: int = 0) -> EventSource:
    return EventSource("f", "q", "arn:q", batch_size, window_seconds, True, None)


class Arrivals:
    """A queue whose messages arrive at given seconds, and the clock by which they do."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)
        self.now = 0.0

    def receive(self, count: int, wait_seconds: int) -> Sequence[dict[str, Any]]:
        assert 1 <= count <= 10
        if self._seconds and self._seconds[0] > self.now:
            self.now = min(self._seconds[0], self.now + wait_seconds)
        taken = [second for second in self._seconds[:count] if second <= self.now]
        del self._seconds[: len(taken)]
        return [{"MessageId": str(second)} for second in taken]

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def gather(self, source: EventSource) -> list[str]:
        batch = gather(self.receive, source, lambda: self.now, self.pause)
        return [message["MessageId"] for message in batch]


def test_without_a_window_a_batch_is_what_is_there() -> None:
    arrivals = Arrivals(5.0, 5.0, 6.0)
    assert arrivals.gather(source()) == ["5.0", "5.0"]


def test_the_window_runs_from_the_first_message() -> None:
    arrivals = Arrivals(5.0, 6.9, 7.1)
    assert arrivals.gather(source(window_seconds=2)) == ["5.0", "6.9"]


def test_a_full_batch_does_not_wait_for_its_window() -> None:
    arrivals = Arrivals(*[1.0] * 30)
    assert len(arrivals.gather(source(batch_size=25, window_seconds=300))) == 25
    assert arrivals.now == 1.0


def test_an_idle_queue_gives_no_batch() -> None:
    assert Arrivals().gather(source(window_seconds=2)) == []


@given(st.lists(st.floats(0, 15), max_size=60).map(sorted), st.integers(1, 40), st.integers(0, 5))
def test_a_batch_is_the_oldest_messages_within_size_and_window(
    seconds: list[float], batch_size: int, window_seconds: int
) -> None:
    batch = Arrivals(*seconds).gather(source(batch_size, window_seconds))
    assert batch == [str(second) for second in seconds[: len(batch)]]
    assert len(batch) <= batch_size
    assert bool(batch) == bool(seconds)


def answer(body: object, *, failed: bool = False) -> Outcome:
    return Outcome(json.dumps(body).encode(), failed)


def failures(*ids: object) -> Outcome:
    return answer({"batchItemFailures": [{"itemIdentifier": one} for one in ids]})


@pytest.mark.parametrize(
    "outcome",
    [answer(None), answer({}), answer({"batchItemFailures": None}), failures()],
    ids=["null", "empty", "null-list", "empty-list"],
)
def test_an_answer_without_failures_lets_no_message_come_back(outcome: Outcome) -> None:
    assert failed_ids(outcome, BATCH, reports_item_failures=True) == set()


def test_only_the_reported_messages_come_back() -> None:
    assert failed_ids(failures("b"), BATCH, reports_item_failures=True) == {"b"}


@pytest.mark.parametrize(
    "outcome",
    [
        failures("b", "stranger"),
        failures(""),
        failures(None),
        failures(["b"]),
        answer({"batchItemFailures": [{"id": "b"}]}),
        answer({"batchItemFailures": ["b"]}),
        answer({"batchItemFailures": 7}),
        answer("done"),
        answer({"errorType": "ValueError"}, failed=True),
    ],
    ids=str,
)
def test_a_confused_or_failed_function_gets_the_whole_batch_back(outcome: Outcome) -> None:
    assert failed_ids(outcome, BATCH, reports_item_failures=True) == set(BATCH)


def test_failures_count_only_where_the_mapping_asks_for_them() -> None:
    assert failed_ids(failures("b"), BATCH, reports_item_failures=False) == set()


def test_a_record_has_the_shape_of_lambdas_events() -> None:
    message = {
        "MessageId": "id",
        "ReceiptHandle": "handle",
        "MD5OfBody": "md5",
        "Body": "body",
        "Attributes": {"ApproximateReceiveCount": "1"},
        "MessageAttributes": {"kind": {"StringValue": "x", "DataType": "String"}},
    }
    assert sqs_event([message], source()) == {
        "Records": [
            {
                "messageId": "id",
                "receiptHandle": "handle",
                "body": "body",
                "attributes": {"ApproximateReceiveCount": "1"},
                "messageAttributes": {
                    "kind": {
                        "stringValue": "x",
                        "dataType": "String",
                        "stringListValues": [],
                        "binaryListValues": [],
                    }
                },
                "md5OfBody": "md5",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:q",
                "awsRegion": "eu-west-2",
            }
        ]
    }


def test_a_scheduled_event_has_the_shape_of_eventbridges() -> None:
    event = scheduled_event(PlannedSchedule("arn:s", "f", 60, None), "id", 0.0)
    assert event["time"] == "1970-01-01T00:00:00Z"
    assert (event["detail-type"], event["source"]) == ("Scheduled Event", "aws.events")
    assert event["resources"] == ["arn:s"]


def test_a_schedules_own_input_is_sent_instead() -> None:
    schedule = PlannedSchedule("arn:s", "f", 60, '{"only": "this"}')
    assert scheduled_event(schedule, "id", 0.0) == {"only": "this"}
