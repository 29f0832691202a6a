"""The tables that are compared: what each takes to change rows by key, in a folder.

Rows are four columns, sorted by a whole number that is the key: the even ones at first. Upserts are
in no order; half of their keys are new. Each change is a process of its own, in which the table is
open, and a row was changed before. Afterwards the rows of the table are counted.
"""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import emit
from bench.measure import command, run, set_aside
from tools.wheel import size_bytes

CHANGES = ("an upsert of one row", "a deletion by a range of keys", "upserts of many rows")
DELETED = 0.001
"""How much of a table is deleted by a range of keys."""
UPSERTED = 10_000
"""Rows that are upserted, and not compacted, when keys are looked up."""
KEYS_AT_ONCE = 100
COMMITS, ROWS_OF_COMMIT = 200, 10
DUCKLAKE = ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "pyarrow==26.0.1")
"""Its extension is not released for the DuckDB of the other benchmarks."""
COLUMNS = 'id BIGINT, name VARCHAR, value DOUBLE, "at" TIMESTAMP'


class ChangeableTable(Protocol):
    def fill(self, file: Path) -> None: ...

    def upsert(self, rows: pa.Table) -> None: ...

    def delete(self, low: int, high: int) -> None: ...

    def count(self) -> int: ...


class DormouseTable:
    def __init__(self, folder: Path, *, name: str = "rows", background: bool = False) -> None:
        from dormouse.client.instance import Instance

        self.instance = Instance.open(folder, background=background)
        self.name = name

    @property
    def table(self) -> Any:
        return self.instance.table(self.name)

    def fill(self, file: Path) -> None:
        keep = {"keep": "latest"} if self.name == "rows" else {}
        self.instance.create_table(self.name, like=file, row_keys=["id"], properties=keep)
        self.table.ingest(file).wait()

    def upsert(self, rows: pa.Table) -> None:
        self.table.ingest(rows).wait()

    def delete(self, low: int, high: int) -> None:
        self.table.delete(f"id >= {low} and id < {high}")

    def count(self) -> int:
        return int(self.table.count())

    def append(self, rows: pa.Table) -> None:
        self.table.ingest(rows).wait()

    def aggregate(self) -> tuple[int, ...]:
        statement = f"SELECT count(id), max(id) FROM {self.name}"  # noqa: S608  # no other's text
        return tuple(self.instance.sql(statement).to_arrow().to_pylist()[0].values())


class DeltaTable:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "delta"

    @property
    def table(self) -> Any:
        from deltalake import DeltaTable as Opened

        return Opened(self.folder)

    def fill(self, file: Path) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.folder, pq.ParquetFile(file).read())

    def upsert(self, rows: pa.Table) -> None:
        on = {"predicate": "t.id = s.id", "source_alias": "s", "target_alias": "t"}
        merge = self.table.merge(rows, **on)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, low: int, high: int) -> None:
        self.table.delete(f"id >= {low} AND id < {high}")

    def count(self) -> int:
        return int(self.table.to_pyarrow_dataset().count_rows())


class IcebergTable:
    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(exist_ok=True)
        places = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        self.catalog = SqlCatalog("bench", **places)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("bench.rows")

    def fill(self, file: Path) -> None:
        rows = pq.read_table(file)
        self.catalog.create_namespace("bench")
        self.catalog.create_table("bench.rows", rows.schema).append(rows)

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows, join_cols=["id"])

    def delete(self, low: int, high: int) -> None:
        self.table.delete(f"id >= {low} and id < {high}")

    def count(self) -> int:
        return int(self.table.scan().count())


