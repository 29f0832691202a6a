"""A file that no function survives: the others of its job are ingested without it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from dormouse.errors import ContendedError, OutcomeUnknownError, UnavailableError
from dormouse.features import ingest as ingest_module
from dormouse.features.batch_files import ingest_message
from dormouse.features.ingest import ingest_or_isolate
from dormouse.files import loader
from dormouse.jobs import CRASH_LIMIT, tracked_job
from dormouse.messages.requests import ReinitialiseTable
from dormouse.messages.stages import IngestJob, OutboundMessage
from dormouse.ports import Arrived
from dormouse.rows.sorting import Sorter
from dormouse.state.jobs import JobEvent, Started, Tracked
from dormouse.state.sources import Source
from dormouse.tables.table import Table
from tests.support.world import Crash, World

POISON = "letters/poison.parquet"
RECEIVES = 3


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, has_spark=False)


def one_job(world: World, *keys: str) -> Table:
    """Return a table whose dropped files are one job."""
    table = world.create()
    sources = [world.sources.drop(key, world_file(number)) for number, key in enumerate(keys)]
    world.notify(*sources)
    assert len(world.queue) == 1
    return table


def world_file(number: int) -> bytes:
    return f"letter,at\n{'abcdefgh'[number]},{number}\n".encode()


def kills(
    world: World, monkeypatch: pytest.MonkeyPatch, error: BaseException, key: str = POISON
) -> None:
    """Let each process that opens the poisoned file end so."""
    download = world.sources.download

    def deadly(source: Source, local: Path, arrived: Arrived | None = None) -> None:
        if source.key == key:
            raise error
        download(source, local, arrived)

    monkeypatch.setattr(world.sources, "download", deadly)


def has_room_for(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    """Let a function's disk hold the rows of so many files, and put all rows there."""
    spill = Sorter.spill

    def limited(sorter: Sorter) -> None:
        spill(sorter)
        if len(list(sorter._scratch.glob("*.run"))) > runs:
            raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Sorter, "spill", limited)
    monkeypatch.setattr(loader, "SHARE_HELD", 1 << 60)


def deliver_all(world: World) -> list[OutboundMessage]:
    """Deliver what there is as SQS does; return the dead letters."""
    receives: Counter[str] = Counter()
    dead = []
    while world.queue:
        outgoing = world.queue.popleft()
        receives[str(outgoing.message)] += 1
        try:
            world.queue += world.deliver(outgoing)
        except (Crash, UnavailableError):
            again = receives[str(outgoing.message)] < RECEIVES
            (world.queue if again else dead).append(outgoing)
    return [*dead, *world.dead]


