"""Two concurrent deliveries of one request: one of them counts, and all replies agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features.administration import administer
from dormouse.messages.requests import AdminRequest, CreateTable, RenameTable, SplitPartitions
from dormouse.messages.stages import load
from dormouse.stored.paths import REQUESTS
from tests.support.trees import LEFT
from tests.support.world import LETTERS, World
from tests.unit.features.replies import ASKED, asked, last, prepared

NAMED: dict[str, Callable[[], AdminRequest]] = {
    **{verb: make for verb, (make, _) in ASKED.items()},
    "split of one": lambda: SplitPartitions("r", "letters", LEFT, forced=True, reply=True),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def once(monkeypatch: pytest.MonkeyPatch, request: AdminRequest, hook: Callable[[], None]) -> None:
    """Let `hook` play another delivery just before what the request asks for is done."""
    carry_out, hooks = load(request.path), [hook]

    def run(*arguments: Any) -> Any:
        if hooks:
            hooks.pop()()
        return carry_out(*arguments)

    monkeypatch.setattr("dormouse.features." + request.path.replace(":", "."), run)


@pytest.mark.parametrize("done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("verb", NAMED)
def test_a_delivery_that_is_overtaken_reports_the_result_of_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, done: bool
) -> None:
    table = prepared(world)
    before = world.rows(table)

    def other() -> None:
        world.administer(NAMED[verb]())
        if done:
            world.settle()

    once(monkeypatch, NAMED[verb](), other)
    world.administer(NAMED[verb]())
    world.settle()
    outcomes = [reply.outcome for reply in world.replies]
    assert set(outcomes) == {"accepted", "finished"}
    assert len({reply.id for reply in world.replies}) == 2
    assert last(world).counts.jobs >= 1
    record = world.job_record("r")
    assert record is not None and record.state == "finished"
    if verb in ("compact", "split", "split of one", "export"):
        assert world.rows(table) == before


@pytest.mark.parametrize("done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("verb", NAMED)
def test_a_delivery_that_is_overtaken_before_it_is_saved_waits_for_the_jobs_of_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, done: bool
) -> None:
    table = prepared(world)

    def other() -> None:
        world.administer(NAMED[verb]())
        if done:
            world.settle()

    put, hooks = world.storage.put, [other]

    def putting(path: str, body: bytes) -> bool:
        if hooks and path.startswith(REQUESTS.prefix(table.id)):
            hooks.pop()()
        return put(path, body)

    monkeypatch.setattr(world.storage, "put", putting)
    world.administer(NAMED[verb]())
    world.settle()
    assert {reply.outcome for reply in world.replies} == {"accepted", "finished"}
    assert len({reply.id for reply in world.replies}) == 2
    assert not world.state(table).jobs
    record = world.job_record("r")
    assert record is not None and record.state == "finished"


@pytest.mark.parametrize("since", ["", "forgotten", "renamed"])
def test_an_id_that_created_one_table_creates_no_other(world: World, since: str) -> None:
    first = CreateTable("r", "birds", LETTERS.to_json(), reply=True)
    assert asked(world, first).outcome == "finished"
    if since == "forgotten":
        world.delete_job_record("r")
    elif since == "renamed":
        world.administer(RenameTable("other", "birds", "fowl"))
    with pytest.raises(InvalidRequestError, match="table 'birds'"):
        administer(world.services, CreateTable("r", "bats", LETTERS.to_json(), reply=True))
    assert world.tables.named("bats") is None
    assert asked(world, first).outcome == "finished"


def test_a_table_in_deletion_ends_its_requests(world: World) -> None:
    table = prepared(world)
    asked(world, ASKED["compact"][0]())
    world.tables.change(table.id, lambda t: replace(t, deleting=True))
    world.services.store(table).destroy()
    (step,) = [m for m in world.queue if m.queue == "admin"]
    world.deliver(step)
    (reply,) = world.replies
    assert (reply.outcome, "deleted" in reply.reason) == ("failed", True)
