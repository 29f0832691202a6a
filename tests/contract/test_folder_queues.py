"""The queues of a folder: what SQS promises, and that messages of a dead process come at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from dormouse.errors import NotFoundError, UnavailableError
from dormouse.folder.queues import SqliteQueues
from dormouse.folder.sqlite import Database
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages.stages import OutboundMessage, TableChanged, decode
from dormouse.ports import QueueCounts
from tests.support.adapters import FakeClock

CHANGES, DEAD = "table-changes", "table-changes-dead"


@pytest.fixture
def queues(database: Database, clock: FakeClock) -> SqliteQueues:
    return named(database, clock, "this", {"this"})


@pytest.fixture
def other(database: Database, clock: FakeClock) -> SqliteQueues:
    """Return the queues of a process that takes all others for dead."""
    return named(database, clock, "other", {"other"})


def changes(count: int, delay_seconds: int = 0) -> list[OutboundMessage]:
    return [OutboundMessage(CHANGES, TableChanged(f"{n:04}"), delay_seconds) for n in range(count)]


def received(queues: SqliteQueues, most: int = 1000, queue: str = CHANGES) -> list[str]:
    found = queues.receive(queue, most)
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
    clock.advance(seconds=899)
    assert received(queues) == []
    clock.advance(seconds=1)
    assert received(queues) == ["0000"]


def test_a_message_that_is_not_deleted_comes_again_and_a_deleted_one_does_not(
    queues: SqliteQueues, other: SqliteQueues
) -> None:
    queues.send(changes(2))
    done, _ = queues.receive(CHANGES, 2)
    queues.delete([done])
    other.release_unheld()
    (again,) = queues.receive(CHANGES, 2)
    assert (decode(again.body, TableChanged).table_id, again.receives) == ("0001", 2)


def test_a_message_goes_at_once_with_those_that_follow_from_it_or_not_at_all(
    queues: SqliteQueues, database: Database
) -> None:
    queues.send(changes(1))
    done = queues.receive(CHANGES, 1)

    def failing() -> Iterator[OutboundMessage]:
        yield from changes(1)
        raise OSError

    with pytest.raises(OSError):
        queues.send(failing(), done)
    assert queues.depths([CHANGES]) == {CHANGES: 2}
    with database.writing() as connection:
        connection.execute(
            "CREATE TRIGGER kept BEFORE DELETE ON messages BEGIN SELECT raise(ABORT, 'no'); END"
        )
    with pytest.raises(sqlite3.IntegrityError):
        queues.send(changes(1), done)
    assert queues.depths([CHANGES]) == {CHANGES: 2}
    with database.writing() as connection:
        connection.execute("DROP TRIGGER kept")
    queues.send(changes(2), done)
    assert queues.depths([CHANGES]) == {CHANGES: 2}


def test_the_same_news_are_sent_once_until_somebody_has_received_them(
    queues: SqliteQueues, clock: FakeClock
) -> None:
    queues.send(changes(1, delay_seconds=60))  # nobody can receive them yet
    for _ in range(2):
        queues.send(changes(2))
    assert received(queues) == ["0000", "0001"]
    queues.send(changes(1))
    assert received(queues) == ["0000"]
    clock.advance(seconds=60)
    assert received(queues)[:1] == ["0000"]


def test_one_that_came_again_is_not_deleted_by_a_slow_receiver(
    queues: SqliteQueues, other: SqliteQueues
) -> None:
    queues.send(changes(1))
    (slow,) = queues.receive(CHANGES, 1)
    other.release_unheld()
    (quick,) = queues.receive(CHANGES, 1)
    queues.delete([slow])
    with pytest.raises(UnavailableError, match=CHANGES):
        queues.retry_in(slow, 0)
    queues.bury(slow, "it failed")
    assert queues.depths([CHANGES]) == {CHANGES: 1}
    queues.delete([quick])
    assert queues.depths([CHANGES]) == {CHANGES: 0}


def test_a_message_can_come_again_soon(queues: SqliteQueues, clock: FakeClock) -> None:
    queues.send(changes(1))
    (message,) = queues.receive(CHANGES, 1)
    queues.retry_in(message, 30)
    assert queues.counts([CHANGES])[CHANGES] == QueueCounts(0, 1, 0)
    clock.advance(seconds=30)
    assert received(queues) == ["0000"]


def test_what_was_received_in_vain_as_often_as_allowed_is_a_dead_letter(
    queues: SqliteQueues, other: SqliteQueues
) -> None:
    queues.send(changes(1))
    for _ in range(MAX_RECEIVES):
        assert received(queues) == ["0000"]
        other.release_unheld()
    assert received(queues) == []
    counts = queues.counts([CHANGES, DEAD])
    assert (counts[CHANGES].waiting, counts[DEAD].waiting) == (0, 1)


def test_a_buried_message_keeps_its_body_and_bears_a_reason_that_can_be_shown(
    queues: SqliteQueues, database: Database
) -> None:
    queues.send_body(CHANGES, "{not json")
    (message,) = queues.receive(CHANGES, 1)
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
    assert second.release_unheld() == 0
    alive.remove("first")
    assert second.release_unheld() == 1
    assert received(second) == ["0000"]
    assert second.release_unheld() == 0


def named(database: Database, clock: FakeClock, name: str, alive: set[str]) -> SqliteQueues:
    return SqliteQueues(database, clock, name, alive.__contains__)


def test_work_that_takes_days_in_a_living_process_is_not_given_to_another(
    database: Database, clock: FakeClock
) -> None:
    alive = {"first", "second"}
    first, second = (named(database, clock, name, alive) for name in ("first", "second"))
    first.send(changes(1))
    (message,) = first.receive(CHANGES, 1)
    clock.advance(seconds=3 * 86_400)
    assert (first.release_unheld(), second.release_unheld()) == (0, 0)
    assert received(second) == []
    first.delete([message])
    alive.remove("first")
    assert second.release_unheld() == 0
    assert received(second) == []


@pytest.mark.parametrize("end", ["delete", "retry_in", "give_back", "bury"])
def test_a_message_whose_end_could_not_be_written_is_not_hidden_for_ever(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """As on a full disk: the process lives, and works on it no more."""
    queues = named(database, clock, "this", {"this"})
    queues.send(changes(1))
    (message,) = queues.receive(CHANGES, 1)
    arguments = {"retry_in": (message, 5), "bury": (message, "no")}.get(end, ([message],))
    with monkeypatch.context() as full:
        full.setattr(database, "writing", refuse)
        with pytest.raises(UnavailableError, match="full"):
            getattr(queues, end)(*arguments)
    assert received(queues) == []
    assert queues.release_unheld() == 1
    assert received(queues) == ["0000"]


def refuse(*, lazy: bool = False) -> None:  # noqa: ARG001  # as `Database.writing`
    raise UnavailableError("the disk is full")


def test_a_message_that_waits_for_its_next_attempt_waits_although_nobody_holds_it(
    database: Database, clock: FakeClock
) -> None:
    queues = named(database, clock, "this", {"this"})
    queues.send(changes(1))
    (message,) = queues.receive(CHANGES, 1)
    queues.retry_in(message, 30)
    assert queues.release_unheld() == 0
    assert received(queues) == []
    clock.advance(seconds=30)
    assert received(queues) == ["0000"]


def test_what_was_delayed_before_the_clock_was_set_back_waits_its_delay_and_no_longer(
    database: Database, clock: FakeClock
) -> None:
    queues = named(database, clock, "this", {"this"})
    queues.send(changes(1, delay_seconds=20))
    queues.send_body("files", "{}")
    (message,) = queues.receive("files", 1)
    queues.retry_in(message, 10)
    queues.send_body("admin", "{}")
    clock.ms -= 10 * 3_600_000
    queues.release_unheld()
    assert [each.body for each in queues.receive("admin", 9)] == ["{}"]
    assert (received(queues), queues.receive("files", 1)) == ([], [])
    clock.advance(seconds=10)
    assert len(queues.receive("files", 1)) == 1
    clock.advance(seconds=10)
    assert received(queues) == ["0000"]


def test_what_a_dead_process_had_comes_before_what_was_sent_since(
    database: Database, clock: FakeClock
) -> None:
    alive = {"first", "second"}
    first, second = (named(database, clock, name, alive) for name in ("first", "second"))
    first.send(changes(1))
    assert received(first) == ["0000"]
    clock.advance(seconds=5)
    second.send(OutboundMessage(CHANGES, TableChanged(f"later-{n}")) for n in range(3))
    clock.advance(seconds=5)
    alive.remove("first")
    second.release_unheld()
    assert received(second, 2) == ["0000", "later-0"]


def test_nothing_that_is_done_with_a_message_looks_at_the_others(
    database: Database, queues: SqliteQueues
) -> None:
    """With 100,000 messages, what looks at all for each would look ten billion times."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    def steps_with(messages: int) -> int:
        nonlocal steps
        queues.send(changes(messages))
        with database.writing() as connection:
            connection.set_progress_handler(count, 100)
        steps = 0
        taken = queues.receive(CHANGES, 10)
        queues.retry_in(taken[0], 5)
        queues.bury(taken[1], "no")
        queues.give_back(taken[2:4])
        queues.delete(taken[4:])
        queues.release_unheld()
        with database.writing() as connection:
            connection.set_progress_handler(None, 0)
        return steps

    few = steps_with(100)
    assert few > 0
    assert steps_with(10_000) < 3 * few


def test_a_queue_that_does_not_exist_is_named(queues: SqliteQueues) -> None:
    for attempt in (
        lambda: queues.depths(["filse"]),
        lambda: queues.send_body("filse", "{}"),
        lambda: queues.receive("filse", 1),
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
