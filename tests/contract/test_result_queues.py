"""The queues of others on SQS: those of the list alone, in order, and one error for one that is
gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ConnectionClosedError

from dormouse.aws.queues import SqsResultQueues
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from tests.contract.mocked_aws import mocked_aws, sqs_queues

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[SQSClient]:
    with mocked_aws(monkeypatch):
        found = sqs_queues("answers", "foreign")
        found.create_queue(QueueName="ordered.fifo", Attributes={"FifoQueue": "true"})
        yield found


def received(client: SQSClient, queue: str) -> list[str]:
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    return [message["Body"] for message in found.get("Messages", [])]


def test_texts_arrive_at_queues_of_the_list(client: SQSClient) -> None:
    queues = SqsResultQueues(client, ["answers", "ordered.fifo"])
    queues.check("answers")
    queues.send("answers", "q", ["one", "two"])
    assert sorted(received(client, "answers")) == ["one", "two"]


def test_a_fifo_queue_keeps_the_order_and_drops_what_comes_again(client: SQSClient) -> None:
    queues = SqsResultQueues(client, ["ordered.fifo"])
    for _ in range(2):
        queues.send("ordered.fifo", "q", ["one", "two", "three"])
    assert received(client, "ordered.fifo") == ["one", "two", "three"]


@pytest.mark.parametrize(
    "queue", ["foreign", "", "arn:aws:sqs:eu-west-2:123456789012:foreign", "dormouse-test-admin"]
)
def test_no_other_queue_is_sent_to(client: SQSClient, queue: str) -> None:
    queues = SqsResultQueues(client, ["answers"])
    with pytest.raises(InvalidRequestError, match="results are not sent to a queue"):
        queues.check(queue)
    with pytest.raises(InvalidRequestError):
        queues.send(queue, "q", ["secret"])
    assert received(client, "foreign") == []


def test_a_queue_that_is_gone_is_not_found_also_if_it_was_there_before(client: SQSClient) -> None:
    queues = SqsResultQueues(client, ["answers", "never"])
    with pytest.raises(NotFoundError, match="is gone"):
        queues.check("never")
    queues.check("answers")
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName="answers")["QueueUrl"])
    with pytest.raises(NotFoundError, match="is gone"):
        queues.send("answers", "q", ["one"])
    with pytest.raises(NotFoundError, match="is gone"):
        queues.check("answers")


def test_a_service_that_does_not_answer_is_asked_again_later(
    client: SQSClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="sqs")

    queues = SqsResultQueues(client, ["answers"])
    monkeypatch.setattr(client, "send_message", broken)
    with pytest.raises(UnavailableError):
        queues.send("answers", "q", ["one"])
