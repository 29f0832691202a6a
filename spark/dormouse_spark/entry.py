"""How jobs are started: ``spark-submit bulk_import.py --instance … --job-id …``.

The arguments are only ids. What a bulk import is to read, and what an export is to write, is in
objects of the data bucket, what a compaction is to merge in the state. A job calls S3 and DynamoDB
and nothing else, for EMR Serverless without a VPC reaches no queue: `track_spark` sends what
follows from it, once the run has ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from dormouse.aws.wiring import wire
from dormouse.errors import DormouseError
from dormouse.features.spark.requests import spark_request
from dormouse.messages import CompactionJob, ExportJob, IngestJob
from dormouse.ports import Services
from dormouse.settings import Settings
from dormouse_spark.access import AccessFactory, InstanceAccess
from dormouse_spark.bulk_import import bulk_import
from dormouse_spark.compact import compact
from dormouse_spark.export_rows import export_rows


@dataclass(frozen=True, slots=True)
class JobIds:
    """Which job of which table is to be run, and of which generation the table was."""

    table_id: str
    job_id: str
    generation: int


def run_bulk_import(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run a bulk import; nothing to do if it was settled before."""
    request = spark_request(services, ids.table_id, ids.job_id)
    if request is None or not isinstance(request.job, IngestJob):
        print(f"job {ids.job_id} is not kept: it is done, or its table was deleted")
        return
    bulk_import(spark, open_access, services, request.job)


def run_compact(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run a compaction; nothing to do if it was done before."""
    message = CompactionJob(ids.table_id, ids.generation, ids.job_id)
    compact(spark, open_access, services, message)


def run_export_rows(
    spark: SparkContext, open_access: AccessFactory, services: Services, ids: JobIds
) -> None:
    """Run an export; nothing to do if it has ended."""
    export_rows(spark, open_access, services, ExportJob(ids.table_id, ids.job_id))


Run = Callable[[SparkContext, AccessFactory, Services, JobIds], None]
RUNS: Mapping[str, Run] = {
    "ingest": run_bulk_import,
    "compaction": run_compact,
    "export": run_export_rows,
}
"""What runs the jobs of each kind, as the tracker calls them; `aws.emr` has the file of each."""


def main(kind: str, arguments: Sequence[str] | None = None) -> int:
    """Run a job of one kind by its command line.

    Gives 0 if it is done, 1 if not: the reason is on standard error.
    """
    parser = argparse.ArgumentParser(description="Run a job of Dormouse by spark-submit.")
    parser.add_argument("--instance", required=True)
    parser.add_argument("--table-id", required=True)
    parser.add_argument("--job-id", required=True)
    parser.add_argument("--generation", required=True, type=int)
    given = parser.parse_args(arguments)
    try:
        wiring = wire(Settings.from_environment(instance=given.instance))
        spark = SparkContext.getOrCreate()
        ids = JobIds(given.table_id, given.job_id, given.generation)
        RUNS[kind](spark, InstanceAccess(wiring.settings), wiring.services, ids)
    except DormouseError as error:
        print(f"job {given.job_id}: {error.explanation}", file=sys.stderr)
        return 1
    return 0
