"""Measure the state store: what commits cost, how writers share a table, what reads take.

Run by ``make bench-state``; ``ARGS=--quick`` takes about a minute. Prints a JSON line for each
figure on standard output, and tables for people on standard error when all is done.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, Figures, parsed, short, show_table
from goals import HEAD
from state_goals import goals

HERE = Path(__file__).parent
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
SOURCES = ("bytes_per_source", "load_cpu_seconds", "look_up_microseconds")
MEMORY = (
    "snapshot_bytes",
    "load_columns_cpu_seconds",
    "load_objects_cpu_seconds",
    "state_columns_rss_bytes",
    "state_objects_rss_bytes",
    "load_columns_new_container_objects",
    "references_of_a_partition_cpu_microseconds",
    "plan_of_a_point_query_cpu_microseconds",
    "ingest_assign_and_compact_cpu_microseconds",
)
TABLES = (
    ("Cost of a commit, by references", "commits", COMMITS),
    ("Cold loads, by references", "cold_load", LOADS),
    ("Memory and CPU, by references", "memory", MEMORY),
    (
        "Many writers, simulated latencies, by writers or arrivals a second",
        "contention",
        CONTENTION,
    ),
    ("Many threads on a local folder, by threads", "formats", FORMATS),
    ("Remembered sources, by sources", "sources", SOURCES),
)


def run(script: str, *arguments: str) -> Iterator[Figure]:
    """Run a script here; pass its lines on, and give them as figures."""
    began = time.monotonic()
    command = [sys.executable, str(HERE / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            yield parsed(line)
    if process.returncode:
        sys.exit(f"{script} {' '.join(arguments)} ended with {process.returncode}")
    print(f"{script} took {time.monotonic() - began:.0f} s", file=sys.stderr)


def measured(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Run all parts, one process at a time."""
    sizes = (10**3, 10**4) if quick else (10**3, 10**4, 10**5, 10**6)
    snapshots = {size: str(folder / str(size)) for size in sizes}
    for size, path in snapshots.items():
        yield from run("state_memory.py", str(size), path)
        yield from run("state_commits.py", str(size), path)
    often = ("--interval-ms", "20", "--least-commits", "510" if quick else "4000")
    ten_thousand = (str(10**4), snapshots[10**4])
    yield from run("state_commits.py", *ten_thousand, *often, "--only-commits", "log, 50 a second")
    commits = "60" if quick else "300"
    yield from run("state_contention.py", snapshots[10**4], "--commits", commits)
    short_of_time = ("--seconds", "1", "--writers", "1", "32") if quick else ()
    yield from run("table_formats.py", *short_of_time)
    yield from run("state_sources.py", str(10**5 if quick else 10**6))


def show(figures: Figures) -> None:
    """Print the tables."""
    for title, part, names in TABLES:
        columns = [(of, at) for of in figures.subjects(part) for at in figures.sizes(part, of)]
        head = ["", *(f"{of}, {short(at)}" for of, at in columns)]
        rows = [
            [name, *(short(figures.get(part, of, at, name)) for of, at in columns)]
            for name in names
        ]
        show_table(title, head, rows)
    show_table("Goals", HEAD, [goal.row() for goal in goals(figures)])


def main() -> None:
    """Measure everything and show it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="small tables and short contests")
    given = asked.parse_args()
    with TemporaryDirectory() as folder:
        figures = Figures(measured(Path(folder), quick=given.quick))
    show(figures)


if __name__ == "__main__":
    main()
