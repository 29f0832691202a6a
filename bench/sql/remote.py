"""Measure one query over messages: all rows of a table of many leaf partitions, by sub-queries, in
an instance in a folder; what it takes and what it would cost.

One process does all sub-queries, one after the other; on AWS they run side by side.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pyarrow as pa

from bench.cost.prices import INVOCATION, REQUESTS, function_dollars
from bench.figures import emit
from bench.measure import peak_bytes, timed
from bench.sql.queries import REMOTE
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


def measure(leaves: int, rows: int, folder: str) -> None:
    with Instance.open(f"{folder}/mice", background=False) as instance:
        made = _make(instance, leaves, rows)
        asked = AnswerQuery(
            query_id="q", table="wide", limits=QueryLimits(seconds=3600), format="parquet"
        )
        began = perf_counter()
        query = ask(instance.services, instance.queues, instance.polling, asked, 3600)
        _, cpu = timed(lambda: query.wait(3600))
        took = perf_counter() - began
        peak_mb = peak_bytes() / 1024**2
        end = load_end(instance.services.results, "q")
        assert end is not None
        assert end.rows == made == rows, (end.rows, made)
        began = perf_counter()
        assert sum(batch.num_rows for batch in instance.asked("q").result()) == rows
        back = perf_counter() - began
        seconds = end.function_milliseconds / 1000
        dollars = (
            end.tasks * function_dollars(seconds / end.tasks, FUNCTION_MB, 512)
            + end.requests * REQUESTS["GetObject"]
            + end.tasks * PUTS_OF_A_TASK * REQUESTS["PutObject"]
            + end.tasks * 2 * INVOCATION
        )
        emit(
            REMOTE,
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
