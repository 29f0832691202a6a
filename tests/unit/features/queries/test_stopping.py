"""A query ends once, and at once: by who asked it, an administrator, a limit or a sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dormouse.access import AccessRule
from dormouse.errors import NotFoundError
from dormouse.features import answer_query, queries, query_runs
from dormouse.features.queries import Query, Spent
from dormouse.messages.stages import CancelQuery, OutboundMessage, QueryTask, SelectionMessage
from dormouse.ports import Services
from dormouse.state.jobs import JobEvent, TrackedJob
from dormouse.statements import running
from tests.support.result_queues import MemoryResultQueues
from tests.support.world import World, letters
from tests.unit.features.asking import asks, ended, four_leaves, parts, pins, record

ENDLESS = 'SELECT max("at" + value) FROM letters, range(9000000000000000) AS r(value)'
"""A statement that would go on until the time of its query is over."""


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statements be looked at all the time."""
    monkeypatch.setattr(running, "WATCH_MS", 0)
    monkeypatch.setattr(queries, "LOOK_MS", 0)


def test_a_statement_that_is_cancelled_while_it_is_computed_stops(
    world: World, monkeypatch: pytest.MonkeyPatch, looking: None
) -> None:
    four_leaves(world)
    asks(world, sql=ENDLESS, limits={"seconds": 20})
    look = answer_query._look

    def cancelled_meanwhile(services: Services, query: Query, spent: Spent) -> bool:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        return look(services, query, spent)

    monkeypatch.setattr(answer_query, "_look", cancelled_meanwhile)
    world.settle()
    assert (ended(world).state, record(world).state) == ("cancelled", "cancelled")
    assert not parts(world)
    assert not [each for each in world.services.scratch.rglob("*") if each.is_file()]


def test_a_statement_that_has_read_too_much_stops_before_it_is_computed(
    world: World, looking: None
) -> None:
    four_leaves(world)
    asks(world, sql=ENDLESS, limits={"seconds": 20, "read_bytes": 1})
    world.settle()
    assert (ended(world).state, ended(world).error) == ("failed", "LimitExceededError")
    assert "bytes read" in ended(world).reason
    assert not [each for each in world.services.scratch.rglob("*") if each.is_file()]


def test_rows_that_the_format_does_not_have_fail_the_query_once(world: World) -> None:
    four_leaves(world)
    asks(world, sql="SELECT INTERVAL '1 day' AS day")
    world.settle()
    assert (ended(world).state, ended(world).error) == ("failed", "InvalidRequestError")
    assert not [each for each in world.services.scratch.rglob("*") if each.is_file()]


def test_nobody_else_fails_a_query_by_attempts_side_by_side(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    asks(world, who="aws-id:ADAM")
    strangers = [OutboundMessage("queries", QueryTask("q", 0, "aws-id:EVE"))] * 3
    real = answer_query.answer

    def answer(*given: Any) -> Any:
        while strangers:
            with pytest.raises(NotFoundError):
                world.deliver(strangers.pop())
        return real(*given)

    monkeypatch.setattr(answer_query, "answer", answer)
    world.settle()
    assert (ended(world).state, ended(world).rows) == ("finished", 12)


def test_a_query_of_one_sub_query_says_how_far_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, looking: None
) -> None:
    world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    recorded: list[tuple[int, int]] = []
    real = query_runs.record

    def record(services: Services, job: TrackedJob, event: JobEvent) -> None:
        recorded.append((event.rows, event.parts))
        real(services, job, event)

    monkeypatch.setattr(query_runs, "record", record)
    asks(world)
    world.settle()
    assert recorded[0] == (3, 1)
    assert ended(world).state == "finished"


def test_who_administers_the_instance_by_a_rule_can_cancel_any_query(world: World) -> None:
    four_leaves(world)
    cancel = OutboundMessage("queries", CancelQuery(query_id="q", who="aws-id:ROOT"))
    rules = (
        AccessRule("aws-id:ADAM", "*", ("read",)),
        AccessRule("aws-id:ROOT", "letters", ("read", "administer")),
    )
    world.tables.change_access_rules(lambda _: rules)
    asks(world, who="aws-id:ADAM")
    tasks = world.deliver(world.queue.popleft())
    with pytest.raises(NotFoundError, match="you have no query"):
        world.deliver(cancel)  # one table is not the instance
    everything = AccessRule("aws-id:ROOT", "*", ("administer",))
    world.tables.change_access_rules(lambda _: (*rules, everything))
    world.deliver(cancel)
    world.queue += tasks
    world.settle()
    end = ended(world)
    assert (end.state, end.who) == ("cancelled", "aws-id:ADAM")
    assert end.reason == "it was cancelled by someone who administers the instance"


@pytest.mark.parametrize(
    "later",
    [(), (AccessRule("aws-id:ADAM", "letters", ("read",), ("note",)),)],
    ids=["revoked", "hidden"],
)
@pytest.mark.parametrize(
    "asked",
    [
        {"selection": SelectionMessage(where="note <> 'x'", columns=("letter",))},
        {"sql": "SELECT letter, max(note) AS other FROM letters GROUP BY letter"},
    ],
    ids=["rows", "a statement"],
)
def test_a_rule_that_is_changed_while_a_query_runs_counts_at_its_end(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    later: tuple[AccessRule, ...],
) -> None:
    table = four_leaves(world)
    queues = MemoryResultQueues()
    world.services = replace(world.services, result_queues=queues)
    world.tables.change_access_rules(lambda _: (AccessRule("aws-id:ADAM", "letters", ("read",)),))
    written = answer_query._written

    def written_while_rules_change(*arguments: Any) -> Any:
        world.tables.change_access_rules(lambda _: later)
        return written(*arguments)

    monkeypatch.setattr(answer_query, "_written", written_while_rules_change)
    asks(world, who="aws-id:ADAM", to="answers", **asked)
    world.settle()
    end = ended(world)
    assert (end.state, end.error, end.files) == ("failed", "ForbiddenError", ())
    (message,) = queues.messages
    assert (message["state"], message["error"]) == ("failed", "ForbiddenError")
    assert "rows" not in message and "manifest" not in message
    world.clock.advance(seconds=2000)
    world.sweep()
    world.settle()
    assert not parts(world) and not pins(world, table)


def test_what_a_query_without_a_result_stored_is_deleted_by_a_sweep_that_comes_after_a_month(
    world: World,
) -> None:
    table = four_leaves(world)
    asks(world)
    (first, *others) = world.deliver(world.queue.popleft())
    world.queue += [first]
    world.settle()
    world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
    assert others and parts(world)
    world.clock.advance(seconds=30 * 24 * 3600)
    world.sweep()
    assert not parts(world)
    assert not world.services.store(table).pins.all(expired=True)
