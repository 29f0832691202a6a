"""A request that wants a reply is accepted at once, and gets the outcome when its jobs end."""

from __future__ import annotations

import pytest

from dormouse.features.requests import request_key, request_reply_path
from dormouse.messages.requests import (
    AdminRequest,
    CollectGarbage,
    CompactTable,
    Counts,
    DeleteTable,
    Redrive,
    ReinitialiseTable,
    SetDefaults,
    SetOnline,
    SplitPartitions,
)
from dormouse.stored.paths import REQUESTS
from tests.support.world import World
from tests.unit.features.replies import ASKED, asked, filled, last, look, prepared


@pytest.mark.parametrize("verb", ASKED)
def test_a_request_is_accepted_with_its_jobs_and_finished_with_counts_when_all_have_ended(
    world: World, verb: str
) -> None:
    table = prepared(world)
    make, counts = ASKED[verb]
    request = make()
    first = asked(world, request)
    assert (first.outcome, first.request_id, first.table_id) == ("accepted", "r", table.id)
    assert first.request == type(request).__struct_config__.tag
    assert len(first.jobs) == first.counts.jobs == counts.jobs
    found = world.job_record("r")
    assert found is not None
    assert (found.table_id, found.state, found.kind) == (table.id, "accepted", first.request)
    assert look(world, table, request)[0].queue == "admin", "its jobs have not even begun"
    world.settle()
    end = last(world)
    exported = counts.__class__(**{**asdict(end.counts), "size_bytes": 0})
    assert (end.outcome, exported, end.jobs, end.reason) == ("finished", counts, (), "")
    assert end.id != first.id
    found = world.job_record("r")
    assert found is not None and found.state == "finished"
    kinds = {record.job_id for record in world.tracker.records(table.id)}
    assert {job.id for job in first.jobs} <= kinds, "a job is shown under the id that was replied"
    assert not world.queue, "nothing runs when nothing happens"
    assert [o.path for o in world.storage.list(REQUESTS.prefix(table.id))] == [
        request_reply_path(table.id, request_key(request))
    ]


def asdict(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in counts.__struct_fields__}


@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("times", [2, 3])
def test_each_delivery_of_each_message_may_come_again(world: World, verb: str, times: int) -> None:
    prepared(world)
    request = ASKED[verb][0]()
    for _ in range(times):
        world.administer(request)
    world.settle(twice=True)
    outcomes = [reply.outcome for reply in world.replies]
    assert set(outcomes) == {"accepted", "finished"}
    by_outcome = {
        outcome: {r for r in world.replies if r.outcome == outcome} for outcome in outcomes
    }
    assert all(len(same) == 1 for same in by_outcome.values()), "one that comes twice is the same"


def silently(verb: str) -> AdminRequest:
    """Return the request of a verb without the wish for a reply."""
    made = ASKED[verb][0]()
    fields = {name: getattr(made, name) for name in made.__struct_fields__ if name != "reply"}
    return type(made)(**fields)


@pytest.mark.parametrize("verb", ASKED)
def test_without_a_wanted_reply_none_is_sent_and_a_sweep_records_the_outcome(
    world: World, verb: str
) -> None:
    table = prepared(world)
    request = silently(verb)
    world.administer(request)
    assert not [m for m in world.queue if m.queue == "admin"], "nothing waits"
    world.settle()
    record = world.job_record("r")
    assert record is not None and record.state == "accepted", "nobody has looked yet"
    world.age_objects(seconds=table.properties.job_retry_seconds)
    world.sweep()
    world.settle()
    record = world.job_record("r")
    assert record is not None and record.state == "finished"
    assert record.rows == (ASKED[verb][1].rows or ASKED[verb][1].removed)
    world.administer(request)
    world.settle()
    assert world.replies == []
    assert not list(world.storage.list(REQUESTS.prefix(table.id)))


@pytest.mark.parametrize("verb", ASKED)
@pytest.mark.parametrize("ended", [False, True], ids=["under way", "ended"])
def test_a_later_delivery_that_wants_a_reply_gets_it(world: World, verb: str, ended: bool) -> None:
    table = prepared(world)
    world.administer(silently(verb))
    if ended:
        world.settle()
        world.age_objects(seconds=table.properties.job_retry_seconds)
        world.sweep()
        world.settle()
    world.administer(ASKED[verb][0]())
    world.settle()
    assert last(world).outcome == "finished"


def test_what_causes_no_jobs_is_finished_at_once(world: World) -> None:
    filled(world)
    for request in (
        SetOnline("1", "letters", False, reply=True),
        SetDefaults("2", {"compaction_files": 5}, reply=True),
        Redrive("3", "files", reply=True),
        CompactTable("4", "letters", reply=True),
        CollectGarbage("5", "letters", reply=True),
        SplitPartitions("6", "letters", reply=True),
        ReinitialiseTable("7", "letters", reply=True),
        DeleteTable("8", "letters", reply=True),
    ):
        assert asked(world, request).outcome == "finished", request
        world.settle()
    assert world.replies == []
