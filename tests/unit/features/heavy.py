"""A heavy job in a world, and what happens to it: what the tests of jobs for Spark share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dormouse.features.compaction import compact
from dormouse.features.export import ExportRequest
from dormouse.features.export_rows import export_all, write_task
from dormouse.features.ingest import ingest
from dormouse.features.spark import list_spark_requests, newest_spark_run
from dormouse.features.spark_jobs import dispatch_spark, track_spark
from dormouse.messages.stages import (
    CompactionJob,
    ExportJob,
    GarbageCandidates,
    IngestJob,
    OutboundMessage,
    SparkJob,
    SparkJobStep,
    SparkRunChanged,
    TableChanged,
)
from dormouse.state.jobs import JobRecord
from dormouse.state.state import AssignJob
from dormouse.tables.table import Table
from tests.support.world import World, letters


@dataclass
class Heavy:
    """A world with one heavy job, and what happens to it."""

    world: World
    table: Table
    job: SparkJob

    def dispatch(self) -> list[OutboundMessage]:
        return dispatch_spark(self.world.services, self.job)

    def end(self, outcome: str, reason: str = "") -> list[OutboundMessage]:
        """Let the newest run end so, and send its event."""
        _, run_id = newest_spark_run(self.world.services, self.job)
        self.world.spark.ended[run_id] = (outcome, reason)
        return self.messages_at_end(run_id)

    def messages_at_end(self, run_id: str) -> list[OutboundMessage]:
        return track_spark(self.world.services, SparkRunChanged(run_id))

    def work(self) -> None:
        """Do what the run is to do, as its driver does, who sends and counts nothing."""
        services = replace(self.world.services, metrics=None)
        match self.job:
            case IngestJob():
                ingest(services, self.job)
            case CompactionJob():
                compact(services, self.job)
            case ExportJob():
                export_all(services, self.job, self._write)

    def _write(self, export: ExportRequest, tasks: Sequence[int]) -> None:
        for task in tasks:
            write_task(self.world.services, export, task)

    def record(self) -> JobRecord:
        found = self.world.tracker.get(self.table.id, self.job.job_id)
        assert found is not None
        return found

    def kept(self) -> list[str]:
        requests, _ = list_spark_requests(self.world.services, self.table.id)
        return [request.job.job_id for request in requests]

    @property
    def again(self) -> SparkJobStep:
        return SparkJobStep(self.table.id, self.job.job_id)

    @property
    def changed(self) -> OutboundMessage:
        return OutboundMessage("table-changes", TableChanged(self.table.id))

    @property
    def follows(self) -> list[OutboundMessage]:
        """What is to be sent once the job is done: the change, and the shards it set free."""
        freed = tuple(sorted(self.world.state(self.table).unreferenced))
        garbage = OutboundMessage("gc-candidates", GarbageCandidates(self.table.id, 0, freed))
        assert bool(freed) == isinstance(self.job, CompactionJob)
        return [self.changed, garbage] if freed else [self.changed]


def heavy_ingest(world: World) -> Heavy:
    table = world.create(spark_attempts=2)
    world.drop("letters/1.parquet", letters("abc"))
    job = world.queue.popleft().message
    assert isinstance(job, IngestJob)
    return Heavy(world, table, job)


def heavy_compaction(world: World) -> Heavy:
    table = world.create(spark_attempts=2, compaction_spark_bytes=1)
    for text in ("abc", "xyz"):
        world.drop(f"letters/{text}.parquet", letters(text))
        world.deliver(world.queue.popleft())
    store = world.services.store(table)
    store.commit(AssignJob("heavy", "root", tuple(sorted(store.current().shards))), generation=0)
    return Heavy(world, table, CompactionJob(table.id, 0, "heavy"))


def heavy_export(world: World) -> Heavy:
    table = world.create(spark_attempts=2, export_spark_bytes=1)
    world.drop("letters/1.parquet", letters("abc"))
    world.deliver(world.queue.popleft())
    world.export(table, to="out")
    job = world.queue.popleft().message
    assert isinstance(job, ExportJob)
    return Heavy(world, table, job)


KINDS = {"ingest": heavy_ingest, "compaction": heavy_compaction, "export": heavy_export}
