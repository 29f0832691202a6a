"""Limits the CPU time of a process to a share of the time that passes, as Lambda does by memory.

A process beside it stops the other where it has used up its time of a period, and lets it go on in
the next. What it has used beyond that, between two looks, is taken off the next period.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bench.measure import command, cpu_seconds_of, environment

PERIOD_SECONDS = 0.1
LOOK_SECONDS = 0.005


@contextmanager
def limited(cores: float) -> Iterator[None]:
    """Limit this process to the time of so many cores within the block."""
    watching = command("cost.quota:watch_process", os.getpid(), cores)
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
    except ProcessLookupError:
        return
    finally:
        send(signal.SIGCONT)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit


def watch_process(pid: int, cores: float) -> None:
    """Watch a process until SIGTERM ends this one."""

    def used_seconds() -> float:
        try:
            return cpu_seconds_of(pid)
        except FileNotFoundError as error:
            raise ProcessLookupError from error

    def send(which: signal.Signals) -> None:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, which)

    signal.signal(signal.SIGTERM, _end)
    print("watching", flush=True)
    watch(cores, used_seconds, send)
