"""Results that are sent to a queue: whole, numbered, repeatable, and to listed queues alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dormouse.features import query_runs
from dormouse.features.queries import load_end
from dormouse.messages.stages import SelectionMessage
from tests.support.result_queues import MemoryResultQueues
from tests.support.world import World, letters
from tests.unit.features.asking import asks, ended, four_leaves, record


@pytest.fixture
def queues(world: World) -> MemoryResultQueues:
    queues = MemoryResultQueues()
    world.services = replace(world.services, result_queues=queues)
    return queues


def test_a_small_result_comes_as_rows_in_key_order(
    world: World, queues: MemoryResultQueues
) -> None:
    four_leaves(world)
    asks(world, to="answers", selection=SelectionMessage(columns=("letter",)))
    world.settle()
    (message,) = queues.messages
    assert "".join(row["letter"] for row in message.pop("rows")) == "abchijopquvw"
    assert message == {
        "type": "query_result",
        "query_id": "q",
        "state": "finished",
        "part": 1,
        "parts": 1,
        "is_last": True,
        "total": 12,
    }
    assert record(world).state == "finished"
    assert ended(world).to == "answers"


def test_parts_are_numbered_and_the_same_each_time(
    world: World, queues: MemoryResultQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_runs, "MESSAGE_BYTES", 100)
    monkeypatch.setattr(query_runs, "MOST_MESSAGES", 1000)
    four_leaves(world)
    asks(world, to="answers")
    world.settle()
    found = queues.messages
    assert [(m["part"], m["is_last"]) for m in found] == [
        (n, n == len(found)) for n in range(1, len(found) + 1)
    ]
    assert len(found) > 1
    assert {m["parts"] for m in found} == {len(found)}
    assert "".join(row["letter"] for m in found for row in m["rows"]) == "abchijopquvw"
    assert all(len(body) < 100 + 200 for body in queues.bodies)
    end = load_end(world.results, "q")
    assert end is not None
    assert [
        json.loads(query_runs._text(m)) for m in query_runs.messages_of(world.results, end)
    ] == found


@pytest.mark.parametrize("asked", [{"format": "csv"}, {"format": "json"}, {"selection": None}])
def test_a_result_that_is_large_or_text_comes_as_the_place_of_its_manifest(
    world: World,
    queues: MemoryResultQueues,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, object],
) -> None:
    if "selection" in asked:
        monkeypatch.setattr(query_runs, "MESSAGE_BYTES", 60)
        monkeypatch.setattr(query_runs, "MOST_MESSAGES", 2)
        asked = {}
    four_leaves(world)
    asks(world, to="answers", **asked)
    world.settle()
    (message,) = queues.messages
    assert "rows" not in message
    assert message["manifest"] == f"{world.results.uri}/queries/q/_manifest.json"
    assert (message["total"], message["part"], message["parts"]) == (12, 1, 1)


def test_a_row_that_no_message_holds_is_where_the_manifest_is(
    world: World, queues: MemoryResultQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_runs, "MESSAGE_BYTES", 20_000)
    world.create()
    long = [{**row, "note": "x" * 30_000} for row in letters("a")]
    world.drop("letters/1.parquet", long)
    world.settle()
    asks(world, to="answers")
    world.settle()
    assert queues.messages[0]["manifest"]


def test_a_query_that_fails_tells_its_queue_why(world: World, queues: MemoryResultQueues) -> None:
    world.create()
    asks(world, to="answers", table="lettrs")
    world.settle()
    (message,) = queues.messages
    assert (message["state"], message["error"], message["is_last"]) == (
        "failed",
        "NotFoundError",
        True,
    )
    assert "lettrs" in message["reason"]


@pytest.mark.parametrize(
    "queue", ["foreign", "arn:aws:sqs:eu-west-2:999999999999:theirs", "https://sqs/1/theirs"]
)
def test_a_queue_that_is_not_listed_fails_the_query_once_and_gets_nothing(
    world: World, queues: MemoryResultQueues, queue: str
) -> None:
    four_leaves(world)
    asks(world, to=queue)
    world.settle()
    assert (record(world).state, ended(world).state) == ("failed", "failed")
    assert record(world).reason == ended(world).reason
    assert record(world).reason.startswith(f"results are not sent to a queue {queue!r}; name one")
    assert queues.bodies == []
    assert world.dead == []


def test_a_queue_that_is_gone_fails_the_query_before_it_reads(
    world: World, queues: MemoryResultQueues
) -> None:
    four_leaves(world)
    queues.missing.add("answers")
    asks(world, to="answers")
    world.settle()
    assert "is gone" in ended(world).reason
    assert ended(world).requests == 0


def test_a_queue_that_goes_meanwhile_leaves_the_result_and_says_so(
    world: World, queues: MemoryResultQueues
) -> None:
    four_leaves(world)
    message = asks(world, to="answers")
    (asked,) = [m for m in world.queue if m.message is message]
    world.queue.remove(asked)
    world.queue += world.deliver(asked)
    queues.missing.add("answers")
    world.settle()
    assert ended(world).state == "finished"
    assert record(world).state == "failed"
    assert "the result is complete, but was not sent" in record(world).reason


def test_a_message_that_comes_twice_sends_its_result_once(
    world: World, queues: MemoryResultQueues
) -> None:
    four_leaves(world)
    for _ in range(2):
        asks(world, to="answers")
        world.settle()
    assert len(queues.messages) == 1
    assert queues.groups == ["q"]


def test_an_instance_without_result_queues_says_so(world: World) -> None:
    world.create()
    asks(world, to="answers")
    world.settle()
    assert "this instance has no ResultQueues" in record(world).reason


def test_a_result_that_needs_more_messages_comes_as_its_place(
    world: World, queues: MemoryResultQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    world.drop("letters/1.parquet", letters("ab" * 500))
    world.settle()
    monkeypatch.setattr(query_runs, "MESSAGE_BYTES", 8_000)
    monkeypatch.setattr(query_runs, "MOST_MESSAGES", 4)
    asks(world, to="answers")
    world.settle()
    assert ended(world).size_bytes < 32_000, "its file alone does not say that it is too large"
    (message,) = queues.messages
    assert message["manifest"]
