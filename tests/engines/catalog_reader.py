"""Read tables by way of a catalog with one engine, and write what it returns; run in the
environment ``.venv/engines``: ``python catalog_reader.py ENGINE TASK.json FOLDER``.

The task has the ``uri`` of the catalog, the ``tables`` to read, ``properties`` of the client, and
the ``key`` by which it signs requests, if it does. What was found is ``found.json``; each table is
``NAME.arrow``. ``refused`` says how each attempt to change something failed.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

REGION = "eu-west-2"
Attempts = dict[str, Callable[[], object]]


class WithPyIceberg:
    """PyIceberg's client of REST catalogs."""

    def __init__(self, task: dict[str, Any]) -> None:
        signed = {
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "execute-api",
            "rest.signing-region": REGION,
            "client.access-key-id": (task.get("key") or ["", ""])[0],
            "client.secret-access-key": (task.get("key") or ["", ""])[1],
        }
        properties = {"uri": task["uri"], **(signed if task.get("key") else {})}
        rest = importlib.import_module("pyiceberg.catalog.rest").RestCatalog
        self.catalog = rest("mice", **properties, **task.get("properties", {}))

    def names(self) -> list[str]:
        """Return the names of the tables."""
        return [name for _, name in self.catalog.list_tables("dormouse")]

    def read(self, name: str) -> pa.Table:
        """Return the rows of a table."""
        return self.catalog.load_table(("dormouse", name)).scan().to_arrow()

    def attempts(self, name: str) -> Attempts:
        """Return attempts to change a table, or to find one that is not there."""
        table = self.catalog.load_table(f"dormouse.{name}")
        return {
            "insert": lambda: table.append(self.read(name)),
            "drop": lambda: self.catalog.drop_table(f"dormouse.{name}"),
            "create": lambda: self.catalog.create_table("dormouse.more", table.schema()),
            "rename": lambda: self.catalog.rename_table(f"dormouse.{name}", "dormouse.more"),
            "namespace": lambda: self.catalog.create_namespace("more"),
            "missing": lambda: self.catalog.load_table("dormouse.missing"),
        }


class WithDuckDB:
    """A catalog that is attached to DuckDB."""

    def __init__(self, task: dict[str, Any]) -> None:
        duckdb = importlib.import_module("duckdb")
        self.connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        self.connection.execute("SET TimeZone = 'UTC'")
        for name in ("avro", "httpfs", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            (file,) = Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
            self.connection.execute(f"LOAD '{file}'")
        options = "AUTHORIZATION_TYPE 'none'"
        if task.get("key"):
            key, secret = task["key"]
            self.connection.execute(
                f"CREATE SECRET s (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION '{REGION}')"
            )
            options = "AUTHORIZATION_TYPE 'sigv4', SIGV4_SERVICE 'execute-api', SIGV4_REGION "
            options += f"'{REGION}', SECRET s"
        self.connection.execute(
            f"ATTACH 'mice' AS mice (TYPE iceberg, ENDPOINT '{task['uri']}', {options})"
        )

    def names(self) -> list[str]:
        """Return the names of the tables."""
        return [row[2] for row in self.connection.execute("SHOW ALL TABLES").fetchall()]

    def read(self, name: str) -> pa.Table:
        """Return the rows of a table."""
        return self.connection.execute(f'FROM mice.dormouse."{name}"').to_arrow_table()

    def attempts(self, name: str) -> Attempts:
        """Return attempts to change a table, or to find one that is not there."""
        statements = {
            "insert": f"INSERT INTO mice.dormouse.{name} FROM mice.dormouse.{name}",
            "drop": f"DROP TABLE mice.dormouse.{name}",
            "create": "CREATE TABLE mice.dormouse.more (a INT)",
            "rename": f"ALTER TABLE mice.dormouse.{name} RENAME TO more",
            "namespace": "CREATE SCHEMA mice.more",
            "missing": "FROM mice.dormouse.missing",
        }
        return {key: lambda s=s: self.connection.execute(s) for key, s in statements.items()}


ENGINES: dict[str, Any] = {"pyiceberg": WithPyIceberg, "duckdb": WithDuckDB}


def main(engine: str, task_file: str, output: str) -> None:
    """Do one task with one engine."""
    task, folder = json.loads(Path(task_file).read_text()), Path(output)
    client = ENGINES[engine](task)
    refused: dict[str, str] = {}
    for name, attempt in client.attempts(task["tables"][0]).items():
        try:
            attempt()
        except Exception as error:  # engines raise kinds of their own
            refused[name] = f"{type(error).__name__}: {error}"
    found = {"names": sorted(client.names()), "refused": refused}
    (folder / "found.json").write_text(json.dumps(found))
    for name in task["tables"]:
        feather.write_feather(client.read(name), str(folder / f"{name}.arrow"), "uncompressed")


if __name__ == "__main__":
    main(*sys.argv[1:])
