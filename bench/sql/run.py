"""Run one query by one system, over an instance in a folder or its exported rows.

The queries are each over one of two data sets, in the SQL that all systems take.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias
from zlib import crc32

from bench.figures import emit
from bench.measure import cpu_seconds, timed

SYSTEMS = ("dormouse", "datafusion", "duckdb", "polars")
WARM = "warm"
"""What the names of the figures of a warm process begin with."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query; `prunes` says whether its keys leave out most of what there is to read. Where
    several results are right, only the column `compared` is the same in all.
    """

    name: str
    text: str
    prunes: bool = False
    compared: int | None = None


QUERIES = (
    Query("point", "SELECT * FROM rows WHERE meter = 77777", prunes=True),
    Query(
        "range",
        "SELECT sum(watts), count(*) FROM rows WHERE meter >= 50000 AND meter < 50200",
        prunes=True,
    ),
    Query(
        "top-n by key", 'SELECT meter, "at", watts FROM rows ORDER BY meter, "at" LIMIT 10', True
    ),
    Query("count", "SELECT count(*) FROM rows", prunes=True),
    Query("ends", "SELECT min(meter), max(meter) FROM rows", prunes=True),
    Query("group by key", "SELECT meter - meter % 1000 AS g, sum(watts) FROM rows GROUP BY 1"),
    Query("group by value", "SELECT kind, count(*), avg(watts) FROM rows GROUP BY kind"),
    Query(
        "top-n by value",
        'SELECT meter, "at", watts FROM rows ORDER BY watts DESC LIMIT 10',
        compared=2,
    ),
    Query("filter", "SELECT count(*) FROM rows WHERE watts > 990 AND kind = 'solar'"),
    Query(
        "join",
        "SELECT m.region, sum(r.watts) FROM rows r JOIN meters m ON r.meter = m.meter GROUP BY 1",
    ),
    Query(
        "window",
        'SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY meter ORDER BY "at") AS n '
        "FROM rows WHERE meter < 20000) q",
    ),
    Query(
        "flights",
        "SELECT carrier, dest, avg(arr_delay) FROM flights WHERE distance > 500 "
        "GROUP BY carrier, dest",
    ),
)


TABLES = ("rows", "meters", "flights")
QUERIES_BY_NAME = {query.name: query for query in QUERIES}
Row: TypeAlias = tuple[object, ...]
Run: TypeAlias = Callable[[str], Callable[[], list[Row]]]
"""Run a query; return what shows its rows, which is not measured."""


@contextmanager
def by_dormouse(folder: Path) -> Iterator[Run]:
    from dormouse.client.instance import Instance

    with Instance.open(folder / "mice", background=False) as instance:
        yield lambda text: _rows_of(instance.sql(text).to_arrow())


@contextmanager
def by_datafusion(folder: Path) -> Iterator[Run]:
    from datafusion import SessionConfig, SessionContext

    options = {"datafusion.execution.parquet.pushdown_filters": "true"}
    context = SessionContext(SessionConfig(options))
    for name in TABLES:
        context.register_parquet(name, str(folder / name))
    yield lambda text: _rows_of(*context.sql(text).collect())


@contextmanager
def by_duckdb(folder: Path) -> Iterator[Run]:
    import duckdb

    connection = duckdb.connect()
    for name in TABLES:
        files = folder / name / "*.parquet"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}')")
    yield lambda text: _rows_of(connection.sql(text).to_arrow_table())


@contextmanager
def by_polars(folder: Path) -> Iterator[Run]:
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


BEFORE = (
    "SELECT region, count(*) FROM meters GROUP BY region",
    "SELECT kind, count(*) FROM rows WHERE meter = 5 GROUP BY kind",
    "SELECT origin, count(*) FROM flights WHERE carrier = 'AA' GROUP BY origin",
)
"""The queries that a warm process has answered, one of each table; no measured one is like them."""


def cold(system: str, name: str, folder: str, rows: int) -> None:
    """Run one query by one system, in a process that begins; print what that took in all."""
    started = perf_counter()
    with SYSTEMS_OPENED[system](Path(folder)) as run:
        show = run(QUERIES_BY_NAME[name].text)
    seconds, cpu = perf_counter() - started, cpu_seconds()
    held = digest(show(), QUERIES_BY_NAME[name])
    emit(name, system, rows, cpu_seconds=cpu, seconds=seconds, digest=held)


def warm(system: str, name: str, folder: str, rows: int) -> None:
    """Run one query by one system that has answered others; print what that took.

    The CPU time is that of the query alone, in a process that has imported what it needs and opened
    the tables, as a shell, a notebook or a service has.
    """
    with SYSTEMS_OPENED[system](Path(folder)) as run:
        for text in BEFORE:
            run(text)
        started = perf_counter()
        show, cpu = timed(lambda: run(QUERIES_BY_NAME[name].text))
        seconds = perf_counter() - started
        held = digest(show(), QUERIES_BY_NAME[name])
    emit(f"{WARM} {name}", system, rows, cpu_seconds=cpu, seconds=seconds, digest=held)


METERS = 200_000
FILE_ROWS = 2_000_000


def make(place: str, rows: int) -> None:
    """Fill three tables, and export them.

    The flights are those of New York in 2013. The exported files are what `dormouse export` writes.
    """
    import numpy as np
    import pyarrow as pa

    from dormouse.client.instance import Instance
    from tools.demo.flights import load, schema

    folder = Path(place)
    with Instance.open(folder / "mice", background=False) as instance:
        splits = [METERS * part // 16 for part in range(1, 16)]
        columns = "meter:long, at:timestamp, watts:double, kind:string"
        table = instance.create_table(
            "rows", columns, row_keys=["meter"], sort_keys=["at"], split_points=splits
        )
        for batch in _readings(rows):
            table.ingest(batch)
        meters = instance.create_table("meters", "meter:long, region:string", row_keys=["meter"])
        ids = np.arange(METERS)
        names = pa.array([f"region {n % 50}" for n in range(METERS)])
        meters.ingest(pa.table({"meter": ids, "region": names}))
        instance.create_table("flights", schema()).ingest(load())
        instance.wait(timeout_seconds=1800)
        for name in TABLES:
            instance.compact(name, everything=True)
        instance.wait(timeout_seconds=1800)
        for name in TABLES:
            export = instance.table(name).export(to=name)
            export.wait(timeout_seconds=1800)
            export.download(folder / name)


def _readings(rows: int) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    kinds = np.array(["grid", "heat", "solar", "wind"])
    random = np.random.default_rng(7)
    for start in range(0, rows, FILE_ROWS):
        count = min(FILE_ROWS, rows - start)
        at = (start + np.arange(count)) * 1_000_000 + 1_700_000_000_000_000
        yield pa.table(
            {
                "meter": random.integers(0, METERS, count),
                "at": pa.array(at, pa.timestamp("us", "UTC")),
                "watts": np.round(random.uniform(0, 1000, count), 1),
                "kind": pa.array(kinds[random.integers(0, 4, count)]),
            }
        )
