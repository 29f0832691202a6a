"""A request that crashes at any call: nothing is lost, and it gets its reply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dormouse.features.administration import MAX_AGE_MS, follow_request, load_request
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    MAX_JOBS_LISTED,
    AdminRequest,
    CompactTable,
    CreateTable,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    RenameTable,
    Reply,
    SetOnline,
    SplitPartitions,
)
from dormouse.messages.stages import RequestStep, SelectionMessage
from dormouse.stored.paths import REQUESTS
from dormouse.tables.table import Table
from tests.support.depth import calls_in_turn
from tests.support.world import LETTERS, Crash, World, letters, letters_file

CASES: dict[str, Callable[[], AdminRequest]] = {
    "compact": lambda: CompactTable("r", "letters", all=True, reply=True),
    "split": lambda: SplitPartitions("r", "letters", forced=True, reply=True),
    "ingest": lambda: IngestFiles("r", "letters", ("archive",), reply=True),
    "export": lambda: ExportRows("r", "letters", "out", reply=True),
    "purge": lambda: PurgeRows("r", "letters", SelectionMessage(where="letter = 'a'"), reply=True),
    "offline": lambda: SetOnline("r", "letters", False, reply=True),
}


def filled(folder: Path) -> tuple[World, Table]:
    world = World(folder)
    table = world.create("letters", splits=[("m",)], compaction_files=100, gc_delay_seconds=0)
    for number, text in enumerate(("abyz", "cx")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    world.sources.drop("archive/1.parquet", letters_file(letters("q")))
    return world, table


class Cut:
    """The calls of a world that store something; the process dies before or after one of them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.is_after = False
        for owner, name in (
            (world.storage, "put"),
            (world.storage, "delete"),
            (world.tracker, "record"),
            (world.tracker, "bind"),
            (world.pages, "append"),
        ):
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def at(self, number: int, *, is_after: bool) -> None:
        self.left, self.is_after = number, is_after

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            is_due = self.left == 0
            if self.left is not None:
                self.left -= 1
            if is_due and not self.is_after:
                raise Crash
            result = call(*arguments, **named)
            if is_due:
                raise Crash
            return result

        return wrapped


def last(world: World) -> Reply:
    (reply,) = {reply for reply in world.replies if reply.outcome != "accepted"}
    return reply


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", CASES)
def test_a_request_that_crashes_at_any_call_is_finished_by_its_redelivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, is_after: bool
) -> None:
    whole, _ = filled(tmp_path / "whole")
    whole.administer(CASES[verb]())
    whole.settle()
    for number in calls_in_turn(0):
        world, table = filled(tmp_path / str(number))
        cut = Cut(world, monkeypatch)
        cut.at(number, is_after=is_after)
        try:
            world.administer(CASES[verb]())
        except Crash:
            cut.left = None
        else:
            break
        world.administer(CASES[verb]())
        world.settle()
        assert last(world).outcome == "finished", number
        assert last(world).counts == last(whole).counts, number
        assert world.rows(table) == whole.rows(table)
    assert number >= 2, "it was cut off somewhere"


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_step_cut_off_at_any_call_comes_again_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    for number in calls_in_turn(0):
        world, _ = filled(tmp_path / str(number))
        world.administer(CASES["compact"]())
        world.deliver_all_but("admin")
        world.administer(CASES["compact"]())
        (step,) = [m for m in world.queue if m.queue == "admin"]
        world.queue.clear()
        cut = Cut(world, monkeypatch)
        cut.at(number, is_after=is_after)
        try:
            world.queue += world.deliver(step)
        except Crash:
            cut.left = None
        else:
            break
        world.queue += world.deliver(step)
        world.settle()
        assert last(world).outcome == "finished"
    assert number >= 3


def test_a_reply_that_could_not_be_sent_is_sent_again_unchanged(tmp_path: Path) -> None:
    world, table = filled(tmp_path)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    world.deliver_all_but("admin")
    step = RequestStep(table.id, request_key(request))
    first = follow_request(world.services, step)  # it cannot be sent; the step comes again
    world.clock.advance(seconds=5400)
    world.tracker.kept.clear()
    world.administer(CompactTable("more", "letters", all=True))
    world.settle()
    assert follow_request(world.services, step) == first
    assert [m.message for m in first] == [m.message for m in first if isinstance(m.message, Reply)]


