"""Read published tables with one engine, and write what it returns; run in the environment
``.venv/engines`` or that of a larger engine: ``python reader.py ENGINE TASK.json FOLDER``.

The task lists versions: ``{"name", "metadata", "at", "where"}``. ``at`` may have a ``snapshot``, a
``tag``, a ``time_ms``, or with ``since`` the snapshot after which rows were ingested; if it has
none, the present version is read; and ``columns``. Without a condition all rows are. An error
becomes ``NAME.error`` in place of ``NAME.arrow``, or ``NAME.pickle`` for rows that have no Arrow
types.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

At = dict[str, Any]
Read = Callable[[str, At, str], Any]
"""Reads the table with this metadata, the present version or an earlier one, where a condition
holds; returns an Arrow table, or a list of rows."""


class NoWayError(Exception):
    """The engine has no way to say what is asked for."""


def only(at: At, *keys: str) -> None:
    """Check that an engine can ask for what is asked for."""
    if missing := at.keys() - {*keys}:
        raise NoWayError(f"no way to ask for {', '.join(sorted(missing))}")


def read_with_duckdb() -> Read:
    """Read by DuckDB, with its extensions from their packages."""
    duckdb = importlib.import_module("duckdb")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")

    def read(metadata: str, at: At, where: str) -> pa.Table:
        only(at, "snapshot", "time_ms", "columns")
        asked, columns = "", at.get("columns", "*")
        if "snapshot" in at:
            asked = f", snapshot_from_id => {at['snapshot']}"
        if "time_ms" in at:
            asked = f", snapshot_from_timestamp => make_timestamp_ms({at['time_ms']})"
        query = f"SELECT {columns} FROM iceberg_scan('{metadata}'{asked}) WHERE {where or True}"
        return connection.execute(query).to_arrow_table()

    return read


def read_with_pyiceberg() -> Read:
    """Read by PyIceberg, without a catalog."""
    table = importlib.import_module("pyiceberg.table").StaticTable
    always = importlib.import_module("pyiceberg.expressions").AlwaysTrue()

    def read(metadata: str, at: At, where: str) -> pa.Table:
        only(at, "snapshot", "tag", "time_ms")
        static, snapshot = table.from_metadata(metadata), at.get("snapshot")
        if "tag" in at:
            snapshot = static.snapshot_by_name(at["tag"]).snapshot_id
        if "time_ms" in at:
            snapshot = static.snapshot_as_of_timestamp(at["time_ms"]).snapshot_id
        return static.scan(where or always, snapshot_id=snapshot).to_arrow()

    return read


def read_with_polars() -> Read:
    """Read by Polars, with its own reader of Parquet."""
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    polars = importlib.import_module("polars")

    def read(metadata: str, at: At, where: str) -> pa.Table:
        only(at, "snapshot")
        snapshot = at.get("snapshot")
        frame = polars.scan_iceberg(metadata, snapshot_id=snapshot, reader_override="native")
        if where:
            frame = frame.filter(polars.sql_expr(where))
        return frame.collect().to_arrow()

    return read


def in_module(name: str) -> Callable[[], AbstractContextManager[Read]]:
    """Return the engine of a module beside this one, which others need not be able to import."""
    return lambda: importlib.import_module(name).open_reader()


ENGINES: dict[str, Callable[[], AbstractContextManager[Read]]] = {
    "duckdb": lambda: nullcontext(read_with_duckdb()),
    "pyiceberg": lambda: nullcontext(read_with_pyiceberg()),
    "polars": lambda: nullcontext(read_with_polars()),
    "spark": in_module("spark_reader"),
    "trino": in_module("trino_reader"),
    "clickhouse": in_module("clickhouse_reader"),
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
    with ENGINES[engine]() as read:
        for item in task:
            try:
                write(read(item["metadata"], item["at"], item["where"]), folder / item["name"])
            except Exception as error:  # engines raise kinds of their own
                (folder / f"{item['name']}.error").write_text(f"{type(error).__name__}: {error}")


def write(found: Any, path: Path) -> None:
    """Write what was read."""
    if isinstance(found, pa.Table):
        feather.write_feather(found, f"{path}.arrow", "uncompressed")
    else:
        Path(f"{path}.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
