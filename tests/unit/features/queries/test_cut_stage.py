"""A statement that is cut ends once, whatever happens between its parts."""

from __future__ import annotations

from itertools import permutations

import pytest

from dormouse.access.rules import Permission
from dormouse.features.queries import answer_query as stage
from dormouse.features.queries import opening
from dormouse.features.queries.overdue import FUNCTION_MS
from dormouse.features.queries.stored import done_tasks, load_query, load_task_ends
from dormouse.messages.queries import CancelQuery, QueryTask
from dormouse.messages.stages import OutboundMessage
from dormouse.statements import running
from tests.support.world import Crash, World, letters
from tests.unit.features.asking import asks, ended, four_leaves, parts, pins, record, result

GROUPS = "SELECT note IS NULL AS empty, count(*) AS n, max(letter) AS z FROM letters GROUP BY 1"
ANSWER = [{"empty": False, "n": 12, "z": "w"}]


def begun(world: World, sql: str = GROUPS, **limits: object) -> list[OutboundMessage]:
    """Ask, and return the messages of the first sub-queries."""
    asks(world, sql=sql, limits=limits)
    return world.deliver(world.queue.popleft())


def final_of(world: World, tasks: list[OutboundMessage]) -> OutboundMessage:
    """Answer the partial statements; return the message of the final one."""
    sent = [message for task in tasks for message in world.deliver(task)]
    (final,) = sent
    assert final.message == QueryTask("q", len(tasks))
    return final


def test_each_leaf_has_a_part_and_the_last_one_sends_the_final(world: World) -> None:
    table = four_leaves(world)
    tasks = begun(world)
    assert [task.message for task in tasks] == [QueryTask("q", n) for n in range(4)]
    assert (record(world).parts, pins(world, table)) == (5, 1)
    final = final_of(world, tasks)
    assert record(world).parts_done == 4
    assert world.deliver(final) == []
    assert result(world).to_pylist() == ANSWER
    end = ended(world)
    assert (end.tasks, end.rows, len(end.files)) == (5, 1, 1)
    assert dict(end.versions) == {"letters": (world.state(table).version,)}
    assert end.columns == {table.id: ("letter", "note")}
    assert end.size_bytes == sum(file.size_bytes for file in end.files)
    assert not pins(world, table)


def test_parts_may_come_twice_and_in_any_order(world: World) -> None:
    four_leaves(world)
    tasks = begun(world)
    world.queue += [*reversed(tasks), *tasks]
    world.settle(twice=True)
    assert result(world).to_pylist() == ANSWER
    assert record(world).state == "finished"


@pytest.mark.parametrize("order", list(permutations(range(3)))[1:3])
def test_a_final_part_that_comes_early_waits_for_its_turn(
    world: World, order: tuple[int, ...]
) -> None:
    four_leaves(world)
    tasks = begun(world)
    early = OutboundMessage("queries", QueryTask("q", 4))
    for number in order:
        world.deliver(tasks[number])
        assert world.deliver(early) == []
    query = load_query(world.results, "q")
    assert query is not None and 4 not in done_tasks(world.results, query)
    world.queue.append(tasks[3])
    world.settle()
    assert result(world).to_pylist() == ANSWER


def test_two_finals_side_by_side_have_one_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    final = final_of(world, begun(world))
    save = stage.save_task_end

    def beside(*arguments: object) -> None:
        monkeypatch.setattr(stage, "save_task_end", save)
        world.deliver(final)
        save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "save_task_end", beside)
    world.deliver(final)
    end = ended(world)
    (kept,) = load_task_ends(world.results, "q", [4])
    assert end.files == kept.files
    assert result(world).to_pylist() == ANSWER


