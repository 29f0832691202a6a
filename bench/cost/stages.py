"""Run a stage on a local S3 with the memory, the cores and the CPU time that a function has.

Memory for sorting and merging comes from the environment. Lambda limits CPU time by memory: here a
process beside the stage stops it where it has used up its time of a period, and lets it go on in
the next. What it has used beyond that, between two looks, is taken off the next period.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from bench.cost.prices import request_dollars
from bench.measure import command, environment, run
from bench.rows import instance as rows_instance
from bench.rows.data import SCHEMAS, expected_of
from bench.rows.function import Function
from bench.rows.stages import Work, report, shards_of, work_on_s3
from bench.s3 import DATA, LocalS3, local_s3
from dormouse import settings
from dormouse.aws.storage import S3Storage

PERIOD_SECONDS = 0.1
LOOK_SECONDS = 0.005


@contextmanager
def limited(cores: float) -> Iterator[None]:
    """Limit this process to the time of so many cores within the block."""
    watching = command("cost.stages:watch_process", os.getpid(), cores)
    with subprocess.Popen(watching, env=environment(), stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()  # it looks from now on
        try:
            yield
        finally:
            watcher.terminate()


def watch(
    cores: float,
    used_seconds: Callable[[], float],
    send: Callable[[signal.Signals], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Stop and continue a process until it has ended or this one is interrupted.

    The CPU time that it may still use grows as time passes, up to that of one period.
    """
    left = most = cores * PERIOD_SECONDS
    then, used, is_stopped = now(), used_seconds(), False
    try:
        while True:
            sleep(LOOK_SECONDS)
            now_s, used_s = now(), used_seconds()
            left = min(most, left + cores * (now_s - then) - (used_s - used))
            then, used = now_s, used_s
            if (left <= 0) != is_stopped:
                is_stopped = not is_stopped
                send(signal.SIGSTOP if is_stopped else signal.SIGCONT)
    except OSError:
        return  # it has ended
    finally:
        send(signal.SIGCONT)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit


def watch_process(pid: int, cores: float) -> None:
    """Watch a process until SIGTERM ends this one."""

    def send(which: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, which)

    signal.signal(signal.SIGTERM, _end)
    print("watching", flush=True)
    clock = ~pid << 3 | 2  # that of the CPU time of a process, in Linux
    watch(cores, lambda: time.clock_gettime(clock), send)


DELAY_MS = 30
"""What S3 takes to answer, about."""
RESULTS = "results"


def export(s3: LocalS3, kind: str, table: Path) -> Work:
    """Return the export of all rows of a table."""
    from dormouse.features.administration import administer
    from dormouse.features.export_rows import export_rows
    from dormouse.messages.requests import ExportRows
    from dormouse.messages.stages import ExportTask

    folder = rows_instance.linked(shards_of(table), s3.folder / DATA)
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

    s3.begin()
    return work


def requests(s3: LocalS3) -> dict[str, float]:
    """Return how often each operation was asked for.

    Raises:
        KeyError: one has no price: it must not count as free.
    """
    counts = {name: count for name, count in s3.counts().items() if name[0].isupper()}
    request_dollars(counts)
    return counts


def measure(
    part: str, stage: str, number: int, kind: str, inputs: str, out: str, memory_mb: int
) -> None:
    given, source = Function({}, memory_mb), Path(inputs)
    with local_s3(Path(out) / "s3", DELAY_MS) as s3:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])  # not the server's
        is_export = stage == "export"
        work = export(s3, kind, source) if is_export else work_on_s3(s3, stage, kind, source)
        expected, written = expected_of(source), s3.folder / (RESULTS if is_export else DATA)

        def as_a_function(work: Work) -> dict[str, float]:
            with limited(given.cpu_share):  # the watcher's own start and time are in no figure
                return run(work)

        def others() -> dict[str, float]:
            return {**requests(s3), "memory_mb": memory_mb, "rows": expected.rows}

        taken: Any = {"others": others, "measured": as_a_function}
        report(part, f"{memory_mb:,} MB", number, work, expected, written, **taken)
