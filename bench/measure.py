"""What a process does: wall and CPU seconds, the peak of its memory, bytes that it reads.

Each measurement is a function in a process of its own, so that none inherits memory or warm code:
``python -m bench.measure MODULE:FUNCTION ARGUMENTS``, with a JSON list of arguments, calls it.
Measured processes import this module, so it imports little.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PATHS = (ROOT, *(ROOT / name for name in ("shared", "cli", "spark")))
TICKS = os.sysconf("SC_CLK_TCK")
_PIECE_BYTES = 1024 * 1024


def command(function: str, *arguments: object) -> list[str]:
    """Return the command that calls a function of a module below `bench`, such as ``sql.run:cold``.

    Arguments are numbers, texts, paths, and lists of them; the function gets paths as texts.
    """
    return [sys.executable, "-m", "bench.measure", function, json.dumps(arguments, default=str)]


def environment() -> dict[str, str]:
    """Return the environment in which commands find all packages, hidden ones too."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))}


class PeakElsewhere(int):
    """What work returns that was done by another process: the peak of its memory, in bytes."""


def run(work: Callable[[], object]) -> dict[str, float]:
    """Do `work`; return its seconds, CPU seconds and the peak of resident memory in bytes."""
    count_peak_from_here()
    cpu, began = cpu_seconds(), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    own_bytes = peak_bytes()
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_rss_bytes": result if isinstance(result, PeakElsewhere) else own_bytes,
    }


def run_all(work: Callable[[], object]) -> dict[str, float]:
    """Do `work`; return the same of this process and all below it, such as those of Spark."""
    process = os.getpid()
    for pid in tree(process):
        with suppress(OSError):  # it ended just now
            count_peak_from_here(pid)
    cpu, began = tree_cpu_seconds(process), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    used = tree_cpu_seconds(process) - cpu
    return {"seconds": seconds, "cpu_seconds": used, "peak_rss_bytes": tree_peak_bytes(process)}


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what `work` returns, and the CPU seconds of all threads that it took."""
    gc.collect()
    before = time.process_time()
    result = work()
    return result, time.process_time() - before


def kept(work: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Return what `work` returns, and what it takes.

    Memory is beyond what the process had before: the peak, and what stays with the result.
    """
    before = resident_bytes()
    count_peak_from_here()
    result, cpu = timed(work)
    peak, held = peak_bytes() - before, resident_bytes() - before
    return result, {
        "cpu_seconds": cpu,
        "peak_rss_bytes": peak,
        "state_rss_bytes": held,
        "peak_to_state": peak / max(1, held),
    }


def cpu_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def tree(process: int) -> dict[int, list[str]]:
    """Return what ``/proc`` says of a process and all below it: fields of ``stat`` from the third.

    `serve` and Spark let processes of their own do the work.
    """
    fields: dict[int, list[str]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            fields[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
    below = {process}
    while more := {pid for pid, of in fields.items() if int(of[1]) in below} - below:
        below |= more
    return {pid: fields[pid] for pid in below if pid in fields}


def tree_cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, of all below it, and of those they have waited for."""
    return sum(sum(map(int, of[11:15])) for of in tree(process).values()) / TICKS


def tree_peak_bytes(process: int) -> int:
    """Return the most memory that a process and those below it had resident, each at its own time.

    Pages that they share count for each.
    """
    total = 0
    for pid in tree(process):
        with suppress(OSError, LookupError):  # it ended just now
            total += peak_bytes(pid)
    return total


def count_peak_from_here(process: int | str = "self") -> None:
    Path(f"/proc/{process}/clear_refs").write_text("5")


def peak_bytes(process: int | str = "self") -> int:
    """Return the most memory that this process, or another, had resident."""
    return _number(f"/proc/{process}/status", "VmHWM") * 1024


def resident_bytes() -> int:
    """Return the memory of this process that is in use and resident."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    return _number("/proc/self/io", "rchar")


def _number(file: str, name: str) -> int:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise LookupError(f"{file} has no {name}")


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    getattr(import_module(f"bench.{module}"), function)(*json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
