"""A query over messages is answered once, from one version, whole or not at all."""

from __future__ import annotations

import pytest

from dormouse.errors import (
    InvalidRequestError,
    NotFoundError,
    ServiceRefusedError,
    UnavailableError,
)
from dormouse.features import answer_query, query_runs
from dormouse.features import answer_query as stage
from dormouse.messages.requests import CompactTable
from dormouse.messages.stages import CancelQuery, OutboundMessage, QueryTask, SelectionMessage
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters
from tests.unit.features.asking import asks, ended, four_leaves, parts, pins, record, result, text


def test_a_query_is_answered_by_files_that_a_manifest_names(world: World) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("cab"))
    world.settle()
    asks(world, selection=SelectionMessage(columns=("letter",), where="letter <> 'b'"), who="eve")
    world.settle()
    assert text(world) == "ac"
    end, known = ended(world), record(world)
    assert (end.rows, end.tasks, dict(end.versions)) == (
        2,
        1,
        {"letters": (world.state(table).version,)},
    )
    assert end.read_bytes > 0 and end.requests > 0
    assert (known.state, known.rows, known.who, known.parts, known.parts_done) == (
        *("finished", 2),
        *("eve", 1, 1),
    )
    assert known.subject == "letters"
    assert not pins(world, table)


def test_what_a_service_refuses_for_good_ends_the_query_at_once_and_what_passes_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    errors = [UnavailableError("busy"), ServiceRefusedError("t/data/a is archived", hint="restore")]

    def refuse(*_: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(stage, "query_slices", refuse)
    asks(world)
    (begun,) = [world.queue.popleft()]
    (task, *_) = world.deliver(begun)
    with pytest.raises(UnavailableError, match="busy"):
        world.deliver(task)
    assert world.deliver(task) == []
    end = ended(world)
    assert (end.state, end.error) == ("failed", "ServiceRefusedError")
    assert "t/data/a is archived" in end.reason and "restore" in end.reason
    assert record(world).state == "failed"


def test_a_large_query_is_cut_by_leaves_and_its_result_is_in_key_order(world: World) -> None:
    table = four_leaves(world)
    asks(world)
    (begun,) = [world.queue.popleft()]
    tasks = world.deliver(begun)
    assert [task.message for task in tasks] == [QueryTask("q", n) for n in range(4)]
    assert pins(world, table) == 1
    world.queue.extend(reversed(tasks))
    world.settle()
    assert text(world) == "abchijopquvw"
    assert ended(world).tasks == 4
    assert record(world).parts_done == 4
    assert not pins(world, table)


def test_messages_that_come_twice_have_one_result(world: World) -> None:
    four_leaves(world)
    message = asks(world)
    world.settle(twice=True)
    before = ended(world)
    assert text(world) == "abchijopquvw"
    world.queue.append(OutboundMessage("queries", message))
    world.settle(twice=True)
    assert ended(world) == before


def test_a_limit_is_kept_over_all_sub_queries_and_stops_reading(world: World) -> None:
    four_leaves(world)
    asks(world, selection=SelectionMessage(limit=5))
    world.settle()
    assert text(world) == "abchi"
    assert len(parts(world)) == 2
    asks(world, "all", selection=SelectionMessage(limit=12))
    world.settle()
    assert text(world, "all") == "abchijopquvw"


def test_one_version_is_read_though_the_table_changes_meanwhile(world: World) -> None:
    table = four_leaves(world, gc_delay_seconds=60)
    read = world.shard_objects(table)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    world.drop("letters/2.parquet", letters("dkrz", at=500))
    world.settle()
    world.administer(CompactTable("c", table.name, all=True))
    world.settle()
    _collect_garbage(world)
    assert read <= set(world.state(table).unreferenced)  # only the query keeps what it reads
    world.queue += tasks
    world.settle()
    assert text(world) == "abchijopquvw"
    _collect_garbage(world)
    assert not read & world.shard_objects(table)


def _collect_garbage(world: World) -> None:
    """Let sweeps do what they do, while all messages of queries are lost."""
    for _ in range(3):
        world.clock.advance(seconds=300)
        world.sweep()
        world.deliver_all_but("queries")


def test_a_query_of_an_empty_table_has_a_schema_and_no_rows(world: World) -> None:
    world.create()
    asks(world)
    world.settle()
    end = ended(world)
    assert (end.state, end.rows, end.files) == ("finished", 0, ())
    assert end.schema


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"table": "leters"}, "NotFoundError", "did you mean letters"),
        ({"selection": SelectionMessage(columns=("noet",))}, "InvalidRequestError", "note"),
        ({"selection": SelectionMessage(where="letter >")}, "InvalidRequestError", ""),
        ({"selection": SelectionMessage(as_of=99)}, "NotFoundError", "99"),
        ({"to": "arn:aws:sqs:::elsewhere"}, "InvalidRequestError", "are not sent"),
        ({"sql": "DROP TABLE letters"}, "InvalidRequestError", "only queries can"),
    ],
)
def test_what_cannot_be_asked_fails_at_once_and_says_why(
    world: World, asked: dict[str, object], error: str, says: str
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("a"))
    world.settle()
    asks(world, **asked)
    world.settle()
    end = ended(world)
    assert (end.state, end.error, end.files) == ("failed", error, ())
    assert says in end.reason
    assert record(world).state == "failed"
    nothing_is_left(world, table)


