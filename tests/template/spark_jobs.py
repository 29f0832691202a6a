"""Jobs for Spark in the life of a table: given up, done, and left undone."""

from __future__ import annotations

import boto3

from dormouse.messages import CompactionJob, ExportJob, encode
from dormouse.model.names import spark_request_path
from dormouse.model.spark import SparkOptions
from dormouse.model.tables import Table
from dormouse.model.transactions import AssignJob, ReleaseJob
from dormouse.requests import ExportRows
from dormouse.stages.compact import compact
from dormouse.stages.export_rows import export_all
from dormouse.stages.export_task import write_task
from dormouse.stages.exports import kept_export
from dormouse.stages.requests.export_rows import export_id_of
from dormouse.stages.spark_requests import spark_request
from tests.template.flow import Flow

APPLICATION = "dormouse-test"


def use_spark(flow: Flow, table: Table) -> None:
    """Have Spark do a job that fails, one that is done, and one of which no event comes."""
    services = flow.wiring().services
    failing = assigned(flow, table, "fails")
    flow.send("spark-jobs", encode(failing))
    cancel_newest_run(flow)
    flow.send("spark-jobs", encode(failing))
    assert spark_request(services, table.id, "fails") is None, "it was given up"
    services.store(table).commit(ReleaseJob("fails"), generation=failing.generation)
    done = assigned(flow, table, "done")
    flow.send("spark-jobs", encode(done))
    compact(services, done)
    cancel_newest_run(flow)
    assert spark_request(services, table.id, "done") is None
    flow.send("spark-jobs", encode(assigned(flow, table, "lost")))
    export_by_spark(flow, table)
    half_deleted = spark_request_path(f"half-{table.id}", "any")
    services.storage.put(half_deleted, b"of a table that is being deleted")


def export_by_spark(flow: Flow, table: Table) -> None:
    """Have Spark do an export that fails, and one that is done."""
    services = flow.wiring().services
    for outcome in ("given-up", "done"):
        asked = ExportRows(f"{outcome} {table.name}", table.name, spark=SparkOptions())
        flow.send("admin", encode(asked))
        job = ExportJob(table.id, export_id_of(asked.request_id))
        if outcome == "done":
            export_all(
                services, job, lambda e, tasks: [write_task(services, e, task) for task in tasks]
            )
        cancel_newest_run(flow)
        flow.send("spark-jobs", encode(job))
        assert kept_export(services, table.id, job.job_id) is None
        assert spark_request(services, table.id, job.job_id) is None


def assigned(flow: Flow, table: Table, job_id: str) -> CompactionJob:
    store = flow.wiring().services.store(table)
    state = store.current()
    job = next(
        AssignJob(job_id, leaf.id, tuple(reference.shard for reference in found))
        for leaf in reversed(list(state.partitions.leaves()))
        if (found := state.references_in(leaf.id)) and not any(each.job for each in found)
    )
    store.commit(job, generation=state.generation)
    return CompactionJob(table.id, state.generation, job_id)


def cancel_newest_run(flow: Flow) -> None:
    """End a run, and do all that follows from it."""
    emr = boto3.Session().client("emr-serverless")
    runs = emr.list_job_runs(applicationId=APPLICATION)["jobRuns"]
    emr.cancel_job_run(applicationId=APPLICATION, jobRunId=runs[-1]["id"])
    flow.settle()
