"""The stores that are compared: filled from a file, asked for keys, and installed from nothing.

Each is used as its documentation says, in a process of its own for each part. The first look-up of
a process is cold: its code is not loaded, and no footer or page is read. Those after a hundred
others are warm. For the first row that is found, an empty environment is made, the package
installed with what it needs, and the program run that a newcomer would write. How long an
installation takes depends on the index, so its bytes count more.
"""

from __future__ import annotations

import sqlite3
import subprocess
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from bench.figures import emit
from bench.measure import peak_bytes
from tools.wheel import build_wheel, size_bytes

LookUp = Callable[[int], int]
"""Reads all columns of the rows with a key; returns how many there are."""


def ingest_dormouse(file: Path, folder: Path) -> None:
    from dormouse.client.instance import Instance

    with Instance.open(folder, background=False) as instance:
        table = instance.create_table("rows", like=file, row_keys=["id"])
        table.ingest(file).wait()
        instance.wait()


@contextmanager
def open_dormouse(folder: Path) -> Iterator[LookUp]:
    from dormouse.client.instance import Instance

    with Instance.open(folder, background=False) as instance:
        table = instance.table("rows")
        yield lambda key: table.query(exact=key).read_all().num_rows


def ingest_duckdb(file: Path, folder: Path) -> None:
    import duckdb

    with duckdb.connect(folder / "rows.duckdb") as database:
        columns = 'id BIGINT PRIMARY KEY, name VARCHAR, value DOUBLE, "at" TIMESTAMP'
        database.execute(f"CREATE TABLE rows ({columns})")
        database.execute("INSERT INTO rows SELECT * FROM read_parquet(?)", [str(file)])


@contextmanager
def open_duckdb(folder: Path) -> Iterator[LookUp]:
    import duckdb

    with duckdb.connect(folder / "rows.duckdb") as database:
        question = "SELECT * FROM rows WHERE id = ?"
        yield lambda key: len(database.execute(question, [key]).fetchall())


def ingest_sqlite(file: Path, folder: Path) -> None:
    with sqlite3.connect(folder / "rows.sqlite") as database:
        database.execute(
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT, value REAL, at INT)"
        )
        for batch in pq.ParquetFile(file).iter_batches():
            parts = [batch.column(name).to_pylist() for name in ("id", "name", "value")]
            at = batch.column("at").cast(pa.int64()).to_pylist()
            rows = zip(*parts, at, strict=True)
            database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)


@contextmanager
def open_sqlite(folder: Path) -> Iterator[LookUp]:
    with sqlite3.connect(folder / "rows.sqlite") as database:
        question = "SELECT * FROM rows WHERE id = ?"
        yield lambda key: len(database.execute(question, [key]).fetchall())


def ingest_lancedb(file: Path, folder: Path) -> None:
    import lancedb

    table = lancedb.connect(folder).create_table(
        "rows", pq.ParquetFile(file).iter_batches(), schema=pq.read_schema(file)
    )
    table.create_scalar_index("id")


@contextmanager
def open_lancedb(folder: Path) -> Iterator[LookUp]:
    import lancedb

    table = lancedb.connect(folder).open_table("rows")
    yield lambda key: table.search().where(f"id = {key}").to_arrow().num_rows


