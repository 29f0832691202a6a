"""Measure what a process does: wall and CPU seconds, the peak of its memory, bytes it reads.

Start-up is left out: a part prepares, and then runs between two looks at the counters. Each
measurement is in a process of its own, so that none inherits memory or warm code.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PROCESS = Path("/proc/self")
_PIECE_BYTES = 1024 * 1024


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those it has waited for, in seconds."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


class PeakElsewhere(int):
    """What work returns that was done by another process: the peak of its memory, in bytes."""


def run(work: Callable[[], object]) -> dict[str, float]:
    """Do `work`; return its seconds, CPU seconds and the peak of resident memory in bytes."""
    (PROCESS / "clear_refs").write_text("5")  # the peak is counted from here on
    cpu, began = cpu_seconds(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    own_bytes = _number("status", "VmHWM") * 1024
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_rss_bytes": result if isinstance(result, PeakElsewhere) else own_bytes,
    }


def read_once(files: Iterable[Path]) -> None:
    """Read files, so that they are in the page cache: else the first of several systems that read
    them waits for the disk, and the others do not.
    """
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.read(_PIECE_BYTES):
                pass


def set_aside() -> None:
    """Keep the garbage collector from what the process holds by now, most of which was imported.

    A collection of all of it takes as long as many look-ups, and any one of them may cause it. The
    functions do the same when they start.
    """
    gc.collect()
    gc.freeze()


def bytes_read() -> int:
    """Return what all threads of this process have read with system calls so far, in bytes.

    What is read through a memory map does not count.
    """
    return _number("io", "rchar")


def _number(file: str, name: str) -> int:
    for line in (PROCESS / file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise LookupError(f"{PROCESS / file} has no {name}")
