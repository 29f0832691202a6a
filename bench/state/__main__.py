"""Measure the state store: what commits cost, how writers share a table, what reads take.

Run by ``make bench-state``, in half an hour to an hour and a half; ``ARGS=--quick`` takes some
minutes. Tables go to standard output, with ``--page FILE`` also between the marks of a page;
``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench.common.figures import Figures, short, table
from bench.common.goals import HEAD
from bench.common.runner import Step, benchmark, options
from bench.state.goals import goals

COMMITS = (
    "bytes_per_commit",
    "delta_bytes_per_commit",
    "segment_bytes_per_commit",
    "snapshot_bytes_per_commit",
    "put_per_commit",
    "get_by_writer_per_commit",
    "get_by_maintainer_per_commit",
    "list_per_commit",
    "dynamo_writes_per_commit",
    "wru_per_commit",
    "rru_per_commit",
    "dollars_per_million",
    "times_less_than_rewrite",
)
CONTENTION = (
    "commits_per_second",
    "retries_per_commit",
    "in_log_p50_ms",
    "in_log_p99_ms",
    "p50_ms",
    "p99_ms",
    "put_per_commit",
    "get_per_commit",
    "dynamo_writes_per_commit",
    "rru_per_commit",
    "throttled_per_commit",
    "busiest_key_read_units_a_second",
    "busiest_prefix_gets_a_second",
    "dollars_per_million",
)
FORMATS = (
    "commits_per_second",
    "retries_per_commit",
    "p50_ms",
    "p99_ms",
    "metadata_bytes_per_commit",
)
LOADS = ("get", "bytes_read", "bytes_to_snapshot", "rru", "cpu_seconds")
WORST = ("cpu_seconds", "cpu_to_snapshot", "state_rss_bytes", "peak_rss_bytes", "peak_to_state")
RATES = (1, 50, 500)
"""Commits a second at which a commit is priced, with either store."""
PLANS = ("requests", "bytes_read", "rru", "cpu_seconds", "whole")
SOURCES = ("bytes_per_source", "load_cpu_seconds", "look_up_microseconds")
MEMORY = (
    "snapshot_bytes",
    "load_cpu_seconds",
    "state_rss_bytes",
    "load_new_container_objects",
    "references_of_a_partition_cpu_microseconds",
    "plan_of_a_point_query_cpu_microseconds",
    "ingest_assign_and_compact_cpu_microseconds",
    "plan_compactions_cpu_seconds",
    "plan_of_ten_changed_partitions_cpu_seconds",
)
TABLES = (
    ("Cost of a commit, by references", "commits", COMMITS),
    ("Cold loads, by references", "cold_load", LOADS),
    ("The snapshot alone, loaded from each store, by references", "load_alone", WORST),
    ("The worst cold load from each store, by references", "load_worst", WORST),
    ("Plans of one key by processes that begin, by references", "cold_plan", PLANS),
    ("Memory and CPU, by references", "memory", MEMORY),
    (
        "Many writers, simulated latencies, by writers or arrivals a second",
        "contention",
        CONTENTION,
    ),
    ("Many threads on a local folder, by threads", "formats", FORMATS),
    ("Remembered sources, by sources", "sources", SOURCES),
)


def steps(folder: Path, *, quick: bool) -> Iterator[Step]:
    """Return all measurements, by the size of the table."""
    sizes = (10**3, 10**4) if quick else (10**3, 10**4, 10**5, 10**6)
    snapshots = {size: str(folder / str(size)) for size in sizes}
    for size, path in snapshots.items():
        yield Step("state.memory", (str(size), path))
        yield Step("state.commits", (str(size), path))
    largest = sizes[-1]
    yield Step("state.loading", (str(largest), snapshots[largest], str(largest // 20)))
    least = "510" if quick else "4000"
    ten_thousand = (str(10**4), snapshots[10**4])
    for rate in RATES:
        often = ("--interval-ms", str(1000 // rate), "--least-commits", least)
        for kept_in, of in (("s3", "log"), ("dynamodb", "items")):
            if (kept_in, rate) != ("s3", 1):  # measured above
                only = ("--store", kept_in, "--only-commits", f"{of}, {rate} a second")
                yield Step("state.commits", (*ten_thousand, *often, *only))
    commits = "60" if quick else "300"
    yield Step("state.contention", (snapshots[10**4], "--commits", commits))
    contest = ("--seconds", "1", "--writers", "1", "32") if quick else ()
    yield Step("state.table_formats", contest)
    yield Step("state.sources", (str(10**5 if quick else 10**6),))


def report(figures: Figures) -> str:
    """Return the tables, and the goals, in Markdown."""
    shown = []
    for title, part, names in TABLES:
        columns = [(of, at) for of in figures.subjects(part) for at in figures.sizes(part, of)]
        head = ["", *(f"{of}, {short(at)}" for of, at in columns)]
        rows = [
            [name, *(short(figures.get(part, of, at, name)) for of, at in columns)]
            for name in names
        ]
        shown.append(f"### {title}\n\n{table(head, rows)}")
    shown.append(f"### Goals\n\n{table(HEAD, [goal.row() for goal in goals(figures)])}")
    return "\n\n".join(shown)


def main() -> int:
    """Measure everything and show it; return 1 if something failed."""
    given = options(__doc__, "small tables and short contests").parse_args()
    return benchmark("bench-state", given, lambda f: [*steps(f, quick=given.quick)], report)


if __name__ == "__main__":
    sys.exit(main())