def ingest_deltalake(file: Path, folder: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(folder / "rows", pq.ParquetFile(file).read())


@contextmanager
def open_deltalake(folder: Path) -> Iterator[LookUp]:
    """Open the table as a dataset of Arrow.

    Files are read by Arrow's own file system. That of deltalake is called from threads of Arrow,
    sometimes while the process exits, and then aborts it.
    """
    from deltalake import DeltaTable

    files = SubTreeFileSystem(str(folder / "rows"), LocalFileSystem())
    table = DeltaTable(folder / "rows").to_pyarrow_dataset(filesystem=files)
    yield lambda key: table.to_table(filter=ds.field("id") == key).num_rows


SYSTEMS: dict[str, tuple[Callable[[Path, Path], None], Callable[[Path], Any]]] = {
    "dormouse": (ingest_dormouse, open_dormouse),
    "duckdb": (ingest_duckdb, open_duckdb),
    "sqlite": (ingest_sqlite, open_sqlite),
    "lancedb": (ingest_lancedb, open_lancedb),
    "deltalake": (ingest_deltalake, open_deltalake),
}
"""How each is filled and opened."""
WARM_UP, LEAST_SECONDS, MOST = 100, 3.0, 5000


def make(file: str, rows: int) -> None:
    """Write the file that all systems ingest; its rows are in no order, and the same each time."""
    import numpy as np

    random = np.random.default_rng(7)
    ids = random.permutation(rows)
    names = pa.array([f"name-{number:08d}" for number in random.integers(0, rows, rows)])
    at = pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us"))
    values = {"id": ids, "name": names, "value": random.random(rows), "at": at}
    pq.write_table(pa.table(values), file)


def ingest(system: str, file: str, folder: str) -> None:
    rows = pq.read_metadata(file).num_rows
    Path(folder).mkdir()
    started = perf_counter()
    SYSTEMS[system][0](Path(file), Path(folder))
    seconds = perf_counter() - started
    emit(
        "ingest",
        system,
        rows,
        seconds=seconds,
        rows_per_second=rows / seconds,
        peak_rss_mb=peak_bytes() / 1e6,
        folder_mb=size_bytes(Path(folder)) / 1e6,
    )


def look_up(system: str, file: str, folder: str) -> None:
    """Look keys up in the table.

    Raises:
        ValueError: one was not found, or twice.
    """
    random, rows = Random(7), pq.read_metadata(file).num_rows
    started = perf_counter()
    with SYSTEMS[system][1](Path(folder)) as find:
        counts = {find(random.randrange(rows))}
        cold = perf_counter() - started
        for _ in range(WARM_UP if cold < 1 else 1):
            find(random.randrange(rows))
        times: list[float] = []
        while sum(times) < LEAST_SECONDS and len(times) < MOST:
            before = perf_counter()
            count = find(random.randrange(rows))
            times.append(perf_counter() - before)
            counts.add(count)
    if counts != {1}:
        raise ValueError(f"keys have {counts} rows instead of one")
    emit(
        "look-ups",
        system,
        rows,
        cold_ms=cold * 1000,
        warm_ms_p50=median(times) * 1000,
        warm_per_second=len(times) / sum(times),
        peak_rss_mb=peak_bytes() / 1e6,
    )


PACKAGES = {
    "dormouse": ("dormouse",),
    "duckdb": ("duckdb",),
    "sqlite": (),
    "lancedb": ("lancedb",),
    "deltalake": ("deltalake", "pyarrow"),
}
"""What is installed: the wheel that is built here, and the newest releases of others."""
PROGRAMS = {
    "dormouse": """\
import pyarrow as pa
from dormouse.client import Instance
frame = pa.table({"id": [1, 2], "name": ["a", "b"]})
table = Instance.open("./mice").create_table("rows", like=frame, row_keys=["id"])
table.ingest(frame).wait()
print(table.query(exact=2).to_arrow().to_pylist())""",
    "duckdb": """\
import duckdb
db = duckdb.connect("rows.duckdb")
db.execute("CREATE TABLE rows (id BIGINT PRIMARY KEY, name VARCHAR)")
db.execute("INSERT INTO rows VALUES (1, 'a'), (2, 'b')")
print(db.execute("SELECT * FROM rows WHERE id = 2").fetchall())""",
    "sqlite": """\
import sqlite3
db = sqlite3.connect("rows.sqlite")
db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)")
db.executemany("INSERT INTO rows VALUES (?, ?)", [(1, "a"), (2, "b")])
db.commit()
print(db.execute("SELECT * FROM rows WHERE id = 2").fetchall())""",
    "lancedb": """\
import lancedb
db = lancedb.connect("./lance")
table = db.create_table("rows", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
print(table.search().where("id = 2").to_list())""",
    "deltalake": """\
import pyarrow as pa, pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
write_deltalake("./delta", pa.table({"id": [1, 2], "name": ["a", "b"]}))
rows = DeltaTable("./delta").to_pyarrow_dataset()
print(rows.to_table(filter=ds.field("id") == 2).to_pylist())""",
}
"""The shortest program of each that stores two rows durably and finds one by its key."""


def install_of(system: str) -> str:
    return f"pip install {' '.join(PACKAGES[system])}" if PACKAGES[system] else ""


def first_row(system: str, place: str) -> None:
    folder, environment = Path(place), Path(place) / "environment"
    venv.create(environment, with_pip=True)
    empty_bytes, python = size_bytes(environment), str(environment / "bin" / "python")
    wheel = str(build_wheel(folder / "wheel")) if system == "dormouse" else ""
    packages = [wheel if name == "dormouse" else name for name in PACKAGES[system]]
    started = perf_counter()
    if packages:
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quiet, *packages], check=True)
    installed = perf_counter()
    program = [python, "-c", PROGRAMS[system]]
    found = subprocess.run(program, cwd=folder, check=True, capture_output=True, text=True).stdout
    ended = perf_counter()
    if "b" not in found:
        raise ValueError(f"{system} did not find its row: {found}")
    emit(
        "first row",
        system,
        2,
        steps=len([*filter(None, [install_of(system), *PROGRAMS[system].splitlines()])]),
        install_seconds=installed - started,
        program_seconds=ended - installed,
        installed_mb=(size_bytes(environment) - empty_bytes) / 1e6,
    )
