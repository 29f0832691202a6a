"""Measure the state store: what commits cost, how writers share a table, what reads take.

Run by ``make bench-state``, in half an hour to an hour and a half; ``ARGS=--quick`` takes some
minutes. Tables go to standard output, with ``--page FILE`` also between the marks of a page;
``--json FILE`` keeps all figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.figures import Figures, Goal, quotient, section, short, table, table_of_goals
from bench.runner import Step, benchmark, options

RATES = (1, 50, 500)
"""Commits a second at which a commit is priced, with either store."""
LOADED = "cpu_seconds cpu_to_snapshot state_rss_bytes peak_rss_bytes peak_to_state"
TABLES = {
    "commits": (
        "Cost of a commit, by references",
        "bytes_per_commit delta_bytes_per_commit segment_bytes_per_commit "
        "snapshot_bytes_per_commit put_per_commit get_by_writer_per_commit "
        "get_by_maintainer_per_commit list_per_commit dynamo_writes_per_commit wru_per_commit "
        "rru_per_commit dollars_per_million times_less_than_rewrite",
    ),
    "cold_load": (
        "Cold loads, by references",
        "get bytes_read bytes_to_snapshot rru cpu_seconds",
    ),
    "load_alone": ("The snapshot alone, loaded from each store, by references", LOADED),
    "load_worst": ("The worst cold load from each store, by references", LOADED),
    "cold_plan": (
        "Plans of one key by processes that begin, by references",
        "requests bytes_read rru cpu_seconds whole",
    ),
    "memory": (
        "Memory and CPU, by references",
        "snapshot_bytes load_cpu_seconds state_rss_bytes load_new_container_objects "
        "references_of_a_partition_cpu_microseconds plan_of_a_point_query_cpu_microseconds "
        "ingest_assign_and_compact_cpu_microseconds plan_compactions_cpu_seconds "
        "plan_of_ten_changed_partitions_cpu_seconds",
    ),
    "contention": (
        "Many writers, simulated latencies, by writers or arrivals a second",
        "commits_per_second retries_per_commit in_log_p50_ms in_log_p99_ms p50_ms p99_ms "
        "put_per_commit get_per_commit dynamo_writes_per_commit rru_per_commit "
        "throttled_per_commit busiest_key_read_units_a_second busiest_prefix_gets_a_second "
        "dollars_per_million",
    ),
    "formats": (
        "Many threads on a local folder, by threads",
        "commits_per_second retries_per_commit p50_ms p99_ms metadata_bytes_per_commit",
    ),
    "sources": (
        "Remembered sources, by sources",
        "bytes_per_source load_cpu_seconds look_up_microseconds",
    ),
}
"""The table of each part: its title, and the names of its figures."""
PLANNED = ("after_a_snapshot", "before_a_snapshot", "before_an_increment")
"""When plans of one key by processes that begin are measured; the first is the best."""


def steps(folder: Path, *, quick: bool) -> Iterator[Step]:
    """Yield all measurements, by the size of the table."""
    sizes = (10**3, 10**4) if quick else (10**3, 10**4, 10**5, 10**6)
    snapshots = {size: f"{folder}/{size}" for size in sizes}
    for given in snapshots.items():
        yield Step("state.memory:measure", given)
        yield Step("state.commits:measure", given)
    largest = sizes[-1]
    loads = (largest, snapshots[largest], largest // 20)
    yield Step("state.commits:measure_loads", loads)
    for rate in RATES:
        often = (10**4, snapshots[10**4], 510 if quick else 4000, 1000 // rate)
        for kept_in, of in (("s3", "log"), ("dynamodb", "items")):
            if (kept_in, rate) != ("s3", 1):  # measured above
                yield Step("state.commits:measure", (*often, kept_in, f"{of}, {rate} a second"))
    yield Step("state.contention:measure", (snapshots[10**4], 60 if quick else 300))
    yield Step("state.table_formats:measure_all", (1, [1, 32]) if quick else (4, [1, 4, 16, 32]))
    yield Step("state.memory:measure_sources", (10**5 if quick else 10**6,))


def report(figures: Figures) -> Iterator[str]:
    """Yield the tables, and the goals."""
    for part, (title, names) in TABLES.items():
        columns = [(of, at) for of in figures.subjects(part) for at in figures.sizes(part, of)]
        head = ["", *(f"{of}, {short(at)}" for of, at in columns)]
        rows = [
            [name, *(short(figures.get(part, of, at, name)) for of, at in columns)]
            for name in names.split()
        ]
        yield section(title, table(head, rows))
    yield section("goals", table_of_goals(goals(figures)))


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals that a benchmark can measure, at the largest size of the run."""
    sizes = figures.sizes("commits", "log") or [0]
    yield from _of_commits(figures, sizes[-1])
    yield from _of_contention(figures)
    yield from _of_reads(figures, sizes[-1])
    yield from _of_memory(figures, sizes[-1], sizes[0])


