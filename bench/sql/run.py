"""Run one query by one system: ``run SYSTEM QUERY FOLDER ROWS``; its CPU time is that of this
process and its children.
"""

from __future__ import annotations

import datetime as dt
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias
from zlib import crc32

from bench.common.figures import emit
from bench.sql.queries import QUERIES, Query

TABLES = ("rows", "meters", "flights")
Row: TypeAlias = tuple[object, ...]
Run: TypeAlias = Callable[[str], Callable[[], list[Row]]]
"""Run a query; return what shows its rows, which is not measured."""


@contextmanager
def by_dormouse(folder: Path) -> Iterator[Run]:
    """Open the instance."""
    from dormouse.client.instance import Instance

    with Instance.open(folder / "mice", background=False) as instance:
        yield lambda text: _rows_of(instance.sql(text).to_arrow())


@contextmanager
def by_datafusion(folder: Path) -> Iterator[Run]:
    """Open the exported files, with what makes DataFusion read least."""
    from datafusion import SessionConfig, SessionContext

    options = {"datafusion.execution.parquet.pushdown_filters": "true"}
    context = SessionContext(SessionConfig(options))
    for name in TABLES:
        context.register_parquet(name, str(folder / name))
    yield lambda text: _rows_of(*context.sql(text).collect())


@contextmanager
def by_duckdb(folder: Path) -> Iterator[Run]:
    """Open the exported files."""
    import duckdb

    connection = duckdb.connect()
    for name in TABLES:
        files = folder / name / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}')")
    yield lambda text: _rows_of(connection.sql(text).to_arrow_table())


@contextmanager
def by_polars(folder: Path) -> Iterator[Run]:
    """Open the exported files, for its streaming engine."""
    import polars

    frames = {name: polars.scan_parquet(folder / name / "*.parquet") for name in TABLES}
    context = polars.SQLContext(frames)
    yield lambda text: context.execute(text).collect(engine="streaming").rows


SYSTEMS_OPENED: dict[str, Callable[[Path], AbstractContextManager[Run]]] = {
    "dormouse": by_dormouse,
    "datafusion": by_datafusion,
    "duckdb": by_duckdb,
    "polars": by_polars,
}
"""What opens the tables, and runs queries on them."""


def _rows_of(*found: Any) -> Callable[[], list[Row]]:
    """Return what shows the rows of tables or batches of Arrow."""

    def rows() -> list[Row]:
        columns = [[column.to_pylist() for column in each.columns] for each in found]
        return [row for each in columns for row in zip(*each, strict=True)]

    return rows


def digest(rows: list[Row], query: Query) -> int:
    """Return a number below 10,000 that equal results have, whatever the order of their rows and
    the last digits of their floats.
    """
    chosen = slice(None) if query.compared is None else slice(query.compared, query.compared + 1)
    shown = sorted("|".join(map(_shown, row[chosen])) for row in rows)
    return crc32("\n".join(shown).encode()) % 10_000


def _shown(value: object) -> str:
    """Return a value as it is compared: a float with eleven digits. Sums of the tenths that are
    measured have up to ten, so with nine, exact sums lie half-way where rounding errors decide.
    """
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{value:.11g}" if isinstance(value, float) else str(value)


def main(system: str, name: str, folder: Path, rows: int) -> None:
    """Run it, and print what it took."""
    (query,) = [query for query in QUERIES if query.name == name]
    started = perf_counter()
    with SYSTEMS_OPENED[system](folder) as run:
        found = run(query.text)
    seconds = perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    peak_mb = max(each.ru_maxrss for each in used) / 1024
    held = digest(found(), query)
    emit(name, system, rows, cpu_seconds=cpu, seconds=seconds, peak_mb=peak_mb, digest=held)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
