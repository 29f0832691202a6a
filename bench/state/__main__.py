"""Measure the state store: what commits cost, how writers share a table, what reads take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.figures import Figures, Goal, quotient, section, short, table, table_of_goals
from bench.runner import Step, benchmark, options

RATES = (1, 50, 500)
"""Commits a second at which a commit is priced, with either store."""
LOADED = "cpu_seconds state_rss_bytes peak_rss_bytes peak_to_state"
TABLES = {
    "commits": (
        "Cost of a commit, by references",
        "bytes_per_commit delta_bytes_per_commit segment_bytes_per_commit "
        "snapshot_bytes_per_commit put_per_commit get_by_writer_per_commit "
        "get_by_maintainer_per_commit list_per_commit dynamo_writes_per_commit wru_per_commit "
        "rru_per_commit dollars_per_million",
    ),
    "cold_load": ("Cold loads, by references", "get bytes_read bytes_to_snapshot rru"),
    "load_alone": ("The snapshot alone, loaded from each store, by references", LOADED),
    "load_worst": ("The worst cold load from each store, by references", LOADED),
    "cold_plan": (
        "Plans of one key by processes that begin, by references",
        "requests rounds bytes_read rru whole",
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
        "busiest_key_read_units_a_second busiest_prefix_gets_a_second "
        "dollars_per_million",
    ),
    "sources": (
        "Remembered sources, by sources",
        "bytes_per_source load_cpu_seconds look_up_microseconds",
    ),
}
"""The table of each part: its title, and the names of its figures."""


def steps(folder: Path, is_quick: bool) -> Iterator[Step]:
    sizes = (10**3, 10**4) if is_quick else (10**3, 10**4, 10**5, 10**6)
    snapshots = {size: f"{folder}/{size}" for size in sizes}
    for given in snapshots.items():
        for function in ("make_state", "measure_state", "measure"):
            yield Step(f"state.commits:{function}", given)
    largest = sizes[-1]
    for kept_in in ("s3", "dynamodb"):
        worst = f"{folder}/worst-{kept_in}"
        made = (largest, snapshots[largest], largest // 20, kept_in, worst)
        yield Step("state.commits:make_worst", made)
        for what in ("alone", "worst"):
            yield Step("state.commits:load", (largest, worst, what))
    for rate in RATES:
        often = (10**4, snapshots[10**4], 510 if is_quick else 4000, 1000 // rate)
        for kept_in, of in (("s3", "log"), ("dynamodb", "items")):
            if (kept_in, rate) != ("s3", 1):  # measured above
                yield Step("state.commits:measure", (*often, kept_in, f"{of}, {rate} a second"))
    yield Step("state.contention:measure", (snapshots[10**4], 60 if is_quick else 300))
    sources = (10**5 if is_quick else 10**6, f"{folder}/sources")
    yield Step("state.commits:make_sources", sources)
    yield Step("state.commits:measure_sources", sources)


def report(figures: Figures) -> Iterator[str]:
    for part, (title, names) in TABLES.items():
        columns = [(of, at) for of in figures.subjects(part) for at in figures.sizes(part, of)]
        head = ["", *(f"{of}, {short(at)}" for of, at in columns)]
        rows = [
            [name, *(short(figures.get(part, of, at, name)) for of, at in columns)]
            for name in names.split()
        ]
        if columns:
            yield section(title, table(head, rows))
    yield section("goals", table_of_goals(goals(figures)))


def goals(figures: Figures) -> Iterator[Goal]:
    """Yield all goals that a benchmark can measure, at the largest size of the run."""
    smallest, *_, largest = figures.sizes("commits", "log") or [0, 0]
    size = short(largest)

    def of(part: str, subject: str, figure: str, at: int = largest) -> float | None:
        return figures.get(part, subject, at, figure)

    log = partial(of, "commits", "log")
    per_commit = log("bytes_per_commit")
    at_ten_thousand = log("bytes_per_commit", 10**4)
    yield Goal(1, f"bytes written a commit at {size} references", per_commit, 7000)
    yield Goal(1, f"those at {size} to those at 10 K", quotient(per_commit, at_ten_thousand), 2.2)
    for number, what, figure, bound in (
        (1, "bytes written to bytes of deltas", "write_amplification", 13),
        (2, "PUT a commit", "put_per_commit", 1.03),
        (2, "DynamoDB writes a commit", "dynamo_writes_per_commit", 1.1),
        (2, "write units a commit", "wru_per_commit", 1.2),
        (2, "S3 reads of a lone writer", "get_by_writer_per_commit", 0),
        (2, "commits of the mix that were refused", "rejected", 0),
        (2, "bytes of a full page", "page_bytes", 1024),
        (2, "most bytes of the head", "head_bytes", 1024),
        (4, "dollars a million commits", "dollars_per_million", 6.5),
    ):
        yield Goal(number, what, log(figure), bound)
    ten = of("commits", "ten in a delta", "dollars_per_million")
    yield Goal(4, "the same, ten in a delta, without maintenance", ten, 0.8)
    yield from _of_contention(figures)
    for count, pages, gets in ((0, 1, 0), (100, 4, 100)):
        warm = partial(figures.get, "warm_read", f"at_{largest}", count)
        new = f"for {count} new deltas" if count else "when nothing is new"
        yield Goal(5, f"pages read {new}", warm("page_reads"), pages)
        yield Goal(5, f"GET {new}", warm("get"), gets)
    yield from _of_processes_that_begin(figures, largest)
    state = partial(of, "memory", "state")
    yield Goal(6, f"memory of the state at {size}", state("state_rss_bytes"), 250e6)
    yield Goal(6, "new objects of a load", state("load_new_container_objects"), 1e4)
    apply = "ingest_assign_and_compact_cpu_microseconds"
    flat = quotient(state(apply), state(apply, smallest))
    yield Goal(6, f"CPU of folding a commit, {size} to {short(smallest)}", flat, 1.5)
    plan = state("plan_of_ten_changed_partitions_cpu_seconds")
    yield Goal(6, f"planning at {size} after ten partitions changed: CPU seconds", plan, 0.1)
    for where, subject in (("stored", "snapshot"), ("in memory", "memory")):
        held = figures.median("sources", subject, "bytes_per_source")
        yield Goal(9, f"bytes a remembered source, {where}", held, 20)


def _of_processes_that_begin(figures: Figures, size: int) -> Iterator[Goal]:
    def of(part: str, subject: str, figure: str) -> float | None:
        return figures.get(part, subject, size, figure)

    cold = f"cold load at {short(size)}, worst"
    for figure, bound in (("bytes_to_snapshot", 1.2), ("get", 150)):
        yield Goal(6, f"{cold}, S3: {figure}", of("cold_load", "s3, worst", figure), bound)
    for kept_in, name in (("s3", "S3"), ("dynamodb", "DynamoDB")):
        loads = (of(f"load_{what}", kept_in, "cpu_seconds") for what in ("worst", "alone"))
        yield Goal(6, f"{cold}, {name}: CPU to the snapshot's", quotient(*loads), 4)
        peak = of("load_worst", kept_in, "peak_to_state")
        yield Goal(6, f"{cold}, {name}: peak of memory to the state's", peak, 1.5)
    for figure, bound in (("bytes_read", 300e3), ("requests", 4)):
        for when in ("best", "worst"):
            what = f"plan of one key, cold, at {short(size)}, S3, {when}: {figure}"
            yield Goal(7, what, of("cold_plan", f"s3, {when}", figure), bound)


def _of_contention(figures: Figures) -> Iterator[Goal]:
    for of, name, least, spread, cost in (
        ("log", "S3", 350, 2.5, None),
        ("items", "DynamoDB", 650, 2, 6),
    ):
        found = partial(figures.get, "contention", of, 32)
        rate = found("commits_per_second")
        yield Goal(3, f"commits/s of 32 writers (simulated), {name}", rate, least, at_least=True)
        yield Goal(3, f"p99 to p50 of 32 writers, {name}", found("p99_to_p50"), spread)
        yield Goal(3, f"appends repeated a commit, {name}", found("retries_per_commit"), 0.1)
        units = found("busiest_key_read_units_a_second")
        yield Goal(3, f"read units a second of the busiest key, {name}", units, 3000)
        if cost:
            price = found("dollars_per_million")
            yield Goal(4, f"dollars a million commits of 32 writers, {name}", price, cost)
    log = partial(figures.get, "contention", "log", 32)
    yield Goal(3, "GET a second of the busiest prefix", log("busiest_prefix_gets_a_second"), 5500)
    yield Goal(3, "DynamoDB writes a commit of 32 writers", log("dynamo_writes_per_commit"), 1.4)
    yield Goal(3, "p99 to p50 until in the log", log("in_log_p99_to_p50"), 3)
    for rate_asked in (50, 200):
        spread_asked = figures.get("contention", "log, arrivals a second", rate_asked, "p99_to_p50")
        yield Goal(3, f"p99 to p50 of {rate_asked} arrivals/s", spread_asked, 3)


if __name__ == "__main__":
    asked = options(__doc__, "small tables and short contests")
    sys.exit(benchmark("bench-state", asked.parse_args(), steps, report))
