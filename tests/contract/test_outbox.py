"""The way out to the queues: all messages arrive, in requests SQS takes, or an error says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ConnectionClosedError

from dormouse.aws.queues import MAX_BATCH_BYTES, SENDERS, SqsOutbox
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.messages.requests import Redrive
from dormouse.messages.stages import GarbageCandidates, OutboundMessage, TableChanged, decode
from dormouse.stored.paths import InstanceNames, dead_letter_queue
from tests.contract.mocked_aws import mocked_aws, sqs_queues
from tests.support.retries import WITHOUT_PAUSES

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

NAMES = InstanceNames("test", "123456789012")
CHANGES, GARBAGE = "table-changes", "gc-candidates"


@dataclass
class Queues:
    """Queues of an instance, and the requests that were made of them."""

    client: SQSClient
    outbox: SqsOutbox
    requests: list[list[dict[str, Any]]]

    def received(self, queue: str) -> list[str]:
        """Take all visible messages of a queue."""
        url = self.client.get_queue_url(QueueName=NAMES.queue(queue))["QueueUrl"]
        bodies: list[str] = []
        while found := self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            bodies += [message["Body"] for message in found]
        return bodies


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queues]:
    with mocked_aws(monkeypatch):
        client = sqs_queues(*map(NAMES.queue, (CHANGES, GARBAGE, dead_letter_queue(CHANGES))))
        requests: list[list[dict[str, Any]]] = []

        def note(params: dict[str, Any], **_: object) -> None:
            requests.append(params["Entries"])

        client.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
        yield Queues(client, SqsOutbox(client, NAMES, WITHOUT_PAUSES), requests)


def changes(count: int) -> list[OutboundMessage]:
    return [OutboundMessage(CHANGES, TableChanged(f"{number:04}")) for number in range(count)]


def garbage(shard_bytes: int) -> OutboundMessage:
    return OutboundMessage(GARBAGE, GarbageCandidates("t", 0, ("x" * shard_bytes,)))


def table_ids(bodies: Sequence[str]) -> list[str]:
    return sorted(decode(body, TableChanged).table_id for body in bodies)


def test_each_message_arrives_once_in_its_queue_in_as_few_requests_as_possible(
    queues: Queues,
) -> None:
    mixed = [message for change in changes(12) for message in (change, garbage(1))]
    queues.outbox.send(mixed)
    assert table_ids(queues.received(CHANGES)) == [f"{number:04}" for number in range(12)]
    assert len(queues.received(GARBAGE)) == 12
    assert sorted(len(entries) for entries in queues.requests) == [2, 2, 10, 10]


def test_messages_about_a_table_are_of_its_group_so_that_queues_are_fair_among_tables(
    queues: Queues,
) -> None:
    queues.outbox.send([*changes(2), OutboundMessage(CHANGES, Redrive("request", "files"))])
    url = queues.client.get_queue_url(QueueName=NAMES.queue(CHANGES))["QueueUrl"]
    found = queues.client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
    )["Messages"]
    groups = [message["Attributes"].get("MessageGroupId") for message in found]
    assert groups == ["0000", "0001", None]


def test_messages_are_sent_while_more_are_made(queues: Queues) -> None:
    under_way: list[int] = []

    def made() -> Iterator[OutboundMessage]:
        for outgoing in changes(10 * (SENDERS + 3)):
            yield outgoing
            under_way.append(len(queues.requests))

    queues.outbox.send(made())
    assert max(under_way) >= 2, "a planning of many must not hold all its messages"
    assert len(queues.received(CHANGES)) == 10 * (SENDERS + 3)


def test_messages_made_before_a_failure_are_sent_and_the_failure_is_raised(queues: Queues) -> None:
    def made() -> Iterator[OutboundMessage]:
        yield from changes(13)
        raise UnavailableError("throttled")

    with pytest.raises(UnavailableError, match="throttled"):
        queues.outbox.send(made())
    assert len(queues.received(CHANGES)) == 13


def test_nothing_to_send_is_no_request(queues: Queues) -> None:
    queues.outbox.send([])
    assert queues.requests == []


def test_large_messages_travel_in_requests_of_a_mebibyte(queues: Queues) -> None:
    queues.outbox.send([garbage(400_000)] * 5)
    assert sorted(len(entries) for entries in queues.requests) == [1, 2, 2]  # sent side by side
    assert len(queues.received(GARBAGE)) == 5


def test_the_size_of_a_message_is_counted_in_bytes_not_characters(queues: Queues) -> None:
    wide = OutboundMessage(GARBAGE, GarbageCandidates("t", 0, ("ü" * 300_000,)))
    queues.outbox.send([wide, wide])
    assert [len(entries) for entries in queues.requests] == [1, 1]


def test_a_message_larger_than_any_request_is_refused_by_name(queues: Queues) -> None:
    with pytest.raises(InvalidRequestError, match="too large for queue 'gc-candidates'"):
        queues.outbox.send([garbage(MAX_BATCH_BYTES)])


def test_a_delay_is_kept_up_to_the_longest_there_is(queues: Queues) -> None:
    waits = [OutboundMessage(CHANGES, TableChanged("t"), seconds) for seconds in (0, 60, 5000)]
    queues.outbox.send(waits)
    assert [entry["DelaySeconds"] for entry in queues.requests[0]] == [0, 60, 900]
    assert len(queues.received(CHANGES)) == 1


def test_entries_that_failed_are_sent_again_and_only_they(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_entries(queues, monkeypatch, [{"1", "3"}, {"3"}])
    queues.outbox.send(changes(4))
    assert table_ids(queues.received(CHANGES)) == ["0000", "0001", "0002", "0003"]
    assert [len(entries) for entries in queues.requests] == [2, 1, 1]


def test_entries_that_keep_failing_are_reported_with_the_reason(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_entries(queues, monkeypatch, [{"1"}] * 100)
    with pytest.raises(UnavailableError, match="did not take 1 messages: InternalError try later"):
        queues.outbox.send(changes(4))
    assert table_ids(queues.received(CHANGES)) == ["0000", "0002", "0003"]


def fail_entries(queues: Queues, monkeypatch: pytest.MonkeyPatch, failing: list[set[str]]) -> None:
    """Let the entries of these ids fail, request by request."""
    send = queues.client.send_message_batch

    def partly(*, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:
        ids = failing.pop(0) if failing else set()
        good = [entry for entry in Entries if entry["Id"] not in ids]
        if good:
            send(QueueUrl=QueueUrl, Entries=good)
        failed = [
            {"Id": i, "Code": "InternalError", "Message": "try later", "SenderFault": False}
            for i in sorted(ids)
        ]
        return {"Successful": [], "Failed": failed}

    monkeypatch.setattr(queues.client, "send_message_batch", partly)


def test_a_queue_that_does_not_answer_is_reported(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="sqs")

    for method in ("send_message_batch", "send_message", "get_queue_attributes"):
        monkeypatch.setattr(queues.client, method, silent)
    for attempt in (
        lambda: queues.outbox.send(changes(1)),
        lambda: queues.outbox.send_to_dead_letters(CHANGES, "body", "reason"),
        lambda: queues.outbox.depths([CHANGES]),
    ):
        with pytest.raises(UnavailableError, match="table-changes"):
            attempt()


def test_a_queue_that_was_never_deployed_is_named(queues: Queues) -> None:
    with pytest.raises(NotFoundError, match="dormouse-test-admin") as caught:
        queues.outbox.depths(["admin"])
    assert "deploy" in caught.value.hint


def test_depth_counts_what_waits_and_what_is_being_worked_on_but_not_the_delayed(
    queues: Queues,
) -> None:
    queues.outbox.send([*changes(3), OutboundMessage(CHANGES, TableChanged("later"), 60)])
    url = queues.client.get_queue_url(QueueName=NAMES.queue(CHANGES))["QueueUrl"]
    queues.client.receive_message(QueueUrl=url, MaxNumberOfMessages=1)
    assert queues.outbox.depths([CHANGES, GARBAGE]) == {CHANGES: 3, GARBAGE: 0}


def test_a_dead_letter_keeps_its_body_and_has_the_reason(queues: Queues) -> None:
    queues.outbox.send_to_dead_letters(CHANGES, "{not json", "not a message: " + "x" * 5000)
    url = queues.client.get_queue_url(QueueName=NAMES.queue(dead_letter_queue(CHANGES)))["QueueUrl"]
    answer = queues.client.receive_message(QueueUrl=url, MessageAttributeNames=["reason"])
    (message,) = answer["Messages"]
    assert message["Body"] == "{not json"
    reason = message["MessageAttributes"]["reason"]["StringValue"]
    assert reason.startswith("not a message: x")
    assert len(reason) == 1000


def test_a_message_that_is_being_worked_on_can_come_again_soon(queues: Queues) -> None:
    queues.outbox.send(changes(1))
    url = queues.client.get_queue_url(QueueName=NAMES.queue(CHANGES))["QueueUrl"]
    (received,) = queues.client.receive_message(QueueUrl=url)["Messages"]
    assert queues.received(CHANGES) == []
    queues.outbox.retry_in(CHANGES, received["ReceiptHandle"], 0)
    assert queues.received(CHANGES) == [received["Body"]]


def test_a_message_that_is_worked_on_no_more_cannot_be_hurried(queues: Queues) -> None:
    with pytest.raises(UnavailableError, match=CHANGES):
        queues.outbox.retry_in(CHANGES, "stale", 0)


@pytest.mark.parametrize(
    ("body", "reason", "found"),
    [
        ("{", "unknown field `\x01\0\ud800`", "unknown field `\ufffd\ufffd\ufffd`"),
        ("x" * (MAX_BATCH_BYTES - 20), "not a message: ä", "not a me"),
        ("x" * (MAX_BATCH_BYTES - 13), "ä", None),
        ("x" * MAX_BATCH_BYTES, "not a message", None),
    ],
)
def test_no_reason_keeps_a_message_from_the_dead_letters(
    queues: Queues, body: str, reason: str, found: str | None
) -> None:
    """SQS refuses what XML cannot hold, and a message that is too large with its attributes."""
    sent: list[dict[str, Any]] = []

    def note(params: dict[str, Any], **_: object) -> None:
        sent.append(params)

    queues.client.meta.events.register("provide-client-params.sqs.SendMessage", note)
    queues.outbox.send_to_dead_letters(CHANGES, body, reason)
    (request,) = sent
    attributes = request["MessageAttributes"]
    assert attributes.get("reason", {}).get("StringValue") == found
    told_bytes = sum(len(f"{n}String{a['StringValue']}".encode()) for n, a in attributes.items())
    assert len(body) + told_bytes <= MAX_BATCH_BYTES


def test_a_failed_request_among_concurrent_ones_is_reported(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_is_lost(*, Entries: list[Any], **_: object) -> dict[str, Any]:
        if table_ids([Entries[0]["MessageBody"]]) == ["0000"]:
            raise ConnectionClosedError(endpoint_url="sqs")
        return {"Successful": [], "Failed": []}

    monkeypatch.setattr(queues.client, "send_message_batch", first_is_lost)
    with pytest.raises(UnavailableError, match=CHANGES):
        queues.outbox.send(changes(10 * 4 * SENDERS))
