"""export_rows: all tasks of a heavy export in parallel, and then its manifest.

It is the export_rows stage with another way to run its tasks: each task of the export is a Spark
task, which records its files when it is done. A later run therefore continues where the run before
has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext

from dormouse.errors import DormouseError
from dormouse.features.export import ExportRequest
from dormouse.features.export_rows import export_all, write_task
from dormouse.messages.stages import ExportJob
from dormouse.ports import Services
from dormouse_spark.access import AccessFactory
from dormouse_spark.running import collect_results, run_task


def export_rows(
    spark: SparkContext, open_access: AccessFactory, services: Services, job: ExportJob
) -> None:
    """Run the remaining tasks of an export; nothing if it has ended.
    Raises UnavailableError: a task failed too often; run the job again.
    """

    def write(export: ExportRequest, tasks: Sequence[int]) -> None:
        def task(numbers: Iterable[int]) -> Iterator[bool | DormouseError]:
            (number,) = numbers
            return run_task(lambda: [write_task(open_access(), export, number)])

        if tasks:
            collect_results(spark.parallelize(tasks, len(tasks)).mapPartitions(task))

    export_all(services, job, write)
