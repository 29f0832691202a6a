"""Replies as the real handler gives them: to one queue, to what is no request, or in vain."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable

import pytest

from dormouse.errors import ContendedError, NotFoundError, UnavailableError
from dormouse.features.requests import request_key
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages.requests import CompactTable, Reply, SetOnline
from dormouse.messages.stages import OutboundMessage, encode
from dormouse.ports import NO_TABLE
from dormouse.state.jobs import JobEvent, Tracked
from dormouse.stored.paths import REPLIES, REQUESTS
from tests.functions.conftest import TABLE_ID, Functions
from tests.support.world import letters

GOOD = {"type": "delete_table", "request_id": "r", "name": "letters", "reply": True}
MALFORMED: dict[str, tuple[dict[str, object], str]] = {
    "unknown verb": ({"type": "drop_everything"}, "drop_everything"),
    "no verb": ({"type": 7}, "type"),
    "unknown field": ({"now": True}, "unknown field `now`"),
    "newer format": ({"v": 99}, "$.v"),
    "wrong kind": ({"name": 5}, "$.name"),
    "a reply queue of its own": ({"reply_to": "https://sqs/other"}, "unknown field `reply_to`"),
}


def replies(functions: Functions) -> list[Reply]:
    sent = functions.sent()
    assert {m.queue for m in sent if isinstance(m.message, Reply)} <= {REPLIES}
    return [m.message for m in sent if isinstance(m.message, Reply)]


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_request_is_answered_recorded_and_no_dead_letter(
    functions: Functions, log: io.StringIO, what: str
) -> None:
    changed, said = MALFORMED[what]
    assert functions.deliver("administer", json.dumps(GOOD | changed)) == []
    (reply,) = replies(functions)
    assert (reply.outcome, reply.request_id) == ("refused", "r")
    assert said in reply.reason
    assert functions.outbox.dead == []
    record = functions.world.job_record("r")
    assert record is not None and (record.state, record.reason) == ("refused", reply.reason)
    assert record.table_id == (NO_TABLE if what == "wrong kind" else TABLE_ID)
    assert said not in log.getvalue(), "it quotes the message, which may name rows"
    assert functions.world.tables.get(TABLE_ID) is not None


@pytest.mark.parametrize(
    "body",
    [
        "not JSON",
        "[]",
        json.dumps(GOOD | {"type": "x", "reply": False}),
        json.dumps(GOOD | {"type": "x", "reply": "yes"}),
        json.dumps(GOOD | {"request_id": 5}),
        json.dumps(GOOD | {"request_id": ""}),
        json.dumps(GOOD | {"request_id": "a\nb"}),
        '{"request_id": "\\ud800", "reply": true}',
        '{"request_id": "r", "reply": true',
    ],
)
def test_a_request_that_cannot_be_answered_is_a_dead_letter_with_the_reason(
    functions: Functions, body: str
) -> None:
    assert functions.deliver("administer", body) == []
    ((queue, buried, reason),) = functions.outbox.dead
    assert (queue, buried) == ("admin", body)
    assert reason
    assert functions.sent() == []


def test_what_is_malformed_hides_nothing_that_was_done_under_its_id(functions: Functions) -> None:
    functions.deliver("administer", encode(SetOnline("r", "letters", False)))
    functions.deliver("administer", json.dumps(GOOD | {"v": 9}))
    record = functions.world.job_record("r")
    assert record is not None and (record.kind, record.state) == ("set_online", "finished")


@pytest.mark.parametrize("known", [True, False], ids=["known table", "unknown table"])
def test_a_refused_request_is_recorded_where_it_is_looked_for(
    functions: Functions, known: bool
) -> None:
    request = CompactTable("r", "letters" if known else "nobody", reply=True)
    functions.deliver("administer", encode(SetOnline("r", "letters", False)))  # another's id
    functions.deliver("administer", encode(request))
    (reply,) = replies(functions)
    assert (reply.outcome, reply.request) == ("refused", "compact_table")
    found = [r.state for r in functions.world.tracker.records(TABLE_ID if known else NO_TABLE)]
    assert found == (["finished"] if known else ["refused"])


Failing = Callable[[Functions, list[OutboundMessage]], None]


def without_replies(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Let the queue of replies take nothing."""
    send = functions.outbox.send

    def sending(messages: Iterable[OutboundMessage]) -> None:
        given = list(messages)
        if any(m.queue == REPLIES for m in given):
            raise error
        send(given)

    monkeypatch.setattr(functions.outbox, "send", sending)


@pytest.mark.parametrize(
    "error", [NotFoundError("there is no queue 'replies'"), UnavailableError("it refused")]
)
def test_without_a_queue_of_replies_the_work_is_done_once_and_one_thing_is_said(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, error: Exception
) -> None:
    for number, text in enumerate(("ab", "cd")):
        functions.world.drop(f"letters/{number}.parquet", letters(text))
    functions.world.settle()
    without_replies(functions, monkeypatch, error)
    body = encode(CompactTable("r", "letters", all=True, reply=True))
    for receives in range(1, MAX_RECEIVES + 1):
        functions.deliver("administer", body, receives=receives)
    assert len(functions.world.state(functions.table).jobs) == 1
    record = functions.world.job_record("r")
    assert record is not None and record.state == "accepted", "it is not refused for that"
    said = [line for line in log.getvalue().splitlines() if "no reply could be sent" in line]
    assert len(said) == MAX_RECEIVES
    if isinstance(error, NotFoundError):  # what no wait cures is said with the letter
        assert functions.outbox.dead == [("admin", body, "there is no queue 'replies'")]
    monkeypatch.undo()
    sent = {m.queue for m in functions.sent()}
    assert sent == {"compaction-jobs", "admin"}