@pytest.mark.parametrize("at", range(5))
def test_a_crash_after_the_end_of_a_part_is_made_up_for_by_its_redelivery(
    world: World, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    four_leaves(world)
    tasks = begun(world)
    everything = [*tasks, OutboundMessage("queries", QueryTask("q", 4))]
    for task in everything[:at]:
        world.deliver(task)

    def dies(*arguments: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(stage, "_next", dies)
        patch.setattr(stage, "finish", dies)
        with pytest.raises(Crash):
            world.deliver(everything[at])
    world.queue += world.deliver(everything[at])
    world.queue += everything[at + 1 : 4]
    world.settle()
    assert result(world).to_pylist() == ANSWER


def test_a_final_message_that_is_lost_is_sent_again_by_the_sweep(world: World) -> None:
    four_leaves(world, job_retry_seconds=600)
    final = final_of(world, begun(world))
    world.clock.advance(seconds=601)
    world.sweep()
    assert [m.message for m in world.queue if m.queue == "queries"] == [final.message]
    world.settle()
    assert result(world).to_pylist() == ANSWER


def test_a_crash_of_the_final_part_again_and_again_fails_the_query_and_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    final = final_of(world, begun(world))

    def dies(*arguments: object) -> object:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(stage, "answer", dies)
        for _ in range(2):
            with pytest.raises(Crash):
                world.deliver(final)
        world.deliver(final)
    assert (ended(world).state, ended(world).error) == ("failed", "JobTooLargeError")
    world.clock.advance(seconds=FUNCTION_MS // 1000)
    world.sweep()
    assert not parts(world)
    assert not pins(world, table)


def test_a_query_that_is_cancelled_in_its_final_part_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = four_leaves(world)
    final = final_of(world, begun(world))
    answer = stage.answer

    def cancelled_meanwhile(*arguments: object) -> object:
        world.deliver(OutboundMessage("queries", CancelQuery(query_id="q")))
        return answer(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "answer", cancelled_meanwhile)
    monkeypatch.setattr("dormouse.features.queries.limits.LOOK_MS", 0)
    assert world.deliver(final) == []
    assert (ended(world).state, ended(world).files) == ("cancelled", ())
    world.clock.advance(seconds=FUNCTION_MS // 1000)
    world.sweep()
    assert not parts(world)
    assert not pins(world, table)


def test_limits_of_a_result_are_not_those_of_its_parts(world: World) -> None:
    four_leaves(world)
    world.queue += begun(world, rows=1)
    world.settle()
    assert result(world).to_pylist() == ANSWER


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"rows": 11}, "more than 11 rows"),
        ({"read_bytes": 4_000}, "more than 4,000 bytes"),
        ({"result_bytes": 10}, "more than 10 bytes of its result"),
        ({"dollars": 1e-9}, "cost more than"),
    ],
)
def test_a_statement_that_takes_too_much_in_parts_fails(
    world: World, limits: dict[str, object], says: str
) -> None:
    four_leaves(world)
    world.queue += begun(world, "SELECT letter, count(*) FROM letters GROUP BY letter", **limits)
    world.settle()
    assert (ended(world).state, ended(world).error) == ("failed", "LimitExceededError")
    assert says in ended(world).reason


def test_rows_in_key_order_are_read_leaf_by_leaf_until_there_are_enough(world: World) -> None:
    four_leaves(world)
    tasks = begun(world, "SELECT letter FROM letters WHERE at + 0 >= 0 ORDER BY letter LIMIT 5")
    world.queue += tasks
    world.settle()
    assert "".join(result(world)["letter"].to_pylist()) == "abchi"
    assert (ended(world).tasks, len(parts(world))) == (4, 2)


def test_the_version_that_was_pinned_is_read_by_all_parts(world: World) -> None:
    four_leaves(world)
    tasks = begun(world)
    world.drop("letters/2.parquet", letters("z", at=500))
    world.settle()
    world.queue += tasks
    world.settle()
    assert result(world).to_pylist() == ANSWER


def test_hidden_columns_stay_hidden_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    four_leaves(world)
    opened = opening.allowed_table

    def hiding(*arguments: object) -> object:
        found = opened(*arguments)  # type: ignore[arg-type]
        some = Permission(frozenset({"read"}), frozenset({"note"}))
        return type(found).of(found.table, some)

    monkeypatch.setattr(opening, "allowed_table", hiding)
    world.queue += begun(world, "SELECT * FROM letters WHERE at + 0 >= 0")
    world.settle()
    assert result(world).column_names == ["letter", "at"]
    assert ended(world).tasks == 4
    asks(world, "other", sql=GROUPS)
    world.settle()
    assert (ended(world, "other").state, "note" in ended(world, "other").reason) == ("failed", True)


def test_a_statement_that_one_process_cannot_compute_says_how_spark_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_leaves(world)
    monkeypatch.setattr(running, "_OVERHEAD_BYTES", -(2**40))
    asks(world, sql="SELECT count(*) FROM letters a JOIN letters b ON a.note < b.note")
    world.settle()
    end = ended(world)
    assert (end.state, end.error) == ("failed", "LimitExceededError")
    assert "in one process, because it does not read exactly one table" in end.reason
    assert "spark.read.format('dormouse')" in end.reason


def test_a_partial_result_that_is_gone_fails_the_query(world: World) -> None:
    four_leaves(world)
    final = final_of(world, begun(world))
    ends = load_task_ends(world.results, "q", range(4))
    world.results.delete([f"queries/q/{ends[2].files[0].name}"])
    world.deliver(final)
    assert (ended(world).state, ended(world).error) == ("failed", "NotFoundError")
