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
from contextlib import suppress
from pathlib import Path

from bench.measure import TICKS

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
    cpu, began = _cpu_seconds(), time.perf_counter()
    watcher.start()
    try:
        work()
    finally:
        seconds = time.perf_counter() - began
        used = _cpu_seconds() - cpu
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


def _tree() -> list[list[str]]:
    """Return the status fields of this process and all below it, from the third on."""
    fields: dict[int, list[str]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            fields[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
    below = {os.getpid()}
    while more := {pid for pid, of in fields.items() if int(of[1]) in below} - below:
        below |= more
    return [fields[pid] for pid in below if pid in fields]


def _cpu_seconds() -> float:
    """Count what ended processes took too, when their parents have waited for them."""
    return sum(sum(map(int, of[11:15])) for of in _tree()) / TICKS


def _resident_bytes() -> int:
    return sum(int(of[21]) for of in _tree()) * os.sysconf("SC_PAGE_SIZE")
