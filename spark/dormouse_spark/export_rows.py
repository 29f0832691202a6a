"""export_rows: all tasks of a heavy export side by side, and then its end.

It is the export_rows stage with another way to write: each task of the export is one of Spark's,
which keeps what it wrote when it is done. So a run goes on where the one before it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext

from dormouse.errors import DormouseError
from dormouse.features.export.export import Export
from dormouse.features.export.export_rows import export_all
from dormouse.features.export.export_task import write_task
from dormouse.messages import ExportJob
from dormouse.ports import Services
from dormouse_spark.access import AccessFactory
from dormouse_spark.running import collect_results, run_task


def export_rows(
    spark: SparkContext, open_access: AccessFactory, services: Services, job: ExportJob
) -> None:
    """Do what is left of an export; nothing if it has ended.

    Raises:
        UnavailableError: Spark gave a task up; run the job again.
    """

    def write(export: Export, tasks: Sequence[int]) -> None:
        def task(numbers: Iterable[int]) -> Iterator[bool | DormouseError]:
            (number,) = numbers
            return run_task(lambda: [write_task(open_access(), export, number)])

        if tasks:
            collect_results(spark.parallelize(tasks, len(tasks)).mapPartitions(task))

    export_all(services, job, write)