def test_a_file_that_no_function_survives_takes_no_others_along(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", POISON, "letters/c.csv", "letters/d.csv")
    kills(world, monkeypatch, Crash())
    (dead,) = deliver_all(world)
    assert [source.key for source in dead.message.sources] == [POISON]  # type: ignore[attr-defined]
    assert world.names(table) == "acd"
    whole = next(r for r in world.tracker.records(table.id) if r.files == 4)
    assert whole.state == "finished" and "by a job of its own" in whole.reason


def test_with_spark_a_file_that_crashed_twice_alone_is_sparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table = one_job(world, POISON)
    kills(world, monkeypatch, Crash())
    assert deliver_all(world) == []
    (run,) = world.spark.runs.values()
    assert run.kind == "ingest"
    recorded = world.tracker.get(table.id, run.job_id)
    assert recorded is not None and recorded.attempts == CRASH_LIMIT


def test_a_file_at_which_spark_fails_is_refused_with_a_hint_and_never_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    table = one_job(world, POISON)
    world.tables.change(table.id, lambda t: t.with_settings({"spark_attempts": 1}, {}))
    kills(world, monkeypatch, Crash())
    deliver_all(world)
    world.spark.ended["run1"] = ("failed", "out of memory")
    for day in range(40):
        world.clock.advance(seconds=24 * 3600)
        world.sweep(audit=True)
        world.settle()
        assert len(world.spark.runs) == 1, day
    (refused,) = [r for r in world.tracker.records(table.id) if r.state == "refused"]
    assert refused.subject == POISON
    assert "out of memory" in refused.reason and "dlq redrive spark-jobs" in refused.reason
    (dead,) = world.dead
    assert dead.queue == "spark-jobs-dead"
    world.redrive()
    world.settle()
    assert len(world.spark.runs) == 2, "a person can"


def test_without_spark_a_file_that_crashed_twice_alone_is_refused_with_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv")
    world.clock.advance(seconds=2)  # S3 dates objects by the second
    with monkeypatch.context() as patch:
        kills(world, patch, Crash(), "letters/a.csv")
        (dead,) = deliver_all(world)
        for _ in range(29):
            world.clock.advance(seconds=24 * 3600)
            world.sweep(audit=True)
            assert deliver_all(world) == [dead]
    (refused,) = [r for r in world.tracker.records(table.id) if r.state == "refused"]
    assert (refused.subject, refused.reason) == ("letters/a.csv", dead.reason)
    assert "dormouse dlq redrive ingest-jobs" in refused.reason
    assert world.tracker.get(table.id, dead.message.job_id).attempts == CRASH_LIMIT  # type: ignore
    world.redrive()
    world.settle()
    assert world.names(table) == "a", "nothing is lost"


@pytest.mark.parametrize("has_spark", [False, True])
def test_a_file_whose_runs_died_after_its_commit_is_ingested_and_not_refused(
    tmp_path: Path, has_spark: bool
) -> None:
    """Who believed the refusal would drop the same rows again in smaller files."""
    world = World(tmp_path / "of-both", has_spark=has_spark)
    table = one_job(world, "letters/a.csv")
    (job,) = world.queue
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    assert deliver_all(world) == []
    world.settle()
    assert world.names(table) == "a"
    assert not [r for r in world.tracker.records(table.id) if r.state == "refused"]
    recorded = world.tracker.get(table.id, job.message.job_id)  # type: ignore[union-attr]
    assert recorded is not None and recorded.state == "finished"


def test_the_job_of_one_file_has_the_same_id_wherever_it_is_made(world: World) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    (whole,) = world.queue
    world.queue.clear()
    world.administer(ReinitialiseTable("empty", table.name))
    assert isinstance(whole.message, IngestJob)
    job = structs.replace(whole.message, generation=1)
    for _ in range(CRASH_LIMIT):
        world.before_next_commit(world.crash)
        with pytest.raises(Crash):
            world.deliver(OutboundMessage("ingest-jobs", job))
    parts = world.deliver(OutboundMessage("ingest-jobs", job))
    emptied = world.services.table(table.id)
    assert emptied is not None
    assert parts == [ingest_message(emptied, 1, (source,)) for source in job.sources]


def test_a_job_that_fails_and_says_so_stays_one_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_job(world, "letters/a.csv", POISON)
    kills(world, monkeypatch, UnavailableError("S3 is down"))
    (dead,) = deliver_all(world)
    assert len(dead.message.sources) == 2  # type: ignore[attr-defined]


def test_a_job_whose_process_died_once_is_done_as_it_is(world: World) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    world.before_next_commit(world.crash)
    assert deliver_all(world) == []
    assert world.names(table) == "ab"
    assert len(world.state(table).shards) == 1


def test_a_job_that_failed_and_said_so_before_its_process_died_is_done_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", POISON)
    (job,) = world.queue
    for error in (UnavailableError("S3 does not answer"), Crash()):
        with monkeypatch.context() as patched, pytest.raises(type(error)):
            kills(world, patched, error)
            world.deliver(job)
    kinds = [outgoing.queue for outgoing in world.deliver(job)]
    assert kinds == ["table-changes"]
    (recorded,) = (record for record in world.tracker.records(table.id) if record.files == 2)
    assert (recorded.state, recorded.attempts) == ("finished", 3)


def test_files_of_a_job_taken_apart_while_it_still_ran_are_ingested_once(world: World) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    (job,) = world.queue

    def others() -> None:  # the same job comes to two other processes meanwhile
        world.before_next_commit(world.crash)
        with pytest.raises(Crash):
            world.deliver(job)
        for part in world.deliver(job):
            world.deliver(part)

    world.before_next_commit(others)
    world.settle()
    assert world.names(table) == "ab"


def test_a_job_whose_parts_were_not_sent_is_taken_apart_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", POISON, "letters/c.csv")
    (job,) = world.queue
    kills(world, monkeypatch, Crash())
    for _ in range(CRASH_LIMIT):
        with pytest.raises(Crash):
            world.deliver(job)
    unsent = world.deliver(job)  # its function dies before it sends them
    world.queue.clear()
    world.queue += world.deliver(job)
    assert list(world.queue) == unsent
    (dead,) = deliver_all(world)
    assert [source.key for source in dead.message.sources] == [POISON]  # type: ignore[attr-defined]
    assert world.names(table) == "ac"


def test_a_file_is_not_refused_for_a_disk_that_other_files_of_its_job_fill(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv", "letters/c.csv")
    has_room_for(monkeypatch, 2)
    assert deliver_all(world) == []
    assert world.names(table) == "abc"
    assert not [r for r in world.tracker.records(table.id) if r.state == "refused"]
    whole = next(r for r in world.tracker.records(table.id) if r.files == 3)
    assert whole.state == "finished" and "do not fit" in whole.reason and whole.attempts == 1


def test_a_file_whose_rows_do_not_fit_on_a_disk_of_its_own_is_refused_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    has_room_for(monkeypatch, 0)
    assert deliver_all(world) == []
    refused = [r for r in world.tracker.records(table.id) if r.state == "refused"]
    assert {r.subject for r in refused} == {"letters/a.csv", "letters/b.csv"}
    assert all("drop the rows in smaller files" in r.reason for r in refused)


def test_files_that_do_not_fit_together_are_taken_apart_again_if_that_was_not_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    (job,) = world.queue
    has_room_for(monkeypatch, 1)
    unsent = world.deliver(job)
    assert len(unsent) == 2
    assert world.deliver(job) == unsent
    assert world.tracker.get(table.id, job.message.job_id).attempts == 1  # type: ignore


@pytest.mark.parametrize("place", range(3))
def test_the_second_death_while_a_file_is_read_sets_it_aside(
    world: World, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """First, last or between others, which are ingested."""
    keys = [f"letters/{n}.csv" for n in range(3)]
    keys[place] = POISON
    table, deaths, read = one_job(world, *keys), [], loader.read_source

    def deadly(local: Path, key: str, *given: Any) -> Iterator[pa.RecordBatch]:
        if key == POISON:
            deaths.append(key)
            raise Crash
        return read(local, key, *given)

    monkeypatch.setattr(loader, "read_source", deadly)
    (dead,) = deliver_all(world)
    assert len(deaths) == CRASH_LIMIT
    assert "ended with their process" in dead.reason
    refused = [r for r in world.tracker.records(table.id) if r.state == "refused"]
    assert [r.subject for r in refused] == [POISON]
    assert len(world.rows(table)) == 2


def test_a_file_that_was_set_aside_is_read_again_for_a_person_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who repeats a command that died drops the file each time, which sends a message each time."""
    table = one_job(world, "letters/a.csv")
    (job,) = world.queue
    dropped_again = job
    with monkeypatch.context() as patched:
        kills(world, patched, Crash(), "letters/a.csv")
        for _ in range(CRASH_LIMIT):
            with pytest.raises(Crash):
                world.deliver(job)
        (dead,) = world.deliver(job)
        world.clock.advance(seconds=5)
        assert world.deliver(dropped_again) == []
        (refused,) = [r for r in world.tracker.records(table.id) if r.state == "refused"]
        assert refused.reason == dead.reason
        assert refused.updated_ms == world.clock.now_ms(), "who waits for the drop is told"
    world.deliver(OutboundMessage("ingest-jobs", dead.message))
    assert world.names(table) == "a"
    assert world.deliver(dropped_again)[0].queue == "table-changes", "it is ingested by now"


def test_an_attempt_that_may_live_has_not_crashed(world: World) -> None:
    """A file that is notified twice may be read by two functions at once."""
    table = one_job(world, "letters/a.csv")
    services = replace(world.services, attempt_ms=900_000)
    job = world.queue.popleft().message
    assert isinstance(job, IngestJob)
    started = Started(subject="letters/a.csv", files=1)
    for _ in range(CRASH_LIMIT):
        services.tracker.record(tracked_job(job), started, services.clock.now_ms())
        with pytest.raises(ContendedError, match="may still be running"):
            ingest_or_isolate(services, job)
    world.clock.advance(seconds=900)
    (dead,) = ingest_or_isolate(services, job)
    assert "ended with their process" in dead.reason
    assert world.rows(table) == []


def test_an_attempt_whose_begin_was_recorded_without_an_answer_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv")
    services = replace(world.services, attempt_ms=900_000)
    job = world.queue.popleft().message
    assert isinstance(job, IngestJob)
    record = services.tracker.record

    def unanswered(of: Tracked, event: JobEvent, at_ms: int) -> None:
        record(of, event, at_ms)
        if isinstance(event, Started):
            raise OutcomeUnknownError("DynamoDB did not answer a write")

    with monkeypatch.context() as lost:
        lost.setattr(services.tracker, "record", unanswered)
        with pytest.raises(OutcomeUnknownError):
            ingest_or_isolate(services, job)
    ingest_or_isolate(services, job)
    assert world.names(table) == "a", "else it waits for a quarter of an hour, or much longer"


def test_the_record_of_the_run_that_ingested_is_not_overwritten_by_one_beside_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one_job(world, "letters/a.csv", "letters/b.csv")
    job = world.queue.popleft().message
    assert isinstance(job, IngestJob)
    write = ingest_module.write_in_process

    def beside(*given: object) -> ingest_module.Written:
        ingest_module.ingest(world.services, job)
        return write(*given)  # type: ignore[arg-type]

    ingest_module.ingest(world.services, job, beside)
    whole = world.tracker.get(table.id, job.job_id)
    assert whole is not None
    assert (whole.state, whole.rows, whole.reason) == ("finished", 2, "")
    started = Started(files=2)  # by one that looked just before the commit, and then died
    world.tracker.record(tracked_job(job), started, world.clock.now_ms())
    ingest_or_isolate(world.services, job)
    again = world.tracker.get(table.id, job.job_id)
    assert again is not None and (again.state, again.rows) == ("finished", 2)
    assert world.names(table) == "ab"