class DuckLakeTable:
    """A DuckLake, which inlines small changes as it does by itself."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        folder.mkdir(exist_ok=True)
        self.database: Any = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        package = import_module("duckdb_extension_ducklake").__path__[0]
        extension = next(Path(package).rglob("*.duckdb_extension"))
        self.database.execute(f"LOAD '{extension}'")
        lake = f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/data/')"
        self.database.execute(lake)

    def fill(self, file: Path) -> None:
        self.database.execute(f"CREATE TABLE lake.rows ({COLUMNS})")
        self.database.execute(f"INSERT INTO lake.rows SELECT * FROM '{file}'")

    def upsert(self, rows: pa.Table) -> None:
        self.database.register("changed", rows)
        merge = "MERGE INTO lake.rows USING changed USING (id) WHEN MATCHED THEN UPDATE"
        self.database.execute(f"{merge} WHEN NOT MATCHED THEN INSERT")

    def delete(self, low: int, high: int) -> None:
        self.database.execute(f"DELETE FROM lake.rows WHERE id >= {low} AND id < {high}")

    def count(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM lake.rows").fetchone()[0])

    def append(self, rows: pa.Table) -> None:
        self.database.register("appended", rows)
        self.database.execute("INSERT INTO lake.rows SELECT * FROM appended")

    def aggregate(self) -> tuple[int, ...]:
        statement = "SELECT count(id), max(id) FROM lake.rows"
        return tuple(self.database.execute(statement).fetchone())


SYSTEMS: dict[str, Callable[[Path], ChangeableTable]] = {
    "dormouse": DormouseTable,
    "deltalake": DeltaTable,
    "pyiceberg": IcebergTable,
    "ducklake": DuckLakeTable,
}


def rows_of(ids: Any, version: int) -> pa.Table:
    """Return rows with these keys, whose values follow from keys and version."""
    key = pa.array(ids, pa.int64())
    numbers: list[Any] = key.to_pylist()
    name = pa.array([f"name-{version}-{n % 1_000_003:07d}" for n in numbers], pa.string())
    value = pa.array([n + version / 10 for n in numbers], pa.float64())
    columns = {"id": key, "name": name, "value": value, "at": key.cast(pa.timestamp("us"))}
    return pa.table(columns)


def make(file: str, rows: int, upserts: str, changed: int) -> None:
    """Write the rows that fill a table, and those that are upserted."""
    import numpy as np

    with pq.ParquetWriter(file, rows_of([], 0).schema) as writer:
        for begin in range(0, rows, 1_000_000):
            writer.write_table(rows_of(range(begin * 2, min(begin + 1_000_000, rows) * 2, 2), 0))
    ids = np.random.default_rng(7).choice(rows * 2, changed, replace=False)
    pq.write_table(rows_of(ids, 2), upserts)


def fill(system: str, file: str, folder: str) -> None:
    SYSTEMS[system](Path(folder)).fill(Path(file))


def change(system: str, what: str, folder: str, upserts: str, rows: int) -> None:
    """Measure a change of a table that was filled with `rows` rows: `CHANGES`, in their order.

    Raises:
        ValueError: the table then has another number of rows than it should.
    """
    count = _counted_elsewhere(SYSTEMS[system], folder)
    table = SYSTEMS[system](Path(folder))
    table.upsert(rows_of([2], 1))
    low, high = rows, rows + int(rows * 2 * DELETED)
    changed = pq.read_table(upserts) if what == CHANGES[-1] else rows_of([rows], 1)
    ids: list[Any] = changed["id"].to_pylist()
    is_new = [number % 2 or low <= number < high for number in ids]
    more = {CHANGES[0]: 0, CHANGES[1]: (low - high) // 2}.get(what, sum(is_new))
    size = size_bytes(Path(folder))
    set_aside()
    is_deletion = what == CHANGES[1]
    taken = run(lambda: table.delete(low, high) if is_deletion else table.upsert(changed))
    if table.count() != count + more:
        raise ValueError(f"{system}, {what}: {table.count()} rows, not {count + more}")
    emit_taken(what, system, taken, written_kb=(size_bytes(Path(folder)) - size) / 1000)


def _counted_elsewhere(open_table: Callable[[Path], ChangeableTable], folder: str) -> int:
    """Count the rows of a table in another process: else its memory would be counted too."""
    with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:
        return elsewhere.submit(_count, open_table, folder).result()


def _count(open_table: Callable[[Path], ChangeableTable], folder: str) -> int:
    return open_table(Path(folder)).count()


def appended(what: str, folder: str, file: str, upserts: str) -> None:
    """Measure the append of the upserts to the same rows, in a table that keeps all."""
    table = DormouseTable(Path(folder), name="appended")
    table.fill(Path(file))
    rows = pq.read_table(upserts)
    set_aside()
    emit_taken(what, "dormouse, appended", run(lambda: table.upsert(rows)))


def compact(what: str, folder: str, name: str) -> None:
    """Measure the compaction of all shards of a table into one."""
    open_table = partial(DormouseTable, name=name)
    count = _counted_elsewhere(open_table, folder)
    table = open_table(Path(folder))
    set_aside()

    def work() -> None:
        table.instance.compact(name, everything=True)
        table.instance.wait()

    taken = run(work)
    if table.count() != count:
        raise ValueError(f"the compaction of {name} changed its rows")
    emit_taken(what, f"dormouse, {name}", taken)


def look_ups(what: str, folder: str, when: str, rows: int, frames: int) -> None:
    """Count what a new process reads to find some keys, after upserts in so many frames."""
    table = DormouseTable(Path(folder))
    random = Random(frames)
    for version in range(frames):
        table.upsert(rows_of(random.sample(range(rows * 2), UPSERTED // frames), version + 3))
    keys = Random(9).sample(range(0, rows * 2, 2), KEYS_AT_ONCE)
    result = DormouseTable(Path(folder)).table.query(exact=keys)
    result.read_all()
    emit(what, when, 0, requests=result.reads.requests, read_kb=result.reads.size_bytes / 1000)


def commits(system: str, what: str, folder: str) -> None:
    """Measure commits of few rows, each durable and readable before the next, while the table is
    kept as it always is; and then an aggregate over all rows.

    Raises:
        ValueError: the aggregate is wrong.
    """
    place, file = Path(folder), Path(folder).with_suffix(".parquet")
    rows = [
        rows_of(range(first, first + ROWS_OF_COMMIT), 0)
        for first in range(0, (COMMITS + 2) * ROWS_OF_COMMIT, ROWS_OF_COMMIT)
    ]
    pq.write_table(rows.pop(0), file)
    is_ours = system == "dormouse"
    table: Any = DormouseTable(place, background=True) if is_ours else SYSTEMS[system](place)
    table.name = "appended"
    table.fill(file)
    table.append(rows.pop(0))
    files = _count_files(place)
    taken = run(lambda: [table.append(each) for each in rows])
    files = _count_files(place) - files
    seconds = []
    for _ in range(7):
        began = perf_counter()
        found = table.aggregate()
        seconds.append(perf_counter() - began)
    count = (COMMITS + 2) * ROWS_OF_COMMIT
    if found != (count, count - 1):
        raise ValueError(f"{system}, {what}: {found}")
    emit(
        *(what, system, 0),
        commits_s=len(rows) / taken["seconds"],
        cpu_ms=taken["cpu_seconds"] * 1000 / len(rows),
        files=files,
        aggregate_ms=sorted(seconds)[3] * 1000,
    )


def _count_files(folder: Path) -> int:
    return sum(1 for each in folder.rglob("*") if each.is_file())


def emit_taken(what: str, of: str, taken: dict[str, float], **more: float) -> None:
    milliseconds = {"ms": taken["seconds"] * 1000, "cpu_ms": taken["cpu_seconds"] * 1000}
    emit(what, of, 0, **milliseconds, peak_rss_mb=taken["peak_rss_bytes"] / 1e6, **more)


def install(folder: str) -> None:
    """Make an environment with DuckLake."""
    venv.create(folder, with_pip=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", *quiet, *DUCKLAKE], check=True)


def within(environment: str, function: str, arguments: Sequence[object]) -> None:
    """Call a function of this module in another environment, whose figures become ours."""
    program = [f"{environment}/bin/python", *command(f"upserts.systems:{function}", *arguments)[1:]]
    print(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
