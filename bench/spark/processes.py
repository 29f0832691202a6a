"""Measure a job that runs in many processes: this one, Spark's JVM, and its Python workers.

CPU time and memory are those of the whole tree of processes; what a job moved through shuffles is
from Spark's own log of events.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import tree, tree_cpu_seconds

LOOKS_APART_SECONDS = 0.1


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Do `work`; return its seconds, CPU seconds, and the peak of resident memory of all processes.

    Pages that processes share count for each, so the peak is an upper bound.
    """
    done = threading.Event()
    peaks: list[int] = []

    def watch() -> None:
        while not done.wait(LOOKS_APART_SECONDS):
            peaks.append(_resident_bytes())

    watcher = threading.Thread(target=watch)
    cpu, began = tree_cpu_seconds(os.getpid()), time.perf_counter()
    watcher.start()
    try:
        work()
    finally:
        seconds = time.perf_counter() - began
        used = tree_cpu_seconds(os.getpid()) - cpu
        done.set()
        watcher.join()
    peak = max(peaks, default=_resident_bytes())
    return {"seconds": seconds, "cpu_seconds": used, "peak_rss_bytes": peak}


def shuffled_bytes(events: Path) -> int:
    """Return what all tasks of a log of events wrote to shuffles, as stored."""
    logs = (path for path in events.rglob("*") if path.is_file())
    found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    metrics = [e.get("Task Metrics") for e in found if e["Event"] == "SparkListenerTaskEnd"]
    return sum(each["Shuffle Write Metrics"]["Shuffle Bytes Written"] for each in metrics if each)


def _resident_bytes() -> int:
    return sum(int(of[21]) for of in tree(os.getpid()).values()) * os.sysconf("SC_PAGE_SIZE")
