"""Run a stage on a local S3 with the memory, the cores and the CPU time that a function has.

Run as ``python -m bench.cost.stages PART STAGE ROUND KIND INPUTS OUT MEMORY_MB``; prints a JSON
line for each figure. Memory for sorting and merging comes from the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench.cost.prices import priced
from bench.cost.quota import limited
from bench.rows import instance as rows_instance
from bench.rows import on_s3
from bench.rows.compaction import Work
from bench.rows.data import SCHEMAS
from bench.rows.digest import ALL, DIGESTS, Digest, saved
from bench.rows.function import Function
from bench.rows.output import report
from bench.s3.process import DATA, LocalS3, local_s3
from dormouse import settings
from dormouse.aws.storage import S3Storage

DELAY_MS = 30
"""What S3 takes to answer, about."""
RESULTS = "results"


def export(s3: LocalS3, kind: str, table: Path) -> tuple[Work, Digest]:
    """Return the export of all rows of a table, and the digest of these."""
    from dormouse.features.administration import administer
    from dormouse.features.export_rows import export_rows
    from dormouse.messages.requests import ExportRows
    from dormouse.messages.stages import ExportTask

    folder = rows_instance.linked(
        sorted(table.resolve().glob("*/data/*.parquet")), s3.folder / DATA
    )
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

    return work, saved(table.parent / DIGESTS)[ALL]


STAGES: dict[str, tuple[Callable[[LocalS3, str, Path], tuple[Work, Digest]], str]] = {
    "compaction": (on_s3.compaction, DATA),
    "ingest": (on_s3.ingest, DATA),
    "export": (export, RESULTS),
}
"""What makes the work of each, and the bucket of its output."""


def requests(s3: LocalS3) -> dict[str, float]:
    """Return how often each operation was asked for.

    Raises:
        KeyError: one has no price: it must not count as free.
    """
    counts = s3.counts()
    return {name: counts[name] for name in priced(name for name in counts if name[0].isupper())}


def main() -> None:
    """Measure one stage once."""
    part, stage, number, kind, inputs, out, memory_mb = sys.argv[1:]
    given = Function({}, int(memory_mb))
    make, written_to = STAGES[stage]
    with local_s3(Path(out) / "s3", on_s3.slowness(DELAY_MS, 0)) as s3:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])  # not the server's
        work, expected = make(s3, kind, Path(inputs))
        next(s3.storage.folders(), None)  # what the SDK does once is no part of it
        s3.counts()

        def work_as_a_function() -> None:
            with limited(given.cpu_share):
                work()

        report(
            part,
            f"{given.memory_mb:,} MB",
            int(number),
            work_as_a_function,
            expected,
            s3.folder / written_to,
            in_order=True,
            others=lambda: {
                **requests(s3),
                "memory_mb": given.memory_mb,
                "rows": expected.rows,
            },
        )


if __name__ == "__main__":
    main()
