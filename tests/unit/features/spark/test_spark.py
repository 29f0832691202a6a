"""Jobs for Spark: each is started once, tried again when it failed, and never believed untested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from dormouse.errors import CorruptDataError, UnavailableError
from dormouse.features.batch_files import batch_files
from dormouse.features.planning import plan_table
from dormouse.features.spark import (
    list_spark_requests,
    load_spark_request,
    newest_spark_run,
    save_spark_run,
)
from dormouse.features.spark_jobs import dispatch_spark, track_spark
from dormouse.features.sweep import sweep
from dormouse.folder.wiring import FileKeys
from dormouse.items.records import ItemSubjects
from dormouse.messages.requests import IngestFiles, ReinitialiseTable
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    ExportTask,
    IngestJob,
    PurgeStep,
    SparkJobStep,
    SparkRunChanged,
    TableChanged,
)
from dormouse.state.jobs import Metric, compaction_queue
from dormouse.state.state import DAY_MS, AssignJob
from dormouse.storage import FolderStorage
from dormouse.stored.paths import SPARK_JOBS, data_prefix
from tests.support.world import Crash, World, letters
from tests.unit.features.heavy import Heavy, heavy_compaction, heavy_ingest


def test_a_job_becomes_one_run_however_often_it_is_delivered(heavy: Heavy) -> None:
    assert heavy.dispatch() == heavy.dispatch() == []
    (run,) = heavy.world.spark.runs.values()
    assert (run.job_id, run.attempt, run.generation) == (heavy.job.job_id, 1, 0)
    request = load_spark_request(heavy.world.services, heavy.table.id, heavy.job.job_id)
    assert request is not None and request.job == heavy.job
    assert heavy.record().state == "assigned"
    assert "run1" in heavy.record().reason
    assert heavy.record().size_bytes > 0


def test_a_run_whose_start_was_not_noted_is_found_again_by_its_token(
    heavy: Heavy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dormouse.features.spark.save_spark_run", lambda *_: World.crash())
        with pytest.raises(Crash):
            heavy.dispatch()
    assert heavy.dispatch() == []
    assert len(heavy.world.spark.runs) == 1


def test_a_run_whose_start_was_not_noted_keeps_no_other_from_being_started_with_another_size(
    heavy: Heavy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dormouse.features.spark.save_spark_run", lambda *_: World.crash())
        with pytest.raises(Crash):
            heavy.dispatch()
    settings = {**heavy.table.settings, "spark_executor_cores": 8}
    heavy.world.tables.change(heavy.table.id, lambda table: table.with_settings(settings, {}))
    assert heavy.dispatch() == []
    assert [run.size.executor_cores for run in heavy.world.spark.runs.values()] == [4, 8]


def test_the_request_of_a_successful_run_is_deleted(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.work()
    assert heavy.end("succeeded") == heavy.follows
    assert heavy.kept() == []
    assert heavy.record().state == "finished"
    assert heavy.record().rows > 0, "the record of the run itself is kept"


def test_what_follows_from_a_job_whose_event_never_came_is_sent_after_a_sweep(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.work()
    heavy.world.spark.ended["run1"] = ("succeeded", "")
    heavy.world.clock.advance(seconds=heavy.table.properties.job_retry_seconds)
    heavy.world.sweep()
    (again,) = [m for m in heavy.world.queue if m.queue == "spark-jobs"]
    assert heavy.world.deliver(again) == heavy.follows
    assert heavy.kept() == []


def test_a_run_id_saved_after_its_job_completed_is_deleted_by_an_audit(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.work()
    heavy.end("succeeded")
    save_spark_run(heavy.world.services, heavy.job, 1, "run1")
    patience_seconds = heavy.table.properties.job_retry_seconds
    for seconds, left in ((0, 1), (patience_seconds + 1, 0)):
        heavy.world.clock.advance(seconds=seconds)
        heavy.world.age_objects(seconds=seconds)
        heavy.world.sweep(audit=True)
        assert len(list(heavy.world.storage.list(SPARK_JOBS.prefix(heavy.table.id)))) == left


def test_a_repeated_or_late_event_of_a_complete_job_does_nothing(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.work()
    heavy.end("succeeded")
    emitted = list(heavy.world.metrics.emitted)
    assert heavy.messages_at_end("run1") == [heavy.changed], (
        "the first may have died before it sent"
    )
    assert heavy.messages_at_end("no such run") == []
    assert heavy.world.metrics.emitted == emitted, "nothing is counted twice"
    assert heavy.dispatch() == [heavy.changed], "a late delivery of the job"
    assert len(heavy.world.spark.runs) == 1


def test_an_event_of_a_run_that_goes_on_does_nothing(heavy: Heavy) -> None:
    heavy.dispatch()
    assert heavy.messages_at_end("run1") == []
    assert heavy.kept() == [heavy.job.job_id]


def test_a_driver_that_died_after_its_commit_has_done_its_job(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.work()
    assert heavy.end("failed", "the driver was lost") == heavy.follows
    assert heavy.kept() == []
    assert heavy.record().state == "finished"


@pytest.mark.parametrize("outcome", ["failed", "succeeded"])
def test_a_run_that_did_not_do_its_work_is_tried_again(heavy: Heavy, outcome: str) -> None:
    heavy.dispatch()
    (again,) = heavy.end(outcome, "no room")
    assert (again.queue, again.message) == ("spark-jobs", heavy.again)
    assert again.delay_seconds >= 30
    assert heavy.record().state == "failed"
    assert "run1" in heavy.record().reason and "no room" in heavy.record().reason
    assert heavy.dispatch() == []
    assert [run.attempt for run in heavy.world.spark.runs.values()] == [1, 2]
    assert len({run.token for run in heavy.world.spark.runs.values()}) == 2


def test_an_event_of_an_older_attempt_does_not_end_the_newer(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.end("failed")
    heavy.dispatch()
    assert heavy.messages_at_end("run1") == []
    assert heavy.dispatch() == []
    assert len(heavy.world.spark.runs) == 2


def test_a_run_spark_knows_nothing_of_is_tried_again(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.world.spark.runs.clear()
    assert heavy.dispatch() == []
    assert [run.attempt for run in heavy.world.spark.runs.values()] == [2]


def test_a_sweep_makes_up_for_a_lost_event_once_it_is_old(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.world.spark.ended["run1"] = ("failed", "no message was sent")
    heavy.world.sweep()
    assert not [m for m in heavy.world.queue if m.queue == "spark-jobs"]
    heavy.world.clock.advance(seconds=heavy.table.properties.job_retry_seconds)
    heavy.world.sweep()
    (again,) = [m for m in heavy.world.queue if m.queue == "spark-jobs"]
    assert heavy.world.deliver(again) == []
    assert [run.attempt for run in heavy.world.spark.runs.values()] == [1, 2]


def test_a_sweep_leaves_a_run_that_takes_long_alone(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.world.clock.advance(seconds=heavy.table.properties.job_retry_seconds)
    heavy.world.sweep()
    (again,) = [m for m in heavy.world.queue if m.queue == "spark-jobs"]
    assert heavy.world.deliver(again) == []
    assert len(heavy.world.spark.runs) == 1


def test_a_job_of_a_reset_or_deleted_table_is_not_started(heavy: Heavy) -> None:
    old = heavy.job
    if not isinstance(old, ExportJob):  # which reads a version, whatever became of the table
        heavy.job = structs.replace(old, generation=1)
        with pytest.raises(UnavailableError, match="about to be reset"):
            heavy.dispatch()
    heavy.job = old
    heavy.dispatch()
    heavy.world.delete(heavy.table)
    assert heavy.dispatch() == []
    assert heavy.messages_at_end("run1") == []
    assert len(heavy.world.spark.runs) == 1
    assert list(heavy.world.storage.list(heavy.table.id)) == []


def test_a_late_job_from_before_a_reset_leaves_a_newer_job_of_the_same_files_alone(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    table = world.create(ingest_spark_bytes=1)
    source = world.sources.drop("letters/1.csv", b"letter,at,note\na,1,x\n")
    (before,) = batch_files(world.services, [source])
    world.administer(ReinitialiseTable("empty", table.name))
    (since,) = batch_files(world.services, [source])
    world.deliver(since)
    world.deliver(before)
    requests, _ = list_spark_requests(world.services, table.id)
    assert [r.job for r in requests] == [since.message]


def test_a_damaged_request_is_reported_and_holds_up_nothing_else_of_a_sweep(heavy: Heavy) -> None:
    world, table = heavy.world, heavy.table
    heavy.dispatch()
    world.storage.put(SPARK_JOBS.path(table.id, "-damaged"), b"damaged")
    purge_id = world.purge(table, "letter = 'z'")
    lost = f"{data_prefix(table.id)}{'0' * 32}.parquet"
    world.storage.put(lost, b"nobody committed it")
    world.clock.advance(seconds=7 * 24 * 60 * 60)
    world.age_objects(seconds=7 * 24 * 60 * 60)
    sent = []
    with pytest.raises(CorruptDataError, match="-damaged.json"):
        for outgoing in sweep(world.services, table, audit=True):
            sent.append(outgoing.message)
    assert heavy.again in sent
    assert purge_id in [m.purge_id for m in sent if isinstance(m, PurgeStep)]
    assert lost not in [stored.path for stored in world.storage.list(data_prefix(table.id))]


def test_a_stale_compaction_whose_request_is_damaged_is_left_to_spark(tmp_path: Path) -> None:
    heavy = heavy_compaction(World(tmp_path))
    heavy.world.storage.put(SPARK_JOBS.path(heavy.table.id, "heavy"), b"damaged")
    heavy.world.clock.advance(seconds=7 * 24 * 60 * 60)
    sent = []
    with pytest.raises(CorruptDataError):
        sent += sweep(heavy.world.services, heavy.table)
    assert [type(outgoing.message) for outgoing in sent] == [TableChanged]


def test_an_ingest_whose_refused_files_are_known_is_complete(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = world.create()
    good = world.sources.drop("letters/1.csv", b"letter,at,note\na,1,x\n")
    bad = world.sources.drop("letters/2.csv", b"letter,at,note\na,soon,x\n")
    heavy = Heavy(world, table, IngestJob(table.id, 0, "both", (good, bad)))
    heavy.dispatch()
    heavy.work()
    assert heavy.end("succeeded") == [heavy.changed]
    assert world.metrics.total(Metric.FILES_REFUSED) == 1
    assert world.metrics.total(Metric.ROWS_INGESTED) == 1


def test_the_rows_of_a_compaction_by_spark_are_counted_when_its_end_is_known(
    tmp_path: Path,
) -> None:
    heavy = heavy_compaction(World(tmp_path))
    counted = [(heavy.table.name, {Metric.ROWS_COMPACTED: 6.0})]
    before = list(heavy.world.metrics.emitted)
    heavy.dispatch()
    heavy.work()
    assert heavy.world.metrics.emitted == before, "a driver has no metrics"
    heavy.end("succeeded")
    assert heavy.world.metrics.emitted == before + counted


def test_a_file_in_plain_is_removed_though_the_driver_died_between_its_commit_and_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStorage, "is_remote", True)
    world = World(tmp_path)
    keys = FileKeys(tmp_path / "mice.keys", tmp_path, ItemSubjects(world.items))
    world.services = replace(world.services, keys=keys)
    table = world.create(encrypted_columns="note")
    source = world.drop("letters/1.parquet", letters("abc"))
    job = world.queue.popleft().message
    assert isinstance(job, IngestJob)
    heavy = Heavy(world, table, job)
    heavy.dispatch()
    heavy.work()
    assert source.key in world.sources.objects
    world.queue += heavy.end("failed")
    world.settle()
    assert source.key not in world.sources.objects


def test_a_shard_that_another_leaf_has_rows_of_is_not_named_for_collection(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = world.create(splits=[("m",)], compaction_files=100)
    for text in ("az", "bc"):
        world.drop(f"letters/{text}.parquet", letters(text))
        world.deliver(world.queue.popleft())
    store = world.services.store(table)
    state = store.current()
    left = next(state.partitions.leaves())
    inputs = tuple(reference.shard for reference in state.references_in(left.id))
    store.commit(AssignJob("heavy", left.id, inputs), generation=0)
    heavy = Heavy(world, table, CompactionJob(table.id, 0, "heavy"))
    heavy.dispatch()
    heavy.work()
    assert heavy.end("succeeded") == heavy.follows
    assert len(world.state(table).unreferenced) == len(inputs) - 1


def test_a_job_that_functions_did_after_all_is_counted_once(tmp_path: Path) -> None:
    heavy = heavy_ingest(World(tmp_path))
    heavy.dispatch()
    without = replace(heavy.world.services, spark=None)
    for sent in dispatch_spark(without, heavy.job):
        heavy.world.deliver(sent)
    dispatch_spark(without, heavy.again)
    assert heavy.kept() == []
    assert heavy.world.metrics.total(Metric.ROWS_INGESTED) == 3


def test_an_instance_without_spark_has_functions_do_it(heavy: Heavy) -> None:
    heavy.world.services = without = replace(heavy.world.services, spark=None, has_spark=False)
    (sent,) = dispatch_spark(without, heavy.job)
    if isinstance(heavy.job, ExportJob):
        task = ExportTask(heavy.table.id, heavy.job.job_id, 0)
        assert (sent.queue, sent.message) == ("exports", task)
    else:
        queue = "ingest-jobs" if isinstance(heavy.job, IngestJob) else "compaction-jobs"
        assert (sent.queue, sent.message) == (queue, heavy.job)
    heavy.world.queue.append(sent)
    heavy.world.settle()
    assert heavy.record().state == "finished"
    assert track_spark(without, SparkRunChanged("run1")) == []


def test_the_spark_request_of_a_job_that_functions_completed_is_deleted(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.world.services = without = replace(heavy.world.services, spark=None, has_spark=False)
    heavy.world.queue.extend(dispatch_spark(without, heavy.job))
    heavy.world.settle()
    again = SparkJobStep(heavy.table.id, heavy.job.job_id)
    is_forgotten = isinstance(heavy.job, CompactionJob)  # at once, for the state has it
    assert dispatch_spark(without, again) == ([] if is_forgotten else heavy.follows)
    assert heavy.kept() == []
    heavy.world.clock.advance(seconds=400 * DAY_MS // 1000)
    assert dispatch_spark(without, again) == []


def test_an_unknown_run_state_is_queried_again(heavy: Heavy) -> None:
    heavy.dispatch()
    heavy.world.spark.silent = True
    with pytest.raises(UnavailableError):
        heavy.messages_at_end("run1")
    with pytest.raises(UnavailableError):
        heavy.dispatch()


def test_a_batch_of_so_many_bytes_goes_to_spark_and_a_smaller_one_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    body = b"letter,at,note\n" + b"a,1,x\n" * 100
    table = world.create(ingest_spark_bytes=len(body))
    world.drop("letters/small.csv", b"letter,at,note\na,1,x\n")
    world.drop("letters/large.csv", body)
    assert [message.queue for message in world.queue] == ["ingest-jobs", "spark-jobs"]
    world.queue.pop()
    world.administer(IngestFiles("again", table.name, ("letters/large.csv",)))
    assert [message.queue for message in world.queue] == ["ingest-jobs", "spark-jobs"]


def test_a_compaction_of_so_many_bytes_goes_to_spark_and_again_when_it_is_lost(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    table = world.create(compaction_strategy="batch", compaction_files=2)
    for text in ("abc", "xyz"):
        world.drop(f"letters/{text}.parquet", letters(text))
        world.deliver(world.queue.popleft())
    size_bytes = sum(shard.size_bytes for shard in world.state(table).shards.values())
    settings = {**table.settings, "compaction_spark_bytes": size_bytes}
    changed = table.with_settings(settings, {})
    world.tables.change(table.id, lambda _: changed)
    (planned,) = plan_table(world.services, TableChanged(table.id))
    assert planned.queue == "spark-jobs"
    job = world.state(table).jobs[planned.message.job_id]  # type: ignore[attr-defined]
    assert compaction_queue(world.state(table), job, changed.properties) == "spark-jobs"
    settings["compaction_spark_bytes"] += 1
    larger = table.with_settings(settings, {}).properties
    assert compaction_queue(world.state(table), job, larger) == "compaction-jobs"
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    assert planned in world.queue


def test_an_audit_leaves_files_that_spark_is_ingesting_to_it(tmp_path: Path) -> None:
    heavy = heavy_ingest(World(tmp_path))
    heavy.dispatch()
    heavy.world.tracker.kept.clear()
    heavy.world.sweep(audit=True)
    assert not [message for message in heavy.world.queue if message.queue == "ingest-jobs"]


@pytest.mark.parametrize("name", ["read-me.txt", "-run", "000001", "\u0663-run"])
def test_a_foreign_object_among_the_notes_of_runs_is_no_run(heavy: Heavy, name: str) -> None:
    services = heavy.world.services
    heavy.dispatch()
    path = SPARK_JOBS.parts(heavy.table.id, heavy.job.job_id) + name
    heavy.world.storage.put(path, b"by hand")
    assert newest_spark_run(services, heavy.job) == (1, "run1")
    assert heavy.dispatch() == []
    heavy.work()
    assert heavy.end("succeeded") == heavy.follows
