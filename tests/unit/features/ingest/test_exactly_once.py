"""Exactly once: ingested sources stay known after sealing, loss, reset and damage."""

from __future__ import annotations

from typing import Any

import pytest

from dormouse.errors import ContendedError, CorruptDataError
from dormouse.features.batch_files import look_up_sources
from dormouse.features.checking import check
from dormouse.features.ingest import REPEAT_PREFIX, Written, ingest, write_in_process
from dormouse.features.rebuild import rebuild
from dormouse.features.seal_sources import SEALING, seal_sources
from dormouse.jobs import ALREADY_INGESTED
from dormouse.messages.requests import IngestFiles, ReinitialiseTable
from dormouse.messages.stages import IngestJob, OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.state.sources import job_id_of
from dormouse.state.state import DAY_MS, AddShards, TableState
from dormouse.stored.paths import SOURCES
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters, letters_file

YEAR_SECONDS = 365 * DAY_MS // 1000


@pytest.fixture
@made_once
def table(world: World) -> Table:
    made = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    return made


def segments(world: World, table: Table) -> list[str]:
    return [stored.path for stored in world.storage.list(SOURCES.prefix(table.id))]


def current(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("days", [16, 28, 365, 3650])
def test_a_dead_letter_redriven_after_any_time_adds_nothing(
    world: World, sealed: bool, days: int
) -> None:
    table = world.create()
    source = world.drop("letters/1.parquet", letters("abc"))
    (letter,) = world.queue
    world.settle()
    if sealed:
        world.seal(table)
    world.clock.advance(seconds=days * DAY_MS // 1000)
    world.queue.append(letter)
    world.notify(source)
    world.administer(IngestFiles("again", "letters", ("letters",)))
    world.sweep(audit=True)
    world.settle()
    assert world.names(table) == "abc"


def test_sealed_sources_leave_the_state_and_are_found_beside_new_ones(
    world: World, table: Table
) -> None:
    world.seal(table)
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    state = world.state(table)
    assert len(state.sources) == 1 and state.source_segments[0].count == 1
    sources = list(world.sources.list("letters/", since_ms=0))
    assert not look_up_sources(world.services, table, sources).fresh(sources)
    assert world.names(table) == "abcd"


def test_an_ingest_that_was_under_way_while_sources_were_sealed_is_not_written_twice(
    world: World, table: Table
) -> None:
    world.drop("letters/2.parquet", letters("d"))
    world.before_next_commit(lambda: world.seal(table))
    world.settle()
    assert world.names(table) == "abcd"
    assert len(world.shard_objects(table)) == 2, "its shards stayed good"


def test_an_ingest_whose_source_was_ingested_and_sealed_meanwhile_adds_nothing(
    world: World, table: Table
) -> None:
    world.drop("letters/2.parquet", letters("d"))
    (again,) = world.queue

    def others() -> None:
        world.deliver(again)
        world.seal(table)

    world.before_next_commit(others)
    world.settle()
    assert world.names(table) == "abcd"
    assert len(world.state(table).shards) == 2, "those of the second are left to the audit"


def test_an_ingest_whose_source_was_ingested_and_sealed_while_it_wrote_adds_nothing(
    world: World, table: Table
) -> None:
    world.drop("letters/2.parquet", letters("d"))
    (again,) = world.queue
    assert isinstance(again.message, IngestJob)
    calls: list[str] = []

    def write(services: Services, table: Table, state: TableState, sources: Any) -> Written:
        calls.append("write")
        if len(calls) == 1:
            world.deliver(again)
            world.seal(table)
        return write_in_process(services, table, state, sources)

    ingest(world.services, again.message, write)
    assert world.names(table) == "abcd"


def test_a_file_dropped_again_for_a_table_to_be_reset_waits_for_that_though_it_is_known(
    world: World, table: Table
) -> None:
    source = world.sources.source("letters/1.parquet")
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(ReinitialiseTable("empty", table.name))
    job = OutboundMessage("ingest-jobs", IngestJob(table.id, 1, "dropped-again", (source,)))
    with pytest.raises(ContendedError, match="about to be reset"):
        world.deliver(job)
    world.queue += [OutboundMessage("table-changes", TableChanged(table.id)), job]
    world.settle()
    assert world.names(current(world, table)) == "abc"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sealing_that_dies_loses_nothing_and_leaves_what_an_audit_deletes(
    world: World, table: Table, when: str
) -> None:
    (world.before_next_commit if when == "before" else world.after_next_commit)(world.crash)
    with pytest.raises(Crash):
        world.seal(table)
    assert len(segments(world, table)) == 1
    world.seal(table)
    assert world.state(table).source_segments[0].count == 1
    world.age_objects(seconds=40 * 24 * 3600)
    world.sweep(audit=True)
    assert len(segments(world, table)) == 1
    world.notify(*world.sources.list("letters/", since_ms=0))
    world.settle()
    assert world.names(table) == "abc"


def test_ten_sealings_become_one_segment_and_what_it_replaced_is_deleted(
    world: World, table: Table
) -> None:
    for number in range(2, 12):
        world.seal(table)
        world.drop(f"letters/{number}.parquet", letters("x", at=number))
        world.settle()
    world.seal(table)
    state = world.state(table)
    assert sum(segment.count for segment in state.source_segments) == 11
    assert len(state.source_segments) == 2
    world.age_objects(seconds=40 * 24 * 3600)
    world.sweep(audit=True)
    assert len(segments(world, table)) == 2
    world.notify(*world.sources.list("letters/", since_ms=0))
    world.settle()
    assert world.names(table) == "abc" + 10 * "x"


def test_who_meets_a_segment_that_was_merged_away_reads_the_state_again(
    world: World, table: Table
) -> None:
    world.seal(table)
    (gone,) = segments(world, table)
    late = world.new_store(table)
    late.current()
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    state = world.state(table)
    assert state.sources
    taken = world.services.store(table)
    sources = list(world.sources.list("letters/", since_ms=0))
    original = taken.current

    def stale_once() -> object:
        taken.current = original  # type: ignore[method-assign]
        return state

    for number in range(3, 12):
        world.seal(table)
        world.drop(f"letters/{number}.parquet", letters("y", at=number))
        world.settle()
    world.seal(table)
    world.storage.delete([gone])
    taken.current = stale_once  # type: ignore[method-assign,assignment]
    assert not look_up_sources(world.services, table, sources).fresh(sources)


def test_a_rebuilt_table_knows_what_was_sealed_and_what_was_not(world: World, table: Table) -> None:
    world.seal(table)
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    for _ in range(2):  # the second time, segments of two logs are there
        rebuild(world.services, current(world, table))
        world.seal(current(world, table))
        world.notify(*world.sources.list("letters/", since_ms=0))
        world.settle()
        assert world.names(current(world, table)) == "abcd"
    assert sum(s.count for s in world.state(current(world, table)).all_source_segments) >= 2


def test_a_rebuilt_table_knows_sealed_sources_that_no_footer_names_any_more(world: World) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2)
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    world.seal(table)
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    assert len(world.shard_objects(table)) == 1, "both shards are merged and deleted"
    rebuild(world.services, current(world, table))
    world.notify(*world.sources.list("letters/", since_ms=0))
    world.settle()
    assert world.names(current(world, table)) == "abcd"


def test_a_table_that_lost_a_segment_is_not_rebuilt_without_it(world: World, table: Table) -> None:
    world.seal(table)
    (lost,) = segments(world, table)
    world.drop("letters/2.parquet", letters("d"))
    world.settle()
    seal_sources(world.services, table, least=1)
    assert len(segments(world, table)) == 2
    world.storage.delete([lost])
    with pytest.raises(CorruptDataError, match="sources ingested after version 0 are lost"):
        rebuild(world.services, current(world, table))


def test_a_table_with_a_damaged_segment_is_not_rebuilt_without_it(
    world: World, table: Table
) -> None:
    world.seal(table)
    (path,) = segments(world, table)
    world.storage.delete([path])
    world.storage.put(path, b"damaged")
    with pytest.raises(CorruptDataError, match=path):
        rebuild(world.services, current(world, table))


def test_a_rebuilt_table_does_not_remember_what_it_ingested_before_it_was_reset(
    world: World, table: Table
) -> None:
    world.seal(table)
    world.administer(ReinitialiseTable("empty", "letters"))
    world.queue.clear()
    rebuild(world.services, current(world, table))
    world.administer(IngestFiles("again", "letters", ("letters",)))
    world.settle()
    assert world.names(current(world, table)) == "abc"


def test_a_reset_table_takes_the_same_files_again_once(world: World, table: Table) -> None:
    world.seal(table)
    world.administer(ReinitialiseTable("empty", "letters"))
    world.settle()
    world.administer(IngestFiles("again", "letters", ("letters",)))
    world.settle(twice=True)
    assert world.names(current(world, table)) == "abc"
    world.age_objects(seconds=40 * 24 * 3600)
    world.sweep(audit=True)
    assert not segments(world, table), "what it remembered before is deleted"


@pytest.mark.parametrize("place", ["record", "ids", "gone"])
def test_what_cannot_be_read_is_never_taken_for_not_ingested(
    world: World, table: Table, place: str
) -> None:
    world.seal(table)
    (path,) = segments(world, table)
    segment = world.state(table).source_segments[0]
    body = bytearray(world.storage.get(path))
    at = {"record": segment.index_at + 14, "ids": segment.index_at - 1, "gone": 0}[place]
    body[at] ^= 4
    world.storage.delete([path])
    if place != "gone":
        world.storage.put(path, bytes(body))
    (source,) = world.sources.list("letters/", since_ms=0)
    job = IngestJob(table.id, 0, "job", (source,))
    with pytest.raises(CorruptDataError, match=segment.id):
        ingest(world.services, job)
    assert world.names(table) == "abc"
    found = check(world.services, table, all_bytes=True).findings
    assert [finding.subject for finding in found] == [segment.id]


def test_a_damaged_segment_stops_no_sealing_and_is_recorded(world: World, table: Table) -> None:
    world.seal(table)
    (path,) = segments(world, table)
    body = bytearray(world.storage.get(path))
    body[20] ^= 1
    world.storage.delete([path])
    world.storage.put(path, bytes(body))
    for number in range(2, 13):
        state = world.state(table)
        added = AddShards(f"job{number}", (f"source{number}",), (), state.sealed_to)
        world.services.store(table).commit(added, generation=0)
        world.seal(table)
    recorded = world.tracker.get(table.id, SEALING)
    assert recorded is not None and recorded.state == "failed" and path in recorded.reason
    assert sum(segment.count for segment in world.state(table).source_segments) == 12


def test_a_deleted_table_leaves_no_segment(world: World, table: Table) -> None:
    world.seal(table)
    world.delete(table)
    world.settle()
    assert not segments(world, table)


def records(world: World, table: Table) -> dict[str, tuple[str, int, str]]:
    found = world.tracker.records(table.id)
    return {r.job_id: (r.state, r.rows, r.reason) for r in found if r.kind == "ingest"}


def test_a_second_drop_says_so_and_leaves_the_record_of_the_first(
    world: World, table: Table
) -> None:
    (job_id, recorded), *_ = records(world, table).items()
    assert recorded == ("finished", 3, "")
    for _ in range(2):
        world.drop("letters/1.parquet", letters("abc"))
        world.settle(twice=True)
    assert records(world, table) == {
        job_id: recorded,
        f"{REPEAT_PREFIX}{job_id}": ("finished", 0, ALREADY_INGESTED),
    }


def test_a_run_that_died_after_its_commit_is_finished_by_the_redelivery(world: World) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    (message,) = world.queue
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        world.settle()
    messages = world.deliver(message)
    assert messages == [OutboundMessage("table-changes", TableChanged(table.id))], (
        "nobody else may have"
    )
    world.queue += messages
    world.settle()
    assert list(records(world, table).values()) == [("finished", 0, ALREADY_INGESTED)]
    assert world.names(table) == "abc"


def test_a_job_some_of_whose_files_are_rows_already_says_how_many(
    world: World, table: Table
) -> None:
    (one,) = world.sources.list("letters/", since_ms=0)
    two = world.sources.drop("letters/2.parquet", letters_file(letters("d")))
    world.notify(one, two)
    world.settle()
    assert ("finished", 1, "1 of 2 files were already ingested") in records(world, table).values()


def test_a_job_one_of_whose_files_was_refused_keeps_its_record_when_it_comes_again(
    world: World,
) -> None:
    table = world.create(ingest_on_error="skip")
    good = world.sources.drop("letters/1.csv", b"letter,at,note\na,1,x\nb,x,y\n")
    bad = world.sources.drop("letters/2.csv", b"letter,other\na,1\n")
    job = IngestJob(table.id, 0, job_id_of((good, bad)), (good, bad))
    ingest(world.services, job)
    before = world.tracker.get(table.id, job.job_id)
    assert before is not None
    assert "1 rejected: see " in before.reason
    ingest(world.services, job)
    again = world.tracker.get(table.id, job.job_id)
    assert again is not None
    assert (again.state, again.rows, again.reason) == ("finished", 1, before.reason)


def test_who_asks_for_files_again_has_them_once_more_for_each_request(
    world: World, table: Table
) -> None:
    world.seal(table)
    for request_id in ("one", "one", "two"):
        world.administer(IngestFiles(request_id, "letters", ("letters",), again=True))
        world.settle(twice=True)
    assert world.names(table) == "aaabbbccc"
    subjects = [r.subject for r in world.tracker.records(table.id) if r.kind == "ingest"]
    assert subjects.count("letters/1.parquet, again") >= 2
    for _ in range(2):
        world.notify(*world.sources.list("letters/", since_ms=0))
        world.settle()
    assert world.names(table) == "aaabbbccc"
    rebuild(world.services, current(world, table))
    assert world.names(current(world, table)) == "aaabbbccc"
