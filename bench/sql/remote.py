"""Measure one query over messages: ``remote LEAVES ROWS FOLDER``: all rows of a table of so many
leaf partitions, by sub-queries, in an instance in a folder; what it takes and what it would cost.

One process does all sub-queries, one after the other; on AWS they run side by side.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from bench.common.figures import emit
from bench.cost.prices import INVOCATION, REQUESTS, function_dollars
from bench.sql.report import PART
from dormouse.client.instance import Instance
from dormouse.client.queries import ask
from dormouse.features.queries import load_end
from dormouse.messages.stages import AnswerQuery, QueryLimits

FUNCTION_MB = 1769
ATHENA_DOLLARS_PER_TB = 5.0
"""What Athena asks for a TB that a query scans; from memory, not compared with a page."""
TB = 10**12
FILE_ROWS = 1_000_000
PUTS_OF_A_TASK = 5
"""The plan, the mark of the attempt, the end, and two of a file: begun and completed."""


def main(leaves: int, rows: int, folder: Path) -> None:
    """Make the table, ask the query, read its result back, and print figures."""
    with Instance.open(folder / "mice", background=False) as instance:
        made = _make(instance, leaves, rows)
        asked = AnswerQuery(
            query_id="q", table="wide", limits=QueryLimits(seconds=3600), format="parquet"
        )
        took, cpu = _timed(
            lambda: ask(instance.services, instance.queues, instance.polling, asked, 3600).wait(
                3600
            )
        )
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        end = load_end(instance.services.results, "q")
        assert end is not None
        assert end.rows == made == rows, (end.rows, made)
        back, _ = _timed(lambda: _read(instance))
        seconds = end.function_milliseconds / 1000
        dollars = (
            end.tasks * function_dollars(seconds / end.tasks, FUNCTION_MB, 512)
            + end.requests * REQUESTS["GetObject"]
            + end.tasks * PUTS_OF_A_TASK * REQUESTS["PutObject"]
            + end.tasks * 2 * INVOCATION
        )
        emit(
            PART,
            "dormouse",
            rows,
            leaves=leaves,
            sub_queries=end.tasks,
            result_mb=end.size_bytes / 1e6,
            seconds=took,
            cpu_seconds=cpu,
            read_back_seconds=back,
            peak_mb=peak_mb,
            function_seconds=seconds,
            read_requests=end.requests,
            read_mb=end.read_bytes / 1e6,
            microdollars=dollars * 1e6,
            athena_microdollars=end.read_bytes / TB * ATHENA_DOLLARS_PER_TB * 1e6,
        )


def _make(instance: Instance, leaves: int, rows: int) -> int:
    """Make a table of wide rows, whose leaves have as many rows each; return how many it has."""
    splits = [rows * part // leaves for part in range(1, leaves)]
    table = instance.create_table(
        "wide",
        "id:long, a:double, b:double, c:bytes",
        {"query_cut_bytes": 1, "query_task_bytes": 64 * 1024 * 1024},
        row_keys=["id"],
        split_points=splits,
    )
    random = np.random.default_rng(7)
    for start in range(0, rows, FILE_ROWS):
        count = min(FILE_ROWS, rows - start)
        noise = random.bytes(64 * count)  # which does not compress
        cells = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(64), count, [None, pa.py_buffer(noise)]
        )
        table.ingest(
            pa.table(
                {
                    "id": np.arange(start, start + count),
                    "a": random.uniform(size=count),
                    "b": random.uniform(size=count),
                    "c": cells.cast(pa.binary()),
                }
            )
        )
    instance.wait(timeout_seconds=3600)
    return table.count()


def _read(instance: Instance) -> int:
    return sum(batch.num_rows for batch in instance.asked("q").result())


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds that something takes."""
    began, used = perf_counter(), _cpu()
    run()
    return perf_counter() - began, _cpu() - used


def _cpu() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
