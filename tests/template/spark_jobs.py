"""Jobs for Spark in the life of a table: failed, done, and left undone.

What the jobs ask of AWS, driver and tasks, is asked in this process: a stand-in for Spark has the
same code do it, one task after another, without a JVM.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3

from dormouse.features.export import export_id_of, load_export
from dormouse.features.queries import Query, Spent, TaskEnd, load_end, load_query, spark_job
from dormouse.features.requests import ResultFile
from dormouse.features.spark import load_spark_request
from dormouse.jobs import tracked_job
from dormouse.messages.requests import ExportRows
from dormouse.messages.stages import (
    AnswerQuery,
    CompactionJob,
    ExportJob,
    IngestJob,
    SparkJob,
    StatementJob,
    encode,
)
from dormouse.ports import Services
from dormouse.state.sources import job_id_of
from dormouse.state.state import AssignJob, ReleaseJob
from dormouse.stored.paths import SPARK_JOBS, make_shard_id, shard_path
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table
from dormouse_spark.access import AccessFactory, InstanceAccess
from tests.template.conftest import NAMES
from tests.template.flow import Flow, half_of

APPLICATION = "dormouse-test"
SPARK_JOB = "spark_job"
ONE_BAD_ROW = b"letter,at,note\nz,1,x\nz,one,x\n"
"""A file of letters in CSV."""


def use_spark(flow: Flow, table: Table) -> None:
    """Have Spark do a job that fails, one that is done, and one of which no event comes."""
    services = flow.wiring().services
    failing = assigned(flow, table, "fails")
    flow.send("spark-jobs", encode(failing))
    cancel_newest_run(flow)
    flow.send("spark-jobs", encode(failing))
    assert load_spark_request(services, table.id, "fails") is None, "it was given up"
    services.store(table).commit(ReleaseJob("fails"), generation=failing.generation)
    heavy = dropped(flow, table)
    flow.send("spark-jobs", encode(heavy))
    run(flow, heavy)
    done = assigned(flow, table, "done", freeing=True)
    cancel_newest_run(flow)
    assert load_spark_request(services, table.id, heavy.job_id) is None
    flow.send("spark-jobs", encode(done))
    run(flow, done)
    cancel_newest_run(flow)
    assert load_spark_request(services, table.id, "done") is None
    late = assigned(flow, table, "late", freeing=True)
    flow.send("spark-jobs", encode(late))
    run(flow, late)
    flow.send("spark-jobs", encode(late))  # as the sweep does where no event came
    assert load_spark_request(services, table.id, "late") is None
    begun_by_another(flow, table, "begun-here")
    flow.send("compaction-jobs", encode(assigned(flow, table, "begun-here")))
    begun_by_another(flow, table, "begun-there")
    run(flow, assigned(flow, table, "begun-there"))
    assert not services.store(table).current().jobs.keys() & {"begun-here", "begun-there"}
    flow.send("spark-jobs", encode(assigned(flow, table, "lost")))
    export_by_spark(flow, table)
    ask_spark(flow, table)
    half_deleted = SPARK_JOBS.path(half_of(table), "any")
    services.storage.put(half_deleted, b"of a table that is being deleted")


def export_by_spark(flow: Flow, table: Table) -> None:
    """Have Spark do an export that fails, and one that is done."""
    services = flow.wiring().services
    for outcome in ("given-up", "done"):
        asked = ExportRows(f"{outcome} {table.name}", table.name, spark=SparkOptions())
        flow.send("admin", encode(asked))
        job = ExportJob(table.id, export_id_of(asked.request_id))
        if outcome == "done":
            run(flow, job)
        cancel_newest_run(flow)
        flow.send("spark-jobs", encode(job))
        assert load_export(services, table.id, job.job_id) is None
        assert load_spark_request(services, table.id, job.job_id) is None


def ask_spark(flow: Flow, table: Table) -> None:
    """Have Spark compute a statement that fails, and one that is done."""
    for outcome in ("failed", "finished"):
        job = asked(flow, table, outcome)
        if outcome == "finished":
            run(flow, job)
        cancel_newest_run(flow)
        flow.send("spark-jobs", encode(job))
        assert ended(flow, job) == outcome


@contextmanager
def outlive(flow: Flow, table: Table) -> Iterator[None]:
    """Have a run compute a statement while its table is deleted in the block."""
    job = asked(flow, table, "outlived")
    yield
    cancel_newest_run(flow)
    assert ended(flow, job) == "failed"


def asked(flow: Flow, table: Table, name: str) -> StatementJob:
    """Ask a statement of Spark; return the job of its run."""
    query_id, sql = f"spark-{name}-{table.name}", f"SELECT * FROM {table.name}"
    flow.send("queries", encode(AnswerQuery(query_id=query_id, sql=sql, spark=SparkOptions())))
    query = load_query(flow.wiring().services.results, query_id)
    assert query is not None
    job = spark_job(query).message
    assert isinstance(job, StatementJob)
    return job


def ended(flow: Flow, job: StatementJob) -> str:
    """Return how the query of a statement has ended."""
    end = load_end(flow.wiring().services.results, job.query_id)
    return end.state if end is not None else ""


def all_rows(_: object, open_access: AccessFactory, services: Services, query: Query) -> TaskEnd:
    """Write the rows of a table as a statement that selects all of them does."""
    from dormouse_spark import statement
    from dormouse_spark.datasource import TableReader

    (read,) = query.views.values()
    snapshot, _ = statement._snapshot(services, open_access, read)
    reader = TableReader(snapshot)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    schema, asked = batches[0].schema, query.asked
    write = statement._writer(open_access, query.id, asked.format, schema, asked.limits)
    files = [ResultFile(**row) for written in write(batches) for row in written.to_pylist()]
    return TaskEnd(
        tuple(files),
        base64.b64encode(schema.serialize().to_pybytes()).decode(),
        Spent(sum(file.rows for file in files), sum(file.size_bytes for file in files)),
        columns={read.id: read.selection.columns},
        versions={read.name: (read.selection.version,)},
    )


def assigned(flow: Flow, table: Table, job_id: str, *, freeing: bool = False) -> CompactionJob:
    """Assign the shards of a leaf to a job; with `freeing`, some that no other leaf has rows of."""
    store = flow.wiring().services.store(table)
    state = store.current()
    job = next(
        AssignJob(job_id, leaf.id, tuple(reference.shard for reference in found))
        for leaf in reversed(list(state.partitions.leaves()))
        if (found := state.references_in(leaf.id)) and not any(each.job for each in found)
        if not freeing or any(state.reference_counts[each.shard] == 1 for each in found)
    )
    store.commit(job, generation=state.generation)
    return CompactionJob(table.id, state.generation, job_id)


def begun_by_another(flow: Flow, table: Table, job_id: str) -> None:
    """Leave a shard of a run that cut the job in another way, where the job's own is to be."""
    services = flow.wiring().services
    any_shard = next(services.store(table).current().all_references()).shard
    body = services.storage.get(shard_path(table.id, any_shard))
    assert services.storage.put(shard_path(table.id, make_shard_id(job_id, 0)), body)


