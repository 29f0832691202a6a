"""Run one query by one system that has answered others: ``warm SYSTEM QUERY FOLDER ROWS``.

Its CPU time is that of the query alone, in a process that has imported what it needs and opened the
tables, as a shell, a notebook or a service has. Of Dormouse, that of the processes of statements is
in it, which the server of `dormouse.statements` has begun and waited for.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from time import perf_counter, sleep

from bench.common.figures import emit
from bench.sql.queries import QUERIES, WARM
from bench.sql.run import SYSTEMS_OPENED, digest

BEFORE = (
    "SELECT region, count(*) FROM meters GROUP BY region",
    "SELECT kind, count(*) FROM rows WHERE meter = 5 GROUP BY kind",
    "SELECT origin, count(*) FROM flights WHERE carrier = 'AA' GROUP BY origin",
)
"""The queries that were answered before, one of each table; none of the measured ones is like them.
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def main(system: str, name: str, folder: Path, rows: int) -> None:
    """Run it, and print what it took."""
    (query,) = [query for query in QUERIES if query.name == name]
    with SYSTEMS_OPENED[system](folder) as run:
        for text in BEFORE:
            run(text)
        _settle()
        before, started = _cpu(), perf_counter()
        found = run(query.text)
        seconds, cpu = perf_counter() - started, _cpu() - before
        held = digest(found(), query)
    emit(f"{WARM} {name}", system, rows, cpu_seconds=cpu, seconds=seconds, digest=held)


def _settle() -> None:
    """Wait until the processes of earlier statements have ended: the system counts the CPU time of
    others in hundredths of a second, which is several times what a look-up takes.
    """
    deadline = perf_counter() + 10
    while any(map(_children, _children("self"))) and perf_counter() < deadline:
        sleep(0.01)


def _children(pid: str) -> set[str]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return {child for each in found for child in each.read_text().split()}


def _cpu() -> float:
    """Return the CPU seconds of this process, of its children, and of theirs that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + sum(map(_cpu_of, _children("self")))


def _cpu_of(pid: str) -> float:
    """Return the CPU seconds of a process, and of those that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
