"""Fill a table from a file, and look up keys in it: ``tables SYSTEM FILE FOLDER``.

Each of the two is done in a process of its own, ``tables SYSTEM FILE FOLDER PART``. The first
look-up of a process is cold: its code is not loaded, and no footer or page is read. Those after a
hundred others are warm.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import pyarrow.parquet as pq

from bench.common.figures import emit
from bench.embedded.systems import SYSTEMS
from tools.wheel import size_bytes

WARM_UP, LEAST_SECONDS, MOST = 100, 3.0, 5000


def main(system: str, file: Path, folder: Path, part: str = "") -> None:
    """Measure one part, or both in processes of their own."""
    if part == "ingest":
        _ingest(system, file, folder)
    elif part == "look-ups":
        _look_up(system, pq.read_metadata(file).num_rows, folder)
    else:
        for each in ("ingest", "look-ups"):
            command = [sys.executable, "-m", "bench.embedded.tables", system, str(file)]
            subprocess.run([*command, str(folder), each], check=True)


def _ingest(system: str, file: Path, folder: Path) -> None:
    rows = pq.read_metadata(file).num_rows
    started = perf_counter()
    SYSTEMS[system][0](file, folder)
    seconds = perf_counter() - started
    emit(
        "ingest",
        system,
        rows,
        seconds=seconds,
        rows_per_second=rows / seconds,
        peak_rss_mb=_peak_mb(),
        folder_mb=size_bytes(folder) / 1e6,
    )


def _look_up(system: str, rows: int, folder: Path) -> None:
    random = Random(7)
    started = perf_counter()
    with SYSTEMS[system][1](folder) as look_up:
        _check(look_up(random.randrange(rows)))
        cold = perf_counter() - started
        for _ in range(WARM_UP if cold < 1 else 1):
            look_up(random.randrange(rows))
        times: list[float] = []
        while sum(times) < LEAST_SECONDS and len(times) < MOST:
            before = perf_counter()
            found = look_up(random.randrange(rows))
            times.append(perf_counter() - before)
            _check(found)
    emit(
        "look-ups",
        system,
        rows,
        cold_ms=cold * 1000,
        warm_ms_p50=median(times) * 1000,
        warm_per_second=len(times) / sum(times),
        peak_rss_mb=_peak_mb(),
    )


def _check(found: int) -> None:
    if found != 1:
        raise ValueError(f"a key has {found} rows instead of one")


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