def test_a_last_reply_that_could_not_be_sent_is_kept(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(("ab", "cd")):
        functions.world.drop(f"letters/{number}.parquet", letters(text))
    functions.world.settle()
    body = encode(CompactTable("r", "letters", all=True, reply=True))
    functions.deliver("administer", body)
    sent = functions.sent()
    (job,) = [m for m in sent if m.queue == "compaction-jobs"]
    (step,) = [m for m in sent if m.queue == "admin"]
    functions.world.deliver(job)
    with monkeypatch.context() as patched:
        without_replies(functions, patched, UnavailableError("it refused"))
        assert functions.deliver("administer", encode(step.message)) == ["0"]
    assert functions.deliver("administer", encode(step.message)) == []
    (reply,) = replies(functions)
    assert (reply.outcome, reply.counts.rows) == ("finished", 4)
    assert functions.deliver("administer", encode(step.message)) == []
    assert functions.sent() == []


BROKEN: dict[str, tuple[Exception, str]] = {
    "service down": (UnavailableError("DynamoDB refused"), "DynamoDB refused"),
    "others first": (ContendedError("others keep changing it"), "others keep changing it"),
    "unexpected": (ValueError("hazel@example.com"), "an unexpected ValueError"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_request_that_failed_for_the_last_time_is_answered_and_done_if_it_is_sent_back(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    error, said = BROKEN[what]
    body = encode(SetOnline("r", "letters", False, reply=True))

    def failing(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(functions.world.tables, "change", failing)
        for receives in range(1, MAX_RECEIVES):
            assert functions.deliver("administer", body, receives=receives) == ["0"]
        assert functions.sent() == [], "it may still be done"
        functions.deliver("administer", body, receives=MAX_RECEIVES)
    (failed,) = replies(functions)
    assert (failed.outcome, failed.request_id, failed.request) == ("failed", "r", "set_online")
    assert said in failed.reason and "redrive it to carry the request out" in failed.reason
    assert "hazel" not in failed.reason
    record = functions.world.job_record("r")
    assert record is not None and (record.state, record.reason) == ("failed", failed.reason)
    assert functions.deliver("administer", body) == []
    (done,) = replies(functions)
    assert (done.outcome, done.id != failed.id) == ("finished", True)
    kept = functions.world.tables.get(TABLE_ID)
    assert kept is not None and not kept.online
    record = functions.world.job_record("r")
    assert record is not None and record.state == "finished"


def test_who_asks_about_a_damaged_table_hears_that_it_is(functions: Functions) -> None:
    functions.world.tables.damaged.add(TABLE_ID)
    body = encode(SetOnline("r", "letters", False, reply=True))
    functions.deliver("administer", body, receives=MAX_RECEIVES)
    (reply,) = replies(functions)
    assert (reply.outcome, reply.request) == ("failed", "set_online")
    assert TABLE_ID in reply.reason and "earlier delivery" in reply.reason
    ((queue, _, reason),) = functions.outbox.dead
    assert (queue, TABLE_ID in reason) == ("admin", True)


def test_a_request_that_asks_for_no_reply_is_recorded_when_it_failed_for_the_last_time(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ContendedError("others keep changing it")

    monkeypatch.setattr(functions.world.tables, "change", failing)
    body = encode(SetOnline("r", "letters", False))
    functions.deliver("administer", body, receives=MAX_RECEIVES)
    assert functions.sent() == []
    record = functions.world.job_record("r")
    assert record is not None and record.state == "failed"


def test_a_request_that_has_begun_does_not_fail_with_its_last_delivery(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(("ab", "cd")):
        functions.world.drop(f"letters/{number}.parquet", letters(text))
    functions.world.settle()
    body = encode(CompactTable("r", "letters", all=True, reply=True))
    record = functions.world.tracker.record

    def failing(job: Tracked, event: JobEvent, at_ms: int) -> None:
        if job.id == "r":
            raise UnavailableError("DynamoDB refused")
        record(job, event, at_ms)

    with monkeypatch.context() as patched:
        patched.setattr(functions.world.tracker, "record", failing)
        functions.deliver("administer", body, receives=MAX_RECEIVES)
    assert functions.sent() == []
    seconds = functions.table.properties.job_retry_seconds
    functions.world.age_objects(seconds=0)
    functions.world.clock.advance(seconds=seconds)
    functions.world.sweep()
    functions.world.settle()
    assert [r.outcome for r in functions.world.replies] == ["finished"], "though it never came back"


@pytest.mark.parametrize("is_last", [False, True])
def test_an_asker_hears_that_the_end_of_a_request_cannot_be_known(
    functions: Functions, is_last: bool
) -> None:
    for number, text in enumerate(("ab", "cd")):
        functions.world.drop(f"letters/{number}.parquet", letters(text))
    functions.world.settle()
    request = CompactTable("r", "letters", all=True, reply=True)
    functions.deliver("administer", encode(request))
    (step,) = [m for m in functions.sent() if m.queue == "admin"]
    path = functions.world.folder / "data" / REQUESTS.path(TABLE_ID, request_key(request))
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    receives = MAX_RECEIVES if is_last else 1
    functions.deliver("administer", encode(step.message), receives=receives)
    found = replies(functions)
    assert len(found) == is_last
    assert all((r.outcome, r.request_id) == ("failed", "r") for r in found)
    assert all("its jobs go on" in r.reason for r in found)
