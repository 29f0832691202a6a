"""Run a stage on a local S3 with the memory, the cores and the CPU time that a function has.

Memory for sorting and merging comes from the environment.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from bench.cost.prices import request_dollars
from bench.cost.quota import limited
from bench.rows import instance as rows_instance
from bench.rows.data import SCHEMAS, expected_of
from bench.rows.function import Function
from bench.rows.stages import report, shards_of, slowness, work_on_s3
from bench.rows.work import Work
from bench.s3.process import DATA, LocalS3, local_s3
from dormouse import settings
from dormouse.aws.storage import S3Storage

DELAY_MS = 30
"""What S3 takes to answer, about."""
RESULTS = "results"


def export(s3: LocalS3, kind: str, table: Path) -> Work:
    """Return the export of all rows of a table."""
    from dormouse.features.administration import administer
    from dormouse.features.export_rows import export_rows
    from dormouse.messages.requests import ExportRows
    from dormouse.messages.stages import ExportTask

    folder = rows_instance.linked(shards_of(table), s3.folder / DATA)
    scratch, memory = s3.folder.parent / "scratch", settings.memory_bytes()
    maker = rows_instance.services(folder, scratch, memory, seed=2)
    rows_instance.reopened(maker, SCHEMAS[kind])
    (s3.folder / RESULTS).mkdir()
    given = rows_instance.fresh(maker, s3.storage, scratch, memory)
    given = replace(given, results=S3Storage(s3.client(), RESULTS))
    begun = administer(given, ExportRows("export", rows_instance.TABLE))
    waiting = [sent.message for sent in begun]

    def work() -> None:
        while waiting:
            task = waiting.pop()
            assert isinstance(task, ExportTask), task
            waiting.extend(sent.message for sent in export_rows(given, task))

    s3.begin()
    return work


def requests(s3: LocalS3) -> dict[str, float]:
    """Return how often each operation was asked for.

    Raises:
        KeyError: one has no price: it must not count as free.
    """
    counts = {name: count for name, count in s3.counts().items() if name[0].isupper()}
    request_dollars(counts)
    return counts


def measure(
    part: str, stage: str, number: int, kind: str, inputs: str, out: str, memory_mb: int
) -> None:
    given, source = Function({}, memory_mb), Path(inputs)
    with local_s3(Path(out) / "s3", slowness(DELAY_MS)) as s3:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])  # not the server's
        is_export = stage == "export"
        work = export(s3, kind, source) if is_export else work_on_s3(s3, stage, kind, source)
        expected, written = expected_of(source), s3.folder / (RESULTS if is_export else DATA)

        def work_as_a_function() -> None:
            with limited(given.cpu_share):
                work()

        def others() -> dict[str, float]:
            return {**requests(s3), "memory_mb": memory_mb, "rows": expected.rows}

        report(
            part, f"{memory_mb:,} MB", number, work_as_a_function, expected, written, others=others
        )
