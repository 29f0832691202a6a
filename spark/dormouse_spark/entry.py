"""The command line of the jobs: ``spark-submit bulk_import.py --instance … --job-id …``.

The arguments are only ids. The sources of a bulk import and the task list of an export are in
objects of the data bucket; the inputs of a compaction are in the state. A job calls only S3 and
DynamoDB, because EMR Serverless without a VPC cannot reach the queues: `track_spark` sends the
messages after the run has ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import SparkContext

from dormouse.errors import DormouseError
from dormouse.features.query_runs import compute
from dormouse.features.spark import load_spark_request
from dormouse.messages.stages import CompactionJob, ExportJob, IngestJob, StatementJob
from dormouse.ports import Services
from dormouse.settings import Settings
from dormouse_spark.access import AccessFactory, opened
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from dormouse_spark.export_rows import export_rows
from dormouse_spark.statement import write_statement


@dataclass(frozen=True, slots=True)
class JobIds:
    """The job to run, its table, and the generation of the table for which it was made."""

    table_id: str
    job_id: str
    generation: int


def run_bulk_import(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run a bulk import, unless it is done already."""
    if isinstance(job := _asked_job(services, ids), IngestJob):
        bulk_import(spark, open_access, services, job)


def run_compact(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run a compaction, unless it is done already."""
    message = CompactionJob(ids.table_id, ids.generation, ids.job_id)
    compact(spark, open_access, services, message)


def run_export_rows(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run an export, unless it has ended."""
    export_rows(spark, open_access, services, ExportJob(ids.table_id, ids.job_id))


def run_statement(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Compute a statement, unless its query has ended."""
    if isinstance(job := _asked_job(services, ids), StatementJob):
        compute(services, job, partial(write_statement, spark, open_access, services))


def _asked_job(services: Services, ids: JobIds) -> object:
    """Return the job of a request; None if that is gone, and say so."""
    request = load_spark_request(services, ids.table_id, ids.job_id)
    if request is None:
        print(f"job {ids.job_id} has no request any more: it is done, or its table was deleted")
        return None
    return request.job


Run = Callable[[SparkContext, AccessFactory, Services, JobIds], None]
RUNS: Mapping[str, Run] = {
    "ingest": run_bulk_import,
    "compaction": run_compact,
    "export": run_export_rows,
    "query": run_statement,
}
"""The function for each kind of job, by the tracker's names; `aws.emr` maps the kinds to files."""


def main(kind: str, arguments: Sequence[str] | None = None) -> int:
    """Run a job of one kind by its command line.

    Return 0 if it is done; otherwise print the reason to standard error and return 1.
    """
    parser = argparse.ArgumentParser(description="Run a job of Dormouse by spark-submit.")
    parser.add_argument("--instance", required=True)
    parser.add_argument("--table-id", required=True)
    parser.add_argument("--job-id", required=True)
    parser.add_argument("--generation", required=True, type=int)
    parser.add_argument("--attempt", default=1, type=int, help="the number of this run of the job")
    options = parser.parse_args(arguments)
    try:
        with opened(Settings.from_environment(instance=options.instance)) as (services, access):
            spark = SparkContext.getOrCreate()
            ids = JobIds(options.table_id, options.job_id, options.generation)
            RUNS[kind](spark, access, services, ids)
    except DormouseError as error:
        reason = f"{error.explanation} (attempt {options.attempt})"
        print(f"job {options.job_id}: {reason}", file=sys.stderr)
        return 1
    return 0
