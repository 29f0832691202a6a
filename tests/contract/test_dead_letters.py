"""Dead letters: received, released, redriven and deleted, in SQS each entry for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ConnectionClosedError

from dormouse.aws.queues import SqsDeadLetters, SqsOutbox
from dormouse.client.waiting import Queues
from dormouse.errors import NotFoundError, UnavailableError
from dormouse.folder.queues import SqliteDeadLetters, SqliteQueues
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import DeadLetter, DeadLetters, QueueCounts
from dormouse.stored.paths import InstanceNames, dead_letter_queue
from dormouse.system import SystemClock
from tests.contract.folders import database_in
from tests.contract.mocked_aws import mocked_aws, sqs_queues
from tests.support.retries import WITHOUT_PAUSES

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

NAMES = InstanceNames("test", "123456789012")
QUEUE = "table-changes"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[SQSClient]:
    with mocked_aws(monkeypatch):
        yield sqs_queues(NAMES.queue(QUEUE), NAMES.queue(dead_letter_queue(QUEUE)))


@pytest.fixture
def outbox(client: SQSClient) -> SqsOutbox:
    return SqsOutbox(client, NAMES, WITHOUT_PAUSES)


@pytest.fixture
def dead(client: SQSClient, outbox: SqsOutbox, monkeypatch: pytest.MonkeyPatch) -> SqsDeadLetters:
    monkeypatch.setattr("dormouse.aws.queues.LOOK_SECONDS", 0)
    for number in range(12):
        outbox.send_to_dead_letters(QUEUE, f"body {number}", f"reason {number}")
    return SqsDeadLetters(client, NAMES, WITHOUT_PAUSES)


@pytest.fixture(params=["sqs", "folder"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Queues, DeadLetters]]:
    """Return the queues of an instance, and twelve dead letters."""
    if request.param == "sqs":
        yield request.getfixturevalue("outbox"), request.getfixturevalue("dead")
        return
    with database_in(tmp_path) as database:
        clock = SystemClock()
        queues = SqliteQueues(database, clock, "this", {"this"}.__contains__)
        for number in range(12):
            queues.send_body(f"{QUEUE}-dead", f"body {number}", reason=f"reason {number}")
        yield queues, SqliteDeadLetters(database, clock)


def taken(dead: DeadLetters) -> list[DeadLetter]:
    return sorted(dead.receive(QUEUE, 100), key=lambda letter: letter.body)


def test_received_dead_letters_are_whole_and_invisible_to_others_until_released(
    ends: tuple[Queues, DeadLetters],
) -> None:
    _, dead = ends
    letters = taken(dead)
    assert sorted(letter.body for letter in letters) == sorted(f"body {n}" for n in range(12))
    assert letters[0].reason == "reason 0"
    assert letters[0].receives == 1
    assert letters[0].sent_ms > 1_600_000_000_000
    assert taken(dead) == []
    dead.release(QUEUE, letters)
    assert [letter.id for letter in taken(dead)] == [letter.id for letter in letters]


def test_no_more_dead_letters_are_received_than_requested(ends: tuple[Queues, DeadLetters]) -> None:
    _, dead = ends
    assert len(dead.receive(QUEUE, 11)) == 11
    assert len(dead.receive(QUEUE, 11)) == 1


def test_what_is_sent_back_arrives_word_for_word_and_what_is_deleted_is_gone(
    ends: tuple[Queues, DeadLetters],
) -> None:
    outbox, dead = ends
    letters = taken(dead)
    assert dead.redrive(QUEUE, letters) == letters
    assert dead.delete(QUEUE, letters) == []
    counts = outbox.counts([QUEUE, dead_letter_queue(QUEUE)])
    assert counts == {QUEUE: QueueCounts(12, 0, 0), dead_letter_queue(QUEUE): QueueCounts(0, 0, 0)}


@pytest.mark.parametrize("operation", ["send_message_batch", "delete_message_batch"])
def test_entries_that_keep_failing_are_distinguished_from_those_that_succeed(
    dead: SqsDeadLetters, client: SQSClient, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    letters = taken(dead)[:3]
    request = getattr(client, operation)

    def partly(*, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:
        good = [entry for entry in Entries if entry["Id"] != "1"]
        if good:
            request(QueueUrl=QueueUrl, Entries=good)
        return {"Failed": [{"Id": "1", "Code": "InternalError", "SenderFault": False}]}

    monkeypatch.setattr(client, operation, partly)
    if operation == "send_message_batch":
        assert dead.redrive(QUEUE, letters) == [letters[0], letters[2]]
    else:
        assert dead.delete(QUEUE, letters) == [letters[1]]


def test_large_dead_letters_travel_in_requests_of_a_mebibyte(
    client: SQSClient, outbox: SqsOutbox
) -> None:
    for _ in range(4):
        outbox.send_to_dead_letters(QUEUE, "x" * 400_000, "large")
    dead = SqsDeadLetters(client, NAMES, WITHOUT_PAUSES)
    letters = taken(dead)
    assert len(dead.redrive(QUEUE, letters)) == len(letters) == 4


def test_a_queue_that_does_not_answer_or_is_not_there_is_reported(
    dead: SqsDeadLetters, client: SQSClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="dormouse-test-files-dead"):
        dead.receive("files", 10)

    def silent(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="sqs")

    monkeypatch.setattr(client, "receive_message", silent)
    with pytest.raises(UnavailableError, match="table-changes-dead"):
        dead.receive(QUEUE, 10)


def test_counts_distinguish_waiting_messages_from_those_in_flight_and_delayed(
    ends: tuple[Queues, DeadLetters],
) -> None:
    outbox, dead = ends
    outbox.send(
        [OutboundMessage(QUEUE, TableChanged("t"), 60), OutboundMessage(QUEUE, TableChanged("t"))]
    )
    dead.receive(QUEUE, 2)
    assert outbox.counts([QUEUE, dead_letter_queue(QUEUE)]) == {
        QUEUE: QueueCounts(1, 0, 1),
        dead_letter_queue(QUEUE): QueueCounts(10, 2, 0),
    }
