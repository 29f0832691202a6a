"""The queues of a folder: what SQS promises, and that messages of a dead process come at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dormouse.errors import NotFoundError, UnavailableError
from dormouse.folder.database import Database
from dormouse.folder.queues import SqliteQueues
from dormouse.jobs.retry_policy import MAX_RECEIVES
from dormouse.messages import OutboundMessage, TableChanged, decode
from dormouse.ports import QueueCounts
from tests.contract.folders import database_in
from tests.support.adapters import FakeClock

CHANGES, DEAD = "table-changes", "table-changes-dead"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with database_in(tmp_path) as database:
        yield database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queues(database: Database, clock: FakeClock) -> SqliteQueues:
    return SqliteQueues(database, clock, "this")


def changes(count: int, delay_seconds: int = 0) -> list[OutboundMessage]:
    return [OutboundMessage(CHANGES, TableChanged(f"{n:04}"), delay_seconds) for n in range(count)]


def received(queues: SqliteQueues, most: int = 1000, queue: str = CHANGES) -> list[str]:
    found = queues.receive(queue, most, 60)
    return [decode(message.body, TableChanged).table_id for message in found]


def test_messages_are_received_once_the_oldest_first_and_no_more_than_asked_for(
    queues: SqliteQueues,
) -> None:
    queues.send(changes(250))
    assert received(queues, 10) == [f"{n:04}" for n in range(10)]
    assert received(queues) == [f"{n:04}" for n in range(10, 250)]
    assert received(queues) == []


def test_what_was_made_before_a_failure_is_sent_and_the_failure_is_raised(
    queues: SqliteQueues,
) -> None:
    def made() -> Iterator[OutboundMessage]:
        yield from changes(130)
        raise UnavailableError("throttled")

    with pytest.raises(UnavailableError, match="throttled"):
        queues.send(made())
    assert len(received(queues)) == 130


def test_a_message_can_be_made_by_what_writes_to_the_same_file(queues: SqliteQueues) -> None:
    """A stage commits between two of its messages: sending must not hold a transaction."""

    def made() -> Iterator[OutboundMessage]:
        for message in changes(3):
            queues.send_body("files", "{}")
            yield message

    queues.send(made())
    assert len(received(queues)) == 3


def test_a_delayed_message_is_seen_when_its_time_has_come(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(1, delay_seconds=900))
    assert queues.counts([CHANGES])[CHANGES] == QueueCounts(0, 0, 1)
    assert queues.next_due_ms() == clock.now_ms() + 900_000
    clock.advance(seconds=899)
    assert received(queues) == []
    clock.advance(seconds=1)
    assert received(queues) == ["0000"]


def test_a_message_that_is_not_deleted_comes_again_and_a_deleted_one_does_not(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(2))
    done, _ = queues.receive(CHANGES, 2, 60)
    queues.delete([done])
    clock.advance(seconds=60)
    (again,) = queues.receive(CHANGES, 2, 60)
    assert (decode(again.body, TableChanged).table_id, again.receives) == ("0001", 2)


def test_one_that_came_again_is_not_deleted_by_a_slow_receiver(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(1))
    (slow,) = queues.receive(CHANGES, 1, 60)
    clock.advance(seconds=60)
    (quick,) = queues.receive(CHANGES, 1, 60)
    queues.delete([slow])
    with pytest.raises(UnavailableError, match=CHANGES):
        queues.retry_in(slow, 0)
    queues.bury(slow, "it failed")
    assert queues.depths([CHANGES]) == {CHANGES: 1}
    queues.delete([quick])
    assert queues.depths([CHANGES]) == {CHANGES: 0}


def test_a_message_can_come_again_soon(queues: SqliteQueues, clock: FakeClock) -> None:
    queues.send(changes(1))
    (message,) = queues.receive(CHANGES, 1, 900)
    queues.retry_in(message, 30)
    assert queues.counts([CHANGES])[CHANGES] == QueueCounts(0, 1, 0)
    clock.advance(seconds=30)
    assert received(queues) == ["0000"]


def test_what_was_received_in_vain_as_often_as_allowed_is_a_dead_letter(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(1))
    for _ in range(MAX_RECEIVES):
        assert received(queues) == ["0000"]
        clock.advance(seconds=60)
    assert received(queues) == []
    counts = queues.counts([CHANGES, DEAD])
    assert (counts[CHANGES].waiting, counts[DEAD].waiting) == (0, 1)


def test_a_buried_message_keeps_its_body_and_bears_a_reason_that_can_be_shown(
    queues: SqliteQueues, database: Database
) -> None:
    queues.send_body(CHANGES, "{not json")
    (message,) = queues.receive(CHANGES, 1, 60)
    queues.bury(message, "\x01\ud800 " + "x" * 5000)
    with database.reading() as connection:
        ((queue, body, reason),) = connection.execute("SELECT queue, body, reason FROM messages")
    assert (queue, body) == (DEAD, "{not json")
    assert reason == "\ufffd\ufffd " + "x" * 997


def test_messages_of_a_process_that_died_are_seen_at_once_and_those_of_a_living_one_are_not(
    database: Database, clock: FakeClock
) -> None:
    alive = {"first", "second"}
    first, second = (
        SqliteQueues(database, clock, name, alive.__contains__) for name in ("first", "second")
    )
    first.send(changes(2))
    assert received(first, 1) == ["0000"]
    assert received(second, 1) == ["0001"]
    assert second.release_of_dead() == 0
    alive.remove("first")
    assert second.release_of_dead() == 1
    assert received(second) == ["0000"]
    assert second.release_of_dead() == 0


def test_a_queue_that_does_not_exist_is_named(queues: SqliteQueues) -> None:
    for attempt in (
        lambda: queues.depths(["filse"]),
        lambda: queues.send_body("filse", "{}"),
        lambda: queues.receive("filse", 1, 60),
    ):
        with pytest.raises(NotFoundError, match="filse") as raised:
            attempt()
        assert "files" in raised.value.hint


def test_the_age_of_a_queue_is_that_of_its_oldest_message(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(1))
    clock.advance(seconds=7)
    queues.send(changes(1))
    assert queues.ages([CHANGES, "files"], clock.now_ms()) == {CHANGES: 7.0}