@pytest.mark.parametrize("lost", ["admin", "all"])
def test_the_sweep_starts_a_lost_chain_of_steps_again(tmp_path: Path, lost: str) -> None:
    world, table = filled(tmp_path)
    world.administer(CompactTable("r", "letters", all=True, reply=True))
    if lost == "admin":
        world.deliver_all_but("admin")
    world.queue.clear()
    world.sweep()
    assert not [m for m in world.queue if m.queue == "admin"], "so soon, it may be on its way"
    world.age_objects(seconds=0)
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    world.settle()
    assert last(world).outcome == "finished"
    world.clock.advance(seconds=table.properties.job_retry_seconds * 2)
    world.sweep()
    assert not [m for m in world.queue if m.queue == "admin"], "what was answered is left alone"


def test_chains_of_steps_end_so_that_there_are_never_many(tmp_path: Path) -> None:
    world, table = filled(tmp_path)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    (step,) = [m for m in world.queue if m.queue == "admin"]
    steps = 0
    while found := world.deliver(step):
        (step,) = found
        assert 2 <= step.delay_seconds <= 300
        world.clock.advance(seconds=step.delay_seconds)
        steps += 1
    assert 20 < steps < 80  # in two hours
    assert load_request(world.services, table.id, request_key(request)) is not None


def test_expired_objects_of_requests_are_deleted(tmp_path: Path) -> None:
    world, table = filled(tmp_path)
    world.administer(CompactTable("r", "letters", all=True, reply=True))
    world.settle()
    world.administer(IngestFiles("s", "letters", ("archive",), reply=True))
    world.queue.clear()
    world.age_objects(seconds=0)
    assert len(list(world.storage.list(REQUESTS.prefix(table.id)))) == 3
    world.sweep()
    assert len(list(world.storage.list(REQUESTS.prefix(table.id)))) == 3
    world.clock.advance(seconds=MAX_AGE_MS // 1000 + 1)
    world.sweep()
    assert not list(world.storage.list(REQUESTS.prefix(table.id)))


def test_a_reply_lists_a_limited_number_of_jobs_and_counts_the_others(tmp_path: Path) -> None:
    world, _ = filled(tmp_path)
    for number in range(MAX_JOBS_LISTED + 3):
        world.sources.drop(f"bad/{number}.parquet", b"no rows")
    world.administer(IngestFiles("r", "letters", ("bad",), reply=True))
    world.settle()
    end = last(world)
    assert (len(end.jobs), end.more, end.counts.refused) == (
        MAX_JOBS_LISTED,
        3,
        MAX_JOBS_LISTED + 3,
    )


@pytest.mark.parametrize("verb", ["compact", "export", "ingest"])
def test_it_is_about_the_table_it_was_first_about_whatever_that_is_called_by_now(
    tmp_path: Path, verb: str
) -> None:
    world, table = filled(tmp_path)
    world.administer(CASES[verb]())
    world.administer(RenameTable("away", "letters", "others"))
    world.administer(CreateTable("another", "letters", LETTERS.to_json()))
    other = world.tables.named("letters")
    assert other is not None
    world.administer(CASES[verb]())
    world.settle()
    assert last(world).outcome == "finished"
    assert last(world).table_id == table.id
    assert not [r for r in world.tracker.records(other.id) if r.job_id == "r"]
    record = world.job_record("r")
    assert record is not None and record.table_id == table.id


def test_a_later_table_of_the_name_is_not_touched_by_a_redelivery(tmp_path: Path) -> None:
    world, table = filled(tmp_path)
    request = SplitPartitions("r", "letters", forced=True, reply=True)
    world.administer(request)
    world.settle()
    world.administer(DeleteTable("gone", "letters"))
    world.administer(CreateTable("another", "letters", LETTERS.to_json()))
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    world.administer(request)
    world.settle()
    ends = [reply for reply in world.replies if reply.outcome != "accepted"]
    assert {(reply.outcome, reply.table_id) for reply in ends} == {("finished", table.id)}
    other = world.tables.named("letters")
    assert other is not None and len(world.state(other).partitions) == 1
