"""The goals of the state store, each held against what was measured; used by `state_bench`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.common.figures import Figures, short
from bench.common.goals import Goal, ratio

PLANNED = ("after_a_snapshot", "before_a_snapshot", "before_an_increment")
"""When plans of one key by processes that begin are measured; the first is the best."""


def goals(figures: Figures) -> list[Goal]:
    """Return all goals that a benchmark can measure, at the largest size of the run."""
    sizes = figures.sizes("commits", "log")
    largest = sizes[-1] if sizes else 0
    return [
        *_of_commits(figures, largest),
        *_of_contention(figures),
        *_of_reads(figures, largest),
        *_of_memory(figures, largest, sizes[0] if sizes else 0),
    ]


def _of_commits(figures: Figures, largest: int) -> Iterator[Goal]:
    def commit(figure: str, at: int = largest, of: str = "log") -> float | None:
        return figures.get("commits", of, at, figure)

    size = short(largest)
    per_commit, at_ten_thousand = commit("bytes_per_commit"), commit("bytes_per_commit", 10**4)
    yield Goal(1, f"bytes written a commit at {size} references", per_commit, 7000)
    yield Goal(1, f"those at {size} to those at 10 K", ratio(per_commit, at_ten_thousand), 2.2)
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

    rewrite = figures.get("contention", "full rewrite", 32, "commits_per_second")
    rate = log("commits_per_second")
    for of, name, least, spread in (("log", "S3", 350, 2.5), ("items", "DynamoDB", 650, 2)):
        found = log("commits_per_second", of)
        yield Goal(3, f"commits/s of 32 writers (simulated), {name}", found, least, at_least=True)
        yield Goal(3, f"p99 to p50 of 32 writers, {name}", log("p99_to_p50", of), spread)
        yield Goal(3, f"appends repeated a commit, {name}", log("retries_per_commit", of), 0.1)
        throttled = log("throttled_per_commit", of)
        yield Goal(3, f"requests throttled a commit of 32 writers, {name}", throttled, 0)
    price = log("dollars_per_million", "items")
    yield Goal(4, "dollars a million commits of 32 writers, DynamoDB", price, 6)
    yield Goal(3, "those to a full rewrite's", ratio(rate, rewrite), 20, at_least=True)
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
    alone = ratio(cold("cpu_seconds"), after)
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
    flat = ratio(state(apply), state(apply, smallest))
    yield Goal(6, f"CPU of folding a commit, {size} to {short(smallest)}", flat, 1.5)
    plan = state("plan_of_ten_changed_partitions_cpu_seconds")
    yield Goal(6, f"planning at {size} after ten partitions changed: CPU seconds", plan, 0.1)
    for where, of in (("stored", "snapshot"), ("in memory", "memory")):
        counts = figures.sizes("sources", of)
        held = figures.get("sources", of, counts[-1], "bytes_per_source") if counts else None
        yield Goal(9, f"bytes a remembered source, {where}", held, 20)
