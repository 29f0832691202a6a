"""Read published tables with one engine, and write what it returns; run in the environment
``.venv/engines``: ``python reader.py ENGINE TASK.json FOLDER``.

The task lists tables and versions: ``{"name", "metadata", "snapshot", "where"}``; without a
snapshot the present version is read, without a condition all rows. An error becomes ``NAME.error``
in place of ``NAME.arrow``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

Read = Callable[[str, int | None, str], pa.Table]
"""Reads the table with this metadata, of a snapshot or the present one, where a condition holds."""


def read_with_duckdb() -> Read:
    """Read by DuckDB, with its extensions from their packages."""
    duckdb = importlib.import_module("duckdb")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")

    def read(metadata: str, snapshot: int | None, where: str) -> pa.Table:
        at = "" if snapshot is None else f", snapshot_from_id => {snapshot}"
        query = f"SELECT * FROM iceberg_scan('{metadata}'{at}) WHERE {where or True}"
        return connection.execute(query).to_arrow_table()

    return read


def read_with_pyiceberg() -> Read:
    """Read by PyIceberg, without a catalog."""
    table = importlib.import_module("pyiceberg.table").StaticTable
    always = importlib.import_module("pyiceberg.expressions").AlwaysTrue()

    def read(metadata: str, snapshot: int | None, where: str) -> pa.Table:
        static = table.from_metadata(metadata)
        return static.scan(where or always, snapshot_id=snapshot).to_arrow()

    return read


def read_with_polars() -> Read:
    """Read by Polars, with its own reader of Parquet."""
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    polars = importlib.import_module("polars")

    def read(metadata: str, snapshot: int | None, where: str) -> pa.Table:
        frame = polars.scan_iceberg(metadata, snapshot_id=snapshot, reader_override="native")
        if where:
            frame = frame.filter(polars.sql_expr(where))
        return frame.collect().to_arrow()

    return read


ENGINES: dict[str, Callable[[], Read]] = {
    "duckdb": read_with_duckdb,
    "pyiceberg": read_with_pyiceberg,
    "polars": read_with_polars,
}


def check_formats(task: list[dict[str, Any]], folder: Path) -> None:
    """Decode bitmaps and Avro files by the libraries that others use."""
    fastavro, pyroaring = map(importlib.import_module, ("fastavro", "pyroaring"))
    for item in task:
        content = Path(item["file"]).read_bytes()
        if item["kind"] == "bitmap":
            found: Any = list(pyroaring.BitMap64.deserialize(content))
        else:
            with Path(item["file"]).open("rb") as file:
                found = list(fastavro.reader(file))
        text = json.dumps(found, default=lambda value: value.hex())
        (folder / f"{item['name']}.json").write_text(text)


def main(engine: str, task_file: str, output: str) -> None:
    """Do one task with one engine."""
    task, folder = json.loads(Path(task_file).read_text()), Path(output)
    if engine == "formats":
        check_formats(task, folder)
        return
    read = ENGINES[engine]()
    for item in task:
        try:
            found = read(item["metadata"], item["snapshot"], item["where"])
            feather.write_feather(found, str(folder / f"{item['name']}.arrow"), "uncompressed")
        except Exception as error:  # engines raise kinds of their own
            (folder / f"{item['name']}.error").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