def test_an_id_of_another_question_or_asker_is_refused(world: World) -> None:
    four_leaves(world)
    asks(world)
    world.settle()
    before = ended(world)
    for other in ({"selection": SelectionMessage(limit=1)}, {"who": "eve"}):
        asks(world, **other)
        with pytest.raises(InvalidRequestError, match="another query has the id"):
            world.settle()
    assert ended(world) == before


def test_a_cancelled_query_leaves_nothing(world: World) -> None:
    table = four_leaves(world)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    world.deliver(tasks[0])
    assert parts(world)
    world.queue.append(OutboundMessage("queries", CancelQuery(query_id="q")))
    world.queue += tasks
    world.settle()
    end = ended(world)
    assert (end.state, end.files, record(world).state) == ("cancelled", (), "cancelled")
    nothing_is_left(world, table)


def nothing_is_left(world: World, table: Table) -> None:
    """Have the sweep look at a query that has ended, once no attempt at it can write any more."""
    world.sweep()
    assert not parts(world)
    world.clock.advance(seconds=15 * 60)
    world.sweep()
    assert not pins(world, table)


def test_what_an_attempt_writes_after_its_query_was_cancelled_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    asks(world)
    task = world.deliver(world.queue.popleft())[0]
    write = answer_query._written

    def swept_meanwhile(*arguments: object) -> object:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        world.sweep()
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(answer_query, "_written", swept_meanwhile)
    world.deliver(task)
    assert parts(world)
    nothing_is_left(world, table)


def test_a_query_that_is_cancelled_while_it_begins_is_recorded_as_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    message = asks(world)
    begin = stage.begin_query

    def cancelled_meanwhile(*arguments: object) -> object:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        return begin(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "begin_query", cancelled_meanwhile)
    assert world.deliver(OutboundMessage("queries", message)) == []
    assert (ended(world).state, record(world).state) == ("cancelled", "cancelled")
    nothing_is_left(world, table)


def test_no_message_has_sub_queries_with_a_limit_answered_out_of_turn(world: World) -> None:
    four_leaves(world)
    asks(world, selection=SelectionMessage(limit=5))
    first = world.deliver(world.queue.popleft())
    world.deliver(OutboundMessage("queries", QueryTask("q", 3)))
    world.queue += first
    world.settle()
    assert text(world) == "abchi"


def test_a_query_that_is_cancelled_while_it_reads_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    asks(world)
    task = world.deliver(world.queue.popleft())[0]
    answer = stage.answer

    def cancelled_meanwhile(*arguments: object) -> object:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        return answer(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "answer", cancelled_meanwhile)
    monkeypatch.setattr("dormouse.features.queries.LOOK_MS", 0)
    assert world.deliver(task) == []
    assert ended(world).state == "cancelled"
    assert not parts(world)


def test_a_query_that_is_cancelled_just_before_its_manifest_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    finish = query_runs.finish

    def cancelled_before(*arguments: object) -> None:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        finish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(query_runs, "finish", cancelled_before)
    world.queue += tasks
    world.settle()
    assert (ended(world).state, record(world).state) == ("cancelled", "cancelled")
    assert parts(world) and pins(world, table)  # by which the sweep finds what to delete
    nothing_is_left(world, table)


