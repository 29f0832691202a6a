"""The stores that are compared: each is used as its documentation says, to find rows by key."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

LookUp = Callable[[int], int]
"""Reads all columns of the rows with a key; returns how many there are."""


def ingest_dormouse(file: Path, folder: Path) -> None:
    """Ingest a file into a new table."""
    from dormouse.client.instance import Instance

    with Instance.open(folder, background=False) as instance:
        table = instance.create_table("rows", like=file, row_keys=["id"])
        table.ingest(file).wait()
        instance.wait()


@contextmanager
def open_dormouse(folder: Path) -> Iterator[LookUp]:
    """Open the table."""
    from dormouse.client.instance import Instance

    with Instance.open(folder, background=False) as instance:
        table = instance.table("rows")
        yield lambda key: table.query(exact=key).read_all().num_rows


def ingest_duckdb(file: Path, folder: Path) -> None:
    """Fill a table with a primary key from the file."""
    import duckdb

    with duckdb.connect(folder / "rows.duckdb") as database:
        columns = 'id BIGINT PRIMARY KEY, name VARCHAR, value DOUBLE, "at" TIMESTAMP'
        database.execute(f"CREATE TABLE rows ({columns})")
        database.execute("INSERT INTO rows SELECT * FROM read_parquet(?)", [str(file)])


@contextmanager
def open_duckdb(folder: Path) -> Iterator[LookUp]:
    """Open the database."""
    import duckdb

    with duckdb.connect(folder / "rows.duckdb") as database:
        question = "SELECT * FROM rows WHERE id = ?"
        yield lambda key: len(database.execute(question, [key]).fetchall())


def ingest_sqlite(file: Path, folder: Path) -> None:
    """Fill a table with a primary key, in one transaction."""
    with sqlite3.connect(folder / "rows.sqlite") as database:
        database.execute(
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT, value REAL, at INT)"
        )
        for batch in pq.ParquetFile(file).iter_batches():
            parts = [batch.column(name).to_pylist() for name in ("id", "name", "value")]
            at = batch.column("at").cast("int64").to_pylist()
            rows = zip(*parts, at, strict=True)
            database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)


@contextmanager
def open_sqlite(folder: Path) -> Iterator[LookUp]:
    """Open the database."""
    with sqlite3.connect(folder / "rows.sqlite") as database:
        question = "SELECT * FROM rows WHERE id = ?"
        yield lambda key: len(database.execute(question, [key]).fetchall())


def ingest_lancedb(file: Path, folder: Path) -> None:
    """Fill a table, and index its key."""
    import lancedb

    table = lancedb.connect(folder).create_table(
        "rows", pq.ParquetFile(file).iter_batches(), schema=pq.read_schema(file)
    )
    table.create_scalar_index("id")


@contextmanager
def open_lancedb(folder: Path) -> Iterator[LookUp]:
    """Open the table."""
    import lancedb

    table = lancedb.connect(folder).open_table("rows")
    yield lambda key: table.search().where(f"id = {key}").to_arrow().num_rows


def ingest_deltalake(file: Path, folder: Path) -> None:
    """Write a table; it has no index."""
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
