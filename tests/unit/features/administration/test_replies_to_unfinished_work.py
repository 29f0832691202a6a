"""Replies are true about work that is not done, not done yet, or of unknown outcome."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest

from dormouse.client.contents import jobs_of
from dormouse.features.administration import GIVE_UP_MS, follow_request
from dormouse.features.requests import request_key
from dormouse.jobs import MAX_RECEIVES, record
from dormouse.messages.requests import (
    CollectGarbage,
    CompactTable,
    Counts,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    ReinitialiseTable,
    Reply,
    SplitPartitions,
)
from dormouse.messages.stages import CompactionJob, RequestStep, SelectionMessage
from dormouse.ports import NO_TABLE
from dormouse.state.jobs import Failed, Started, TrackedJob
from dormouse.state.state import ReleaseJob
from tests.support.world import World, letters, letters_file
from tests.unit.features.replies import ASKED, asked, filled, last, look, prepared, without


def test_a_refused_file_makes_it_fail_by_name_and_the_others_count(world: World) -> None:
    filled(world)
    world.sources.drop("archive/good.parquet", letters_file(letters("qrs")))
    world.sources.drop("archive/bad.parquet", b"no rows")
    world.administer(IngestFiles("r", "letters", ("archive",), reply=True))
    world.settle()
    end = last(world)
    assert end.outcome == "failed"
    assert end.counts == Counts(jobs=1, finished=1, files=2, refused=1, rows=3)
    (job,) = end.jobs
    assert (job.kind, job.id, job.state) == ("file", "archive/bad.parquet", "refused")
    assert "1 file, first archive/bad.parquet" in end.reason
    record = world.job_record("r")
    assert record is not None and (record.state, record.reason) == ("failed", end.reason)


def test_what_is_ingested_already_is_counted_and_not_waited_for(world: World) -> None:
    filled(world)
    reply = asked(world, IngestFiles("r", "letters", ("letters",), reply=True))
    assert (reply.outcome, reply.counts) == ("finished", Counts(files=2, known=2))


def test_a_job_split_into_single_files_is_followed_to_its_last_file(world: World) -> None:
    table = filled(world)
    for name in "123":
        world.sources.drop(f"archive/{name}.parquet", letters_file(letters(name)))
    request = IngestFiles("r", "letters", ("archive",), reply=True)
    (job,) = asked(world, request).jobs
    for _ in range(2):  # its process dies twice without a word
        record(world.services, TrackedJob(table.id, job.id, "ingest"), Started())
    ingest = next(m for m in world.queue if m.queue == "ingest-jobs")
    alone = world.deliver(ingest)
    assert len(alone) == 3
    for outgoing in alone[:2]:
        world.deliver(outgoing)
    assert all(m.queue == "admin" for m in look(world, table, request)), "one file is left"
    world.queue = deque([*alone[2:], *(m for m in world.queue if m.queue == "admin")])
    world.settle()
    assert last(world).counts == Counts(jobs=1, finished=1, files=3, rows=3)


@pytest.mark.parametrize("verb", ["compact", "split", "ingest", "export"])
def test_a_tracker_that_lost_its_records_hides_nothing_that_is_stored(
    world: World, verb: str
) -> None:
    table = prepared(world)
    request = ASKED[verb][0]()
    world.administer(request)
    world.deliver_all_but("admin")
    world.tracker.kept.clear()
    (outgoing,) = look(world, table, request)
    assert isinstance(outgoing.message, Reply)
    assert (outgoing.message.outcome, outgoing.message.jobs) == ("finished", ())


def test_a_request_is_listed_as_ended_once_its_jobs_have_without_a_sweep(world: World) -> None:
    table = prepared(world)
    for verb in ("compact", "split", "ingest", "export"):
        request = msgspec.structs.replace(ASKED[verb][0](), request_id=verb, reply=False)
        world.administer(request)
        listed = {job.job_id: job for job in jobs_of(world.services, table)}
        assert listed[verb].state == "accepted", verb
        world.settle()
        listed = {job.job_id: job for job in jobs_of(world.services, table)}
        assert (listed[verb].state, listed[verb].reason) == ("finished", ""), verb
        as_recorded = jobs_of(world.services, table, reads_requests=False)
        assert {job.job_id: job.state for job in as_recorded}[verb] == "accepted", verb


def test_a_compaction_with_an_unknown_outcome_is_no_success(world: World) -> None:
    table = filled(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    jobs = list(world.state(table).jobs)
    world.services.store(table).commit(*map(ReleaseJob, jobs), generation=0)
    assert look(world, table, request)[0].queue == "admin", "who took it back may be about to tell"
    world.clock.advance(seconds=3 * 60 * 60)
    (outgoing,) = look(world, table, request)
    assert isinstance(outgoing.message, Reply)
    assert outgoing.message.outcome == "failed"
    assert outgoing.message.counts.failed == 2
    assert "its outcome is unknown" in outgoing.message.jobs[0].reason


def test_a_released_job_has_failed_with_its_reason(world: World) -> None:
    table = filled(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    job, *_ = world.state(table).jobs
    world.services.store(table).commit(ReleaseJob(job), generation=0)
    record(world.services, TrackedJob(table.id, job, "compaction"), Failed("an input is damaged"))
    world.settle()
    end = last(world)
    assert (end.outcome, end.counts.finished, end.counts.failed) == ("failed", 1, 1)
    assert [(j.id, j.state, j.reason) for j in end.jobs] == [(job, "failed", "an input is damaged")]


def test_a_job_that_failed_and_is_retried_is_waited_for(world: World) -> None:
    table = filled(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    for job in world.state(table).jobs:
        for _ in range(MAX_RECEIVES - 1):
            record(world.services, TrackedJob(table.id, job, "compaction"), Started())
            record(world.services, TrackedJob(table.id, job, "compaction"), Failed("no answer"))
    assert look(world, table, request)[0].queue == "admin"
    world.settle()
    assert last(world).outcome == "finished"


@pytest.mark.parametrize("ending", ["failed", ""])
def test_a_job_whose_message_is_a_dead_letter_is_unfinished_and_not_failed(
    world: World, ending: str
) -> None:
    table = filled(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    job, other = world.state(table).jobs
    for _ in range(MAX_RECEIVES):
        record(world.services, TrackedJob(table.id, job, "compaction"), Started())
        if ending:
            record(world.services, TrackedJob(table.id, job, "compaction"), Failed("no room"))
    if not ending:  # it died; until no run can be alive any more, it is waited for
        assert look(world, table, request)[0].queue == "admin"
        world.clock.advance(seconds=13 * 60 * 60)
    messages = [m for m in world.queue if isinstance(m.message, CompactionJob)]
    world.deliver(next(m for m in messages if m.message.job_id == other))  # type: ignore[union-attr]
    (outgoing,) = look(world, table, request)
    assert isinstance(outgoing.message, Reply)
    (named,) = outgoing.message.jobs
    assert (named.id, named.state) == (job, "unfinished")
    assert "may still be done" in named.reason
    assert outgoing.message.counts == Counts(jobs=2, finished=1, unfinished=1, rows=3, shards=2)
    assert outgoing.message.outcome == "failed"


def test_work_that_never_ends_is_reported_as_unfinished_after_some_days(world: World) -> None:
    table = filled(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    world.queue.clear()
    world.clock.advance(seconds=GIVE_UP_MS // 1000)
    assert not look(world, table, request), "its chain of steps has ended; the sweep begins another"
    world.clock.advance(seconds=1)
    (outgoing,) = look(world, table, request)
    assert isinstance(outgoing.message, Reply)
    assert (outgoing.message.outcome, outgoing.message.counts.unfinished) == ("failed", 2)


def test_a_purge_is_not_finished_before_its_objects_are_deleted(world: World) -> None:
    table = filled(world, gc_delay_seconds=900)
    request = PurgeRows("r", "letters", SelectionMessage(where="letter = 'a'"), reply=True)
    orphan = f"{table.id}/data/orphan-0.parquet"
    world.storage.put(orphan, b"what a run left that died")
    world.administer(request)
    without(world, "admin")
    world.deliver_all_but("gc-candidates")
    assert "a" not in world.names(table)
    assert look(world, table, request)[0].queue == "admin", "its objects are there still"
    world.clock.advance(seconds=1800)
    world.sweep()
    without(world, "admin")
    world.settle()
    assert look(world, table, request)[0].queue == "admin", "and so is what nobody committed"
    world.drop("letters/later.parquet", letters("a", at=900))  # a row that came since may stay
    world.settle()
    world.storage.delete([orphan])
    (outgoing,) = look(world, table, request)
    assert isinstance(outgoing.message, Reply)
    assert (outgoing.message.outcome, outgoing.message.counts.removed) == ("finished", 1)


@pytest.mark.parametrize(("days", "queue"), [(4, "admin"), (30, "replies")])
def test_a_purge_is_waited_for_as_long_as_its_objects_may_exist(
    world: World, days: int, queue: str
) -> None:
    gc_days, day_seconds = 7, 24 * 3600
    table = filled(world, gc_delay_seconds=gc_days * day_seconds)
    request = PurgeRows("r", "letters", SelectionMessage(where="letter = 'a'"), reply=True)
    world.administer(request)
    without(world, "admin")
    world.deliver_all_but("gc-candidates")
    world.clock.advance(seconds=days * day_seconds)
    (message,) = follow_request(
        world.services, RequestStep(table.id, request_key(request), begun_ms=world.clock.now_ms())
    )
    assert message.queue == queue
    if isinstance(message.message, Reply):
        assert message.message.counts.unfinished == 1
        assert "not deleted yet" in message.message.reason


def test_an_export_without_a_manifest_has_failed_with_its_reason(world: World) -> None:
    table = filled(world)
    request = ExportRows("r", "letters", "out", reply=True)
    world.administer(request)
    for stored in list(world.storage.list(f"{table.id}/data/")):
        world.storage.delete([stored.path])
    world.settle()
    end = last(world)
    assert (end.outcome, end.jobs[0].kind) == ("failed", "export")
    assert "--skip-damaged" in end.jobs[0].reason


def test_a_leaf_that_cannot_be_split_is_named_with_the_reason(world: World) -> None:
    world.create("letters", gc_delay_seconds=0)
    world.drop("letters/1.parquet", letters("zzz"))
    world.settle()
    world.administer(SplitPartitions("r", "letters", "root", forced=True, reply=True))
    world.settle()
    end = last(world)
    assert (end.outcome, end.jobs[0].id) == ("failed", "split-root")
    assert "share one key" in end.jobs[0].reason


def test_garbage_is_finished_when_it_is_deleted(world: World) -> None:
    filled(world, gc_delay_seconds=900)
    world.administer(CompactTable("c", "letters", all=True))
    world.deliver_all_but("gc-candidates")
    world.clock.advance(seconds=900)
    first = asked(world, CollectGarbage("r", "letters", reply=True))
    assert first.counts.size_bytes > 0
    world.settle()
    end = last(world)
    assert (end.outcome, end.counts.shards, end.counts.size_bytes) == (
        "finished",
        2,
        first.counts.size_bytes,
    )


@pytest.mark.parametrize("verb", ASKED)
def test_a_reset_meanwhile_is_reported_or_the_work_is_done(world: World, verb: str) -> None:
    prepared(world)
    world.administer(ASKED[verb][0]())
    world.clock.advance(seconds=1)
    world.administer(ReinitialiseTable("empty", "letters"))
    world.settle()
    world.age_objects(seconds=24 * 60 * 60)
    world.clock.advance(seconds=900)
    world.sweep(audit=True)
    world.settle()
    end = last(world)
    if verb in ("export", "purge"):  # its version is there for a while; no row is left
        assert end.outcome == "finished"
    else:
        assert end.outcome == "failed"
        assert all("was reset" in job.reason for job in end.jobs)


@pytest.mark.parametrize("verb", ["split", "garbage"])
def test_work_that_was_done_before_a_reset_has_not_failed(world: World, verb: str) -> None:
    filled(world, gc_delay_seconds=900)
    if verb == "garbage":
        world.administer(CompactTable("c", "letters", all=True))
        world.deliver_all_but("gc-candidates")
        world.clock.advance(seconds=900)
    collected = CollectGarbage("r", "letters", reply=True)
    world.administer(collected if verb == "garbage" else ASKED[verb][0]())
    world.deliver_all_but("admin")
    world.clock.advance(seconds=1)
    world.administer(ReinitialiseTable("empty", "letters"))
    world.settle()
    world.age_objects(seconds=24 * 60 * 60)
    world.clock.advance(seconds=900)
    world.sweep(audit=True)
    world.settle()
    assert last(world).outcome == "finished"


@pytest.mark.parametrize("verb", ASKED)
def test_a_deletion_meanwhile_is_reported_once(world: World, verb: str) -> None:
    table = prepared(world)
    request = ASKED[verb][0]()
    world.administer(request)
    world.administer(DeleteTable("gone", "letters"))
    world.settle(twice=True)
    end = last(world)
    assert (end.outcome, "deleted" in end.reason) == ("failed", True)
    assert world.tables.get(table.id) is None
    (record,) = [r for r in world.tracker.records(NO_TABLE) if r.job_id == "r"]
    assert record.state == "failed"


def test_a_request_that_ended_before_its_table_was_deleted_is_not_reported_as_failed(
    world: World,
) -> None:
    table = prepared(world)
    request = CompactTable("r", "letters", all=True, reply=True)
    world.administer(request)
    (step,) = [m for m in world.queue if m.queue == "admin"]
    world.settle()
    world.administer(DeleteTable("gone", "letters"))
    world.settle()
    assert world.deliver(step) == []  # it comes once more
    assert last(world).outcome == "finished"
    assert world.tables.get(table.id) is None