def _of_commits(figures: Figures, largest: int) -> Iterator[Goal]:
    def commit(figure: str, at: int = largest, of: str = "log") -> float | None:
        return figures.get("commits", of, at, figure)

    size = short(largest)
    per_commit, at_ten_thousand = commit("bytes_per_commit"), commit("bytes_per_commit", 10**4)
    yield Goal(1, f"bytes written a commit at {size} references", per_commit, 7000)
    yield Goal(1, f"those at {size} to those at 10 K", quotient(per_commit, at_ten_thousand), 2.2)
    yield Goal(1, "bytes written to bytes of deltas", commit("write_amplification"), 13)
    yield Goal(2, "PUT a commit", commit("put_per_commit"), 1.03)
    yield Goal(2, "DynamoDB writes a commit", commit("dynamo_writes_per_commit"), 1.1)
    yield Goal(2, "write units a commit", commit("wru_per_commit"), 1.2)
    yield Goal(2, "S3 reads of a lone writer", commit("get_by_writer_per_commit"), 0)
    yield Goal(2, "commits of the mix that were refused", commit("rejected"), 0)
    yield Goal(2, "bytes of a full page", commit("page_bytes"), 1024)
    yield Goal(2, "most bytes of the head", commit("head_bytes"), 1024)
    yield Goal(4, "dollars a million commits", commit("dollars_per_million"), 6.5)
    ten = commit("dollars_per_million", of="ten in a delta")
    yield Goal(4, "the same, ten in a delta, without maintenance", ten, 0.8)


def _of_contention(figures: Figures) -> Iterator[Goal]:
    def log(figure: str, of: str = "log") -> float | None:
        return figures.get("contention", of, 32, figure)

    for of, name, least, spread in (("log", "S3", 350, 2.5), ("items", "DynamoDB", 650, 2)):
        found = log("commits_per_second", of)
        yield Goal(3, f"commits/s of 32 writers (simulated), {name}", found, least, at_least=True)
        yield Goal(3, f"p99 to p50 of 32 writers, {name}", log("p99_to_p50", of), spread)
        yield Goal(3, f"appends repeated a commit, {name}", log("retries_per_commit", of), 0.1)
        throttled = log("throttled_per_commit", of)
        yield Goal(3, f"requests throttled a commit of 32 writers, {name}", throttled, 0)
    price = log("dollars_per_million", "items")
    yield Goal(4, "dollars a million commits of 32 writers, DynamoDB", price, 6)
    yield Goal(3, "DynamoDB writes a commit of 32 writers", log("dynamo_writes_per_commit"), 1.4)
    yield Goal(3, "p99 to p50 until in the log", log("in_log_p99_to_p50"), 3)
    for rate_asked in (50, 200):
        spread = figures.get("contention", "log, arrivals a second", rate_asked, "p99_to_p50")
        yield Goal(3, f"p99 to p50 of {rate_asked} arrivals/s", spread, 3)


def _of_reads(figures: Figures, largest: int) -> Iterator[Goal]:
    def warm(count: int, figure: str) -> float | None:
        return figures.get("warm_read", f"at_{largest}", count, figure)

    def cold(figure: str) -> float | None:
        times = ("before_a_snapshot", "before_an_increment")
        found = [figures.get("cold_load", when, largest, figure) for when in times]
        return max((value for value in found if value is not None), default=None)

    yield Goal(5, "pages read when nothing is new", warm(0, "page_reads"), 1)
    yield Goal(5, "GET when nothing is new", warm(0, "get"), 0)
    yield Goal(5, "pages read for 100 new deltas", warm(100, "page_reads"), 4)
    yield Goal(5, "GET for 100 new deltas", warm(100, "get"), 100)
    size = short(largest)
    yield Goal(
        6, f"cold load at {size}, worst: bytes to the snapshot", cold("bytes_to_snapshot"), 1.2
    )
    yield Goal(6, f"cold load at {size}, worst: GET", cold("get"), 150)
    after = figures.get("cold_load", "after_a_snapshot", largest, "cpu_seconds")
    alone = quotient(cold("cpu_seconds"), after)
    yield Goal(6, f"cold load at {size}, worst: CPU to that of the snapshot alone", alone, 4)
    for kept_in, name in (("s3", "S3"), ("dynamodb", "DynamoDB")):
        for of, figure, most in (
            ("CPU to the snapshot's", "cpu_to_snapshot", 4),
            ("peak of memory to the state's", "peak_to_state", 1.5),
        ):
            found = figures.get("load_worst", kept_in, largest, figure)
            yield Goal(6, f"cold load at {size}, worst, {name}: {of}", found, most)
    for name, most in (("bytes_read", 300e3), ("requests", 4)):
        found = [figures.get("cold_plan", when, largest, name) for when in PLANNED]
        worst = max((value for value in found if value is not None), default=None)
        best = found[0]
        yield Goal(7, f"plan of one key, cold, at {size}, best: {name}", best, most)
        yield Goal(7, f"plan of one key, cold, at {size}, worst: {name}", worst, most)


def _of_memory(figures: Figures, largest: int, smallest: int) -> Iterator[Goal]:
    def state(figure: str, at: int = largest) -> float | None:
        return figures.get("memory", "state", at, figure)

    apply = "ingest_assign_and_compact_cpu_microseconds"
    size = short(largest)
    yield Goal(6, f"memory of the state at {size}", state("state_rss_bytes"), 250e6)
    made = state("load_new_container_objects")
    yield Goal(6, "new objects of a load", made, 1e4)
    flat = quotient(state(apply), state(apply, smallest))
    yield Goal(6, f"CPU of folding a commit, {size} to {short(smallest)}", flat, 1.5)
    plan = state("plan_of_ten_changed_partitions_cpu_seconds")
    yield Goal(6, f"planning at {size} after ten partitions changed: CPU seconds", plan, 0.1)
    for where, of in (("stored", "snapshot"), ("in memory", "memory")):
        counts = figures.sizes("sources", of)
        held = figures.get("sources", of, counts[-1], "bytes_per_source") if counts else None
        yield Goal(9, f"bytes a remembered source, {where}", held, 20)


def main() -> int:
    """Measure everything and show it; return 1 if something failed."""
    given = options(__doc__, "small tables and short contests").parse_args()
    return benchmark("bench-state", given, partial(steps, quick=given.quick), report)


if __name__ == "__main__":
    sys.exit(main())
