"""Who asks for Spark gets it, with the cluster asked for, and nobody else does."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.features import purge as purges
from dormouse.features.administration import administer
from dormouse.features.compaction import compact
from dormouse.features.export import export_id_of, load_manifest
from dormouse.features.spark import list_spark_requests
from dormouse.keys import KeyRange
from dormouse.messages.requests import (
    CompactTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    decode_admin,
)
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    ExportTask,
    IngestJob,
    OutboundMessage,
    SelectionMessage,
    SparkJobStep,
    decode,
    encode,
)
from dormouse.query.selection import bytes_to_read
from dormouse.stored.paths import SPARK_JOBS
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters, letters_file

ASKED = SparkOptions(spark_executors=7, spark_executor_cores=8)


@made_once
def filled(world: World, *texts: str, **properties: object) -> Table:
    """A table of two leaves, with a shard for each text and leaf."""
    table = world.create("letters", splits=[("m",)], **{"compaction_files": 100, **properties})
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def for_spark(world: World) -> list[OutboundMessage]:
    return [message for message in world.queue if message.queue == "spark-jobs"]


def test_requested_files_are_one_bulk_import_with_the_requested_cluster_however_small(
    world: World,
) -> None:
    world.create(ingest_job_max_files=2)
    for number in range(5):
        world.sources.drop(f"elsewhere/{number}.parquet", b"any")
    world.administer(IngestFiles("plain", "letters", ("elsewhere",)))
    assert [message.queue for message in world.queue] == ["ingest-jobs"] * 3
    world.queue.clear()
    world.administer(IngestFiles("asked", "letters", ("elsewhere",), ASKED))
    (sent,) = world.queue
    assert isinstance(sent.message, IngestJob) and len(sent.message.sources) == 5
    world.deliver(sent)
    (run,) = world.spark.runs.values()
    assert (run.size.executors, run.size.executor_cores) == (7, 8)
    assert run.size.executor_memory_bytes == 16 * 1024**3, "as the table says"


def test_a_compaction_requested_with_spark_stays_with_spark_when_retried(world: World) -> None:
    table = filled(world, "abyz", "cx")
    world.administer(CompactTable("c", "letters", all=True, spark=ASKED))
    assert [type(m.message) for m in for_spark(world)] == [CompactionJob] * 2
    world.settle()
    world.spark.ended = dict.fromkeys(world.spark.runs, ("failed", "no room"))
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    world.settle()
    assert [run.attempt for run in world.spark.runs.values()] == [1, 1, 2, 2]
    assert {run.size.executors for run in world.spark.runs.values()} == {7}


@pytest.mark.parametrize("dies", ["before_next_commit", "after_next_commit"])
def test_a_compaction_requested_with_spark_goes_to_spark_even_if_its_message_was_lost(
    world: World, dies: str
) -> None:
    table = filled(world, "abyz", "cx")
    request = CompactTable("c", "letters", all=True, spark=ASKED)
    getattr(world, dies)(world.crash)
    with pytest.raises(Crash):
        world.administer(request)
    world.administer(request)  # comes again, and finds the jobs assigned if that landed
    world.queue.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    world.settle()
    assert {run.size.executors for run in world.spark.runs.values()} == {7}
    assert len(world.spark.runs) == 2
    requests, _ = list_spark_requests(world.services, table.id)
    assert {r.job.job_id for r in requests} == {run.job_id for run in world.spark.runs.values()}


def test_a_requested_ingest_whose_message_was_lost_can_be_requested_again(world: World) -> None:
    world.create()
    world.sources.drop("elsewhere/1.parquet", letters_file(letters("a")))
    request = IngestFiles("asked", "letters", ("elsewhere",), ASKED)
    unsent = administer(world.services, request)
    assert administer(world.services, request) == unsent
    assert [m.message.spark for m in unsent if isinstance(m.message, IngestJob)] == [ASKED]


def test_an_export_requested_with_spark_goes_to_spark_even_if_its_message_was_lost(
    world: World,
) -> None:
    table = filled(world, "abyz")
    world.export(table, to="out", spark=ASKED)
    world.queue.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.age_objects(seconds=table.properties.job_retry_seconds)
    world.sweep()
    (again,) = for_spark(world)
    world.deliver(again)
    assert [run.size.executors for run in world.spark.runs.values()] == [7]


def test_an_export_goes_to_spark_from_a_size_on_or_when_requested(world: World) -> None:
    table = filled(world, "abyz")
    size = bytes_to_read(world.state(table), [KeyRange()])
    wanted = {size + 1: ExportTask, size: ExportJob, 0: ExportTask}
    for least, kind in wanted.items():
        changed = table.with_settings({"export_spark_bytes": least}, {})
        world.tables.change(table.id, lambda _, changed=changed: changed)
        world.export(table)
        assert isinstance(world.queue.pop().message, kind), least
    world.export(table, spark=ASKED)
    (sent,) = for_spark(world)
    world.deliver(sent)
    (run,) = world.spark.runs.values()
    assert (run.kind, run.size.executors) == ("export", 7)


def test_of_an_export_of_some_keys_their_leaves_alone_are_counted(world: World) -> None:
    table = filled(world, "abyz")
    size = bytes_to_read(world.state(table), [KeyRange()])
    world.tables.change(table.id, lambda t: t.with_settings({"export_spark_bytes": size}, {}))
    world.export(table, ranges=((("a",), ("c",)),))
    assert isinstance(world.queue[0].message, ExportTask)


def test_an_export_whose_message_was_lost_is_sent_to_spark_again_once(world: World) -> None:
    table = filled(world, "abyz", export_spark_bytes=1)
    export_id = world.export(table, to="out")
    world.queue.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.age_objects(seconds=table.properties.job_retry_seconds)
    world.sweep()
    (again,) = for_spark(world)
    assert again.message == ExportJob(table.id, export_id, SparkOptions())
    world.settle()
    world.sweep()
    assert not for_spark(world), "its request is kept now, and young"
    assert not [message for message in world.queue if message.queue == "exports"]


def test_an_export_that_fails_in_spark_has_failed_with_its_reason(world: World) -> None:
    table = filled(world, "abyz", export_spark_bytes=1, spark_attempts=1)
    export_id = world.export(table, to="out")
    (sent,) = for_spark(world)
    world.settle()
    world.spark.ended = {"run1": ("failed", "out of memory")}
    assert world.deliver(sent) == [], "nothing is left that could be sent back"
    record = world.tracker.get(table.id, export_id)
    assert record is not None and record.state == "failed" and "out of memory" in record.reason
    assert load_manifest(world.results, "out") is None
    left = [o.path for o in world.storage.list(table.id) if "/exports/" in o.path]
    assert left == list(world.storage.list(SPARK_JOBS.prefix(table.id))) == []


def test_a_purge_requested_with_spark_rewrites_a_leaf_in_one_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "MAX_JOB_BYTES", 1)
    table = world.create("letters", compaction_files=100)
    for number, text in enumerate(("abyz", "acxy", "ad")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    world.administer(PurgeRows("p", "letters", SelectionMessage(where="letter = 'a'"), spark=ASKED))
    world.queue += world.deliver(world.queue.popleft())
    (job,) = for_spark(world)
    world.deliver(job)
    (run,) = world.spark.runs.values()
    assert run.size.executors == 7
    assert len(world.state(table).jobs[run.job_id].inputs) == 3
    assert isinstance(job.message, CompactionJob)
    world.queue += compact(world.services, job.message)
    world.settle()
    assert world.names(table) == "bcdxyyz"


def test_a_purges_job_whose_message_was_lost_is_sent_to_spark_again(world: World) -> None:
    table = filled(world, "abyz")
    world.administer(PurgeRows("p", "letters", SelectionMessage(where="letter = 'a'"), spark=ASKED))
    sent = [message for message in world.deliver(world.queue.popleft()) if "spark" in message.queue]
    world.queue.clear()
    world.clock.advance(seconds=table.properties.job_retry_seconds)
    world.sweep()
    again = [SparkJobStep(table.id, m.message.job_id) for m in sent]  # type: ignore[attr-defined]
    assert [message.message for message in for_spark(world)] == again != []
    world.settle()
    assert {run.size.executors for run in world.spark.runs.values()} == {7}


def test_what_a_purge_rewrites_is_sparks_by_its_size_and_a_functions_below(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.purge.JOINED_BYTES", 0)
    table = filled(world, "abcdefgh" * 100, "yz")
    least = max(shard.size_bytes for shard in world.state(table).shards.values())
    world.tables.change(table.id, lambda t: t.with_settings({"compaction_spark_bytes": least}, {}))
    world.purge(table, "letter IN ('a', 'z')")
    world.queue += world.deliver(world.queue.popleft())
    jobs = [m for m in world.queue if isinstance(m.message, CompactionJob)]
    assert sorted(m.queue for m in jobs) == ["compaction-jobs", "spark-jobs"]


def test_messages_without_options_are_as_they_were_before_there_were_any() -> None:
    old = '{"type":"compaction_job","table_id":"t","generation":0,"job_id":"j","v":1}'
    assert encode(CompactionJob("t", 0, "j")) == old
    assert not decode(old, CompactionJob).spark
    assert '"spark"' not in encode(IngestJob("t", 0, "j", ()))
    for request in (
        CompactTable("r", "t"),
        ExportRows("r", "t"),
        IngestFiles("r", "t", ()),
        PurgeRows("r", "t", SelectionMessage()),
    ):
        assert '"spark"' not in encode(request)


@pytest.mark.parametrize(
    "spark", ['{"spark_executors": 0}', '{"spark_executor_memory_bytes": 1}', '{"executors": 1}']
)
def test_options_that_no_cluster_can_have_are_refused(spark: str) -> None:
    request = f'{{"type":"export_rows","request_id":"r","name":"t","spark":{spark}}}'
    with pytest.raises(InvalidRequestError):
        decode_admin(request)


def test_a_request_says_what_it_asks_of_spark() -> None:
    asked = decode_admin('{"type":"export_rows","request_id":"r","name":"t","spark":{}}')
    assert asked == ExportRows("r", "t", spark=SparkOptions())
    assert export_id_of("r") == export_id_of(asked.request_id)
