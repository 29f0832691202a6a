"""Files that wait for more: they join, they go in the end, and none is lost or ingested twice."""

from __future__ import annotations

import pytest

from dormouse.features.batch_files import batch_files
from dormouse.messages.requests import ReinitialiseTable
from dormouse.messages.stages import FilesWaiting, IngestJob, OutboundMessage
from dormouse.tables.table import Table
from tests.support.world import World, letters


def waiting_table(world: World, **properties: object) -> Table:
    return world.create(ingest_batch_min_files=3, ingest_batch_max_age_seconds=300, **properties)


def jobs(messages: list[OutboundMessage]) -> list[int]:
    return [len(m.message.sources) for m in messages if isinstance(m.message, IngestJob)]


def test_few_files_wait_and_go_with_those_that_come_later(world: World) -> None:
    table = waiting_table(world)
    first = world.drop("letters/1.parquet", letters("a"))
    (waiting,) = world.queue
    assert (waiting.queue, waiting.delay_seconds) == ("files", 40)
    world.clock.advance(seconds=waiting.delay_seconds)
    more = [world.sources.drop(f"letters/{n}.parquet", b"x") for n in (2, 3)]
    assert isinstance(waiting.message, FilesWaiting)
    (job,) = batch_files(world.services, more, [waiting.message])
    assert isinstance(job.message, IngestJob)
    assert set(job.message.sources) == {first, *more}
    assert job.message.table_id == table.id


def test_two_messages_of_a_table_that_meet_become_one(world: World) -> None:
    waiting_table(world)
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("a", at=number))
    messages = [m.message for m in world.queue if isinstance(m.message, FilesWaiting)]
    (joined,) = batch_files(world.services, [], messages)
    assert isinstance(joined.message, FilesWaiting)
    assert len(joined.message.sources) == 2


@pytest.mark.parametrize("twice", [False, True])
def test_files_that_get_no_more_are_ingested_when_they_are_old(world: World, twice: bool) -> None:
    table = waiting_table(world)
    began_ms = world.clock.now_ms()
    world.drop("letters/1.parquet", letters("ab"))
    world.settle(twice=twice)
    assert world.names(table) == "ab"
    assert world.state(table).time_ms - began_ms >= 300_000


def test_a_notification_that_comes_twice_waits_once(world: World) -> None:
    waiting_table(world)
    source = world.sources.drop("letters/1.parquet", b"x")
    (waiting,) = batch_files(world.services, [source, source])
    assert isinstance(waiting.message, FilesWaiting)
    assert waiting.message.sources == (source,)
    (still,) = batch_files(world.services, [source], [waiting.message])
    assert isinstance(still.message, FilesWaiting)
    assert still.message.sources == (source,)


def test_files_whose_waiting_message_was_lost_are_found_by_the_audit(world: World) -> None:
    table = waiting_table(world)
    world.drop("letters/1.parquet", letters("ab"))
    world.queue.clear()
    world.clock.advance(seconds=1)
    world.sweep(audit=True)
    world.settle()
    assert world.names(table) == "ab"


def test_files_that_waited_while_the_table_was_reset_stay_out_of_it(world: World) -> None:
    table = waiting_table(world)
    world.drop("letters/1.parquet", letters("ab"))
    world.administer(ReinitialiseTable("again", "letters"))
    world.settle()
    assert world.names(table) == ""
    reasons = [record.reason for record in world.tracker.records(table.id)]
    assert any("the table was reset since the files were dropped" in each for each in reasons)


def test_jobs_are_as_large_as_the_table_says(world: World) -> None:
    world.create(ingest_job_max_files=2)
    sources = [world.sources.drop(f"letters/{n}.parquet", b"x") for n in range(5)]
    assert jobs(batch_files(world.services, sources)) == [2, 2, 1]
