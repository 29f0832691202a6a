"""What runs at once: never more than the slots, and nothing is received that would have to wait."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from dormouse_cli.local.event_sources import EventSourcePoller
from dormouse_cli.local.lambda_host import FunctionPool, Outcome, Sandbox
from dormouse_cli.local.plan import EventSource, LocalStackError
from tests.support.waiting import LIMIT_SECONDS, eventually

DONE = Outcome(b"null", failed=False)


class FakeSandbox:
    """A sandbox that does what the test says while it holds an event."""

    def __init__(self, pool: "FakePool") -> None:
        self._pool = pool
        self.alive = True

    def invoke(self, request_id: str, event: bytes) -> Outcome:
        self._pool.enter()
        if event == b"crash":
            self.alive = False
        return DONE

    def close(self) -> None:
        self.alive = False


class FakePool:
    """Counts the events that are handled at the same time; each waits until it is let go."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.let_go = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    @property
    def at_once(self) -> int:
        return self._at_once

    def enter(self) -> None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        assert self.let_go.wait(LIMIT_SECONDS)
        with self._lock:
            self._at_once -= 1

    def start(self, number: int) -> Sandbox:
        self.started.append(number)
        return cast(Sandbox, FakeSandbox(self))


def test_a_process_without_work_ends_and_the_next_event_starts_another() -> None:
    fake, now = FakePool(), [0.0]
    fake.let_go.set()
    pool = FunctionPool(2, fake.start, lambda: now[0])
    pool.invoke("1", b"")
    (first,) = pool.sandboxes()
    now[0] = 59.0
    pool.end_idle(60)
    assert pool.sandboxes() == [first]
    now[0] = 60.0
    pool.end_idle(60)
    assert not pool.sandboxes() and not first.alive
    pool.invoke("2", b"")
    assert fake.started == [0, 1]


def test_a_process_with_work_is_never_idle() -> None:
    fake, now = FakePool(), [0.0]
    pool = FunctionPool(1, fake.start, lambda: now[0])
    with ThreadPoolExecutor(1) as callers:
        call = callers.submit(pool.invoke, "1", b"")
        eventually(lambda: fake.at_once == 1)
        now[0] = 1000.0
        pool.end_idle(60)
        fake.let_go.set()
        assert call.result(LIMIT_SECONDS) == DONE
    assert len(pool.sandboxes()) == 1


def test_a_function_runs_in_no_more_processes_than_it_has_slots() -> None:
    fake = FakePool()
    pool = FunctionPool(2, fake.start, lambda: 0)
    with ThreadPoolExecutor(5) as callers:
        calls = [callers.submit(pool.invoke, str(i), b"") for i in range(5)]
        eventually(lambda: fake.at_once == 2)
        fake.let_go.set()
        assert [call.result() for call in calls] == [DONE] * 5
    assert fake.most_at_once == 2
    assert sorted(fake.started) == [0, 1]


def test_a_warm_process_is_used_before_another_is_started() -> None:
    fake = FakePool()
    fake.let_go.set()
    pool = FunctionPool(3, fake.start, lambda: 0)
    for event in (b"", b"", b"crash", b""):
        pool.invoke("id", event)
    assert fake.started == [0, 1]  # the second in place of the one that crashed


def test_a_stopping_stack_starts_no_process() -> None:
    fake = FakePool()
    pool = FunctionPool(1, fake.start, lambda: 0)
    pool.close()
    with pytest.raises(LocalStackError, match="is stopping"):
        pool.invoke("id", b"")
    assert fake.started == []


class FakeSqs:
    """A queue of messages as boto3's client shows it, which remembers what was deleted."""

    def __init__(self, *ids: str) -> None:
        self._ids = list(ids)
        self.receives = 0
        self.deleted: list[str] = []

    def get_queue_url(self, QueueName: str) -> dict[str, str]:  # noqa: N803
        return {"QueueUrl": QueueName}

    def receive_message(self, **asked: Any) -> dict[str, Any]:
        self.receives += 1
        if not self._ids:
            return {}
        name = self._ids.pop(0)
        return {
            "Messages": [{"MessageId": name, "ReceiptHandle": name, "MD5OfBody": "", "Body": ""}]
        }

    def delete_message_batch(
        self,
        QueueUrl: str,  # noqa: N803
        Entries: list[dict[str, str]],  # noqa: N803
    ) -> None:
        self.deleted += [entry["ReceiptHandle"] for entry in Entries]


def poller(sqs: FakeSqs, invoke: Any, stopping: threading.Event, slots: int) -> EventSourcePoller:
    source = EventSource("f", "q", "arn:q", 1, 0, False, slots)
    return EventSourcePoller(source, sqs, invoke, stopping)


def test_messages_that_no_slot_is_free_for_stay_in_the_queue() -> None:
    sqs, fake, stopping = FakeSqs("a", "b", "c"), FakePool(), threading.Event()

    def invoke(name: str, event: bytes) -> Outcome:
        fake.enter()
        return DONE

    at_work = poller(sqs, invoke, stopping, slots=2)
    at_work.start()
    eventually(lambda: fake.at_once == 2)
    assert sqs.receives == 2
    fake.let_go.set()
    eventually(lambda: sorted(sqs.deleted) == ["a", "b", "c"])
    stopping.set()
    at_work.join()


def test_a_batch_that_breaks_is_logged_and_does_not_block_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sqs, stopping = FakeSqs("a", "b"), threading.Event()

    def invoke(name: str, event: bytes) -> Outcome:
        if b'"messageId": "a"' in event:
            raise KeyError("broken")
        return DONE

    at_work = poller(sqs, invoke, stopping, slots=1)
    at_work.start()
    eventually(lambda: sqs.deleted == ["b"])
    stopping.set()
    at_work.join()
    assert "a batch of q is left undone" in caplog.text