def cancel_newest_run(flow: Flow) -> None:
    """End a run, and do all that follows from it."""
    emr = boto3.Session().client("emr-serverless")
    runs = emr.list_job_runs(applicationId=APPLICATION)["jobRuns"]
    emr.cancel_job_run(applicationId=APPLICATION, jobRunId=runs[-1]["id"])
    flow.settle()


def dropped(flow: Flow, table: Table) -> IngestJob:
    """Drop files for a heavy ingest, one bad, one with a bad row; no notification of them comes."""
    names = ("1.parquet", "2.parquet", "bad.csv")
    first, *others = [flow.drop(f"{table.name}/heavy/{name}", "xyz") for name in names]
    others.append(flow.drop(f"{table.name}/on-error=skip/heavy.csv", ONE_BAD_ROW))
    sources = (replace(first, version=""), *others)  # as the sweep finds one
    flow.lose("files")
    services = flow.wiring().services
    generation = services.store(table).current().generation
    return IngestJob(table.id, generation, job_id_of(sources), sources)


def run(flow: Flow, message: SparkJob) -> None:
    """Run a Spark job here, as spark-submit does."""
    from dormouse_spark import entry  # PySpark takes long to import

    given = {
        "instance": NAMES.instance,
        "table-id": message.table_id,
        "job-id": message.job_id,
        "generation": getattr(message, "generation", 0),
    }
    with (
        TemporaryDirectory() as folder,
        patch.dict(os.environ, SPARK_LOCAL_DIRS=folder),
        flow.acting_as(SPARK_JOB),
        patch.object(entry, "opened", lambda _: nullcontext(opened(flow))),
        patch.object(entry, "SparkContext", SimpleNamespace(getOrCreate=Here)),
        patch.object(entry, "write_statement", all_rows),
    ):
        assert entry.main(tracked_job(message).kind, [f"--{k}={v}" for k, v in given.items()]) == 0


def opened(flow: Flow) -> tuple[Services, InstanceAccess]:
    """Return what a driver has of the instance."""
    wiring = flow.wiring()
    return wiring.services, InstanceAccess(wiring.settings)


class Here:
    """As much of a Spark context as the jobs use, in this process."""

    defaultParallelism = 2

    def parallelize(self, items: Iterable[Any], parts: int) -> Parts:
        """Cut items into parts, one in each: the jobs have as many parts as items."""
        found = [[item] for item in items]
        assert len(found) == parts
        return Parts(found)


class Parts:
    """As much of an RDD as the jobs use; it is computed at once."""

    def __init__(self, parts: list[list[Any]]) -> None:
        self._parts = parts

    def mapPartitionsWithIndex(self, task: Callable[[int, Iterator[Any]], Iterable[Any]]) -> Parts:
        return Parts([list(task(n, iter(part))) for n, part in enumerate(self._parts)])

    def mapPartitions(self, task: Callable[[Iterator[Any]], Iterable[Any]]) -> Parts:
        return Parts([list(task(iter(part))) for part in self._parts])

    def filter(self, wanted: Callable[[Any], bool]) -> Parts:
        return Parts([list(filter(wanted, part)) for part in self._parts])

    def partitionBy(self, parts: int, number: Callable[[Any], int]) -> Parts:
        pairs = self.collect()
        return Parts([[pair for pair in pairs if number(pair[0]) == n] for n in range(parts)])

    def collect(self) -> list[Any]:
        return [item for part in self._parts for item in part]

    def persist(self, _: object) -> Parts:
        return self

    def unpersist(self) -> None:
        """Keep it: it goes by itself."""