def test_only_who_asked_can_cancel(world: World) -> None:
    four_leaves(world)
    asks(world, who="adam")
    tasks = world.deliver(world.queue.popleft())
    with pytest.raises(NotFoundError, match="you have no query"):
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q", who="eve")))
    world.queue += tasks
    world.settle()
    assert ended(world).state == "finished"


def test_a_query_that_is_cancelled_before_it_comes_never_begins(world: World) -> None:
    table = four_leaves(world)
    world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
    asks(world)
    world.settle()
    assert ended(world).state == "cancelled"
    assert not pins(world, table)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"rows": 11}, "more than 11 rows"),
        ({"read_bytes": 10}, "more than 10 bytes read"),
        ({"result_bytes": 10}, "more than 10 bytes of its result"),
        ({"dollars": 1e-9}, r"cost more than \$1e-09"),
    ],
)
def test_a_query_that_takes_too_much_fails_and_leaves_nothing(
    world: World, limits: dict[str, object], says: str
) -> None:
    table = four_leaves(world)
    asks(world, limits=limits)
    world.settle()
    end = ended(world)
    assert (end.state, end.error) == ("failed", "LimitExceededError")
    assert says.replace("\\", "") in end.reason
    nothing_is_left(world, table)


def test_a_query_whose_time_is_over_is_ended_by_the_sweep(world: World) -> None:
    table = four_leaves(world)
    asks(world, limits={"seconds": 60})
    world.deliver(world.queue.popleft())  # the messages of its sub-queries are lost
    world.clock.advance(seconds=61)
    world.sweep()
    world.settle()
    end = ended(world)
    assert (end.state, end.error) == ("failed", "LimitExceededError")
    nothing_is_left(world, table)


def test_a_query_may_not_take_more_than_the_properties_say(world: World) -> None:
    four_leaves(world, query_limit_rows=11)
    asks(world, limits={"rows": 1_000})
    world.settle()
    assert "more than 11 rows" in ended(world).reason


def test_a_sub_query_that_dies_again_and_again_fails_the_query_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    asks(world)
    tasks = world.deliver(world.queue.popleft())

    def dies(*arguments: object) -> object:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(stage, "answer", dies)
        for _ in range(2):
            with pytest.raises(Crash):
                world.deliver(tasks[1])
        assert world.deliver(tasks[1]) == []
    end = ended(world)
    assert (end.state, end.error) == ("failed", "JobTooLargeError")
    assert "sub-query 1" in end.reason
    world.queue += tasks
    world.settle()
    assert ended(world) == end
    nothing_is_left(world, table)


def test_messages_of_sub_queries_that_are_lost_are_sent_again(world: World) -> None:
    four_leaves(world, job_retry_seconds=600)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    world.deliver(tasks[2])
    world.clock.advance(seconds=601)
    world.sweep()
    again = [m.message for m in world.queue if m.queue == "queries"]
    assert again == [QueryTask("q", n) for n in (0, 1, 3)]
    world.settle()
    assert text(world) == "abchijopquvw"


def test_a_query_whose_last_task_died_before_the_manifest_is_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    for task in tasks[:3]:
        world.deliver(task)

    def dies(*arguments: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(query_runs, "finish", dies)
        with pytest.raises(Crash):
            world.deliver(tasks[3])
    world.deliver(tasks[3])
    assert text(world) == "abchijopquvw"


def test_a_table_that_is_deleted_fails_the_query_that_reads_it(world: World) -> None:
    table = four_leaves(world)
    asks(world)
    tasks = world.deliver(world.queue.popleft())
    world.delete(table)
    world.settle()
    world.clock.advance(seconds=60)
    world.sweep()
    world.queue += tasks
    world.settle()
    assert (ended(world).state, ended(world).error) == ("failed", "VersionGoneError")


def test_a_statement_in_sql_is_answered_by_its_rows(world: World) -> None:
    table = four_leaves(world)
    world.tables.change_defaults(lambda _: {"query_limit_seconds": 30 * 24 * 3600})
    asks(
        world,
        sql="SELECT count(*) AS n, min(letter) AS low FROM letters WHERE letter > $least",
        parameters={"least": "b"},
    )
    world.settle()
    assert result(world).to_pylist() == [{"n": 10, "low": "c"}]
    assert dict(ended(world).versions) == {"letters": (world.state(table).version,)}
    assert not pins(world, table)
