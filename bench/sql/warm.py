"""Run one query by one system that has answered others: ``warm SYSTEM QUERY FOLDER ROWS``.

Its CPU time is that of the query alone, in a process that has imported what it needs and opened the
tables, as a shell, a notebook or a service has.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from time import perf_counter

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


def main(system: str, name: str, folder: Path, rows: int) -> None:
    """Run it, and print what it took."""
    (query,) = [query for query in QUERIES if query.name == name]
    with SYSTEMS_OPENED[system](folder) as run:
        for text in BEFORE:
            run(text)
        before, started = _cpu(), perf_counter()
        found = run(query.text)
        seconds, cpu = perf_counter() - started, _cpu() - before
        held = digest(found(), query)
    emit(f"{WARM} {name}", system, rows, cpu_seconds=cpu, seconds=seconds, digest=held)


def _cpu() -> float:
    """Return the CPU seconds of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
