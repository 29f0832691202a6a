"""Run one query by one system: ``run SYSTEM QUERY FOLDER ROWS``; its CPU time is that of this
process and its children.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from time import perf_counter

from bench.common.figures import emit
from bench.sql.queries import QUERIES

TABLES = ("rows", "meters", "flights")


def by_dormouse(folder: Path, text: str) -> int:
    """Run it on the instance."""
    from dormouse.client import Instance
    from dormouse.statements.processes import end_server

    with Instance.open(folder / "mice", background=False) as instance:
        found = instance.sql(text).to_arrow().num_rows
    end_server()  # only what has ended is in the CPU time of children
    return found


def by_datafusion(folder: Path, text: str) -> int:
    """Run it on the exported files, with what makes DataFusion read least."""
    from datafusion import SessionConfig, SessionContext

    options = {"datafusion.execution.parquet.pushdown_filters": "true"}
    context = SessionContext(SessionConfig(options))
    for name in TABLES:
        context.register_parquet(name, str(folder / name))
    return sum(batch.num_rows for batch in context.sql(text).collect())


def by_duckdb(folder: Path, text: str) -> int:
    """Run it on the exported files."""
    import duckdb

    connection = duckdb.connect()
    for name in TABLES:
        files = folder / name / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}')")
    return connection.sql(text.replace(" at", ' "at"')).to_arrow_table().num_rows


def by_polars(folder: Path, text: str) -> int:
    """Run it on the exported files, by its streaming engine."""
    import polars

    frames = {name: polars.scan_parquet(folder / name / "*.parquet") for name in TABLES}
    found = polars.SQLContext(frames).execute(text).collect(engine="streaming")
    return int(found.height)


def main(system: str, name: str, folder: Path, rows: int) -> None:
    """Run it, and print what it took."""
    (query,) = [query for query in QUERIES if query.name == name]
    started = perf_counter()
    found = globals()[f"by_{system}"](folder, query.text)
    seconds = perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    peak_mb = max(each.ru_maxrss for each in used) / 1024
    emit(name, system, rows, cpu_seconds=cpu, seconds=seconds, peak_mb=peak_mb, found=found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
