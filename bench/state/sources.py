"""Measure what remembering a million sources takes, in a snapshot and in memory.

Called by `state_bench`; the load is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.common.figures import emit
from bench.state.memory import TABLE, built, cpu_seconds, digest, resident_bytes
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.partitions import OverlayMap

REFERENCES = 1000


def measure(count: int) -> None:
    """Print what so many sources add to a small table."""
    state = replace(built(REFERENCES), sources=OverlayMap())
    plain = encode_snapshot(TABLE, state)
    sources = OverlayMap.of({digest(f"source {i}"): i * 1000 for i in range(count)})
    full = encode_snapshot(TABLE, replace(state, sources=sources))
    emit("sources", "snapshot", count, bytes_per_source=(len(full) - len(plain)) / count)
    with TemporaryDirectory() as folder:
        paths = Path(folder) / "plain", Path(folder) / "full"
        for path, body in zip(paths, (plain, full), strict=True):
            path.write_bytes(body)
        command = [sys.executable, "-m", __spec__.name, str(count), "--load", *map(str, paths)]
        subprocess.run(command, check=True)


def measure_load(count: int, plain: Path, full: Path) -> None:
    """Print the memory that loaded sources stay in, and the CPU of loading and looking one up."""
    kept = decode_snapshot(TABLE, plain.read_bytes(), "plain")
    before = resident_bytes()
    state, seconds = cpu_seconds(lambda: decode_snapshot(TABLE, full.read_bytes(), "full"))
    grown = resident_bytes() - before
    asked = [digest(f"source {i}") for i in range(0, 2 * count, max(1, count // 500))]
    found, looking = cpu_seconds(lambda: sum(each in state.sources for each in asked))
    assert found == sum(i < count for i in range(0, 2 * count, max(1, count // 500)))
    emit(
        "sources",
        "memory",
        count,
        bytes_per_source=grown / count,
        load_cpu_seconds=seconds,
        look_up_microseconds=looking / len(asked) * 1e6,
    )
    del kept


def main() -> None:
    """Measure a count of sources."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("count", type=int)
    asked.add_argument("--load", nargs=2, type=Path)
    given = asked.parse_args()
    if given.load:
        measure_load(given.count, *given.load)
    else:
        measure(given.count)


if __name__ == "__main__":
    main()
