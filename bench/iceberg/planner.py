"""Plan the look-up of one key with one engine: ``python planner.py ENGINE METADATA KEY``, in the
environment ``.venv/engines``. Prints the CPU seconds, and how many shards are found to be read.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def plan_with_pyiceberg(metadata: str, key: str) -> Callable[[], int]:
    """Return a function that plans a scan, and returns how many shards it has to read."""
    table = importlib.import_module("pyiceberg.table").StaticTable
    equal = importlib.import_module("pyiceberg.expressions").EqualTo("id", key)
    return lambda: len(list(table.from_metadata(metadata).scan(equal).plan_files()))


def plan_with_duckdb(metadata: str, key: str) -> Callable[[], int]:
    """Return a function that asks for a key until DuckDB opens the first shard, which is not there:
    it explains queries without a look at the manifests.
    """
    duckdb = importlib.import_module("duckdb")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "threads": 1})
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (file,) = Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    query = f"SELECT * FROM iceberg_scan('{metadata}') WHERE id = '{key}'"

    def plan() -> int:
        try:
            connection.execute(query).fetchall()
        except duckdb.IOException as error:
            if "/data/" in str(error):
                return 1
            raise
        raise AssertionError("DuckDB opened no shard")

    return plan


def main(engine: str, metadata: str, key: str) -> None:
    plan = {"pyiceberg": plan_with_pyiceberg, "duckdb": plan_with_duckdb}[engine](metadata, key)
    begun = time.process_time()
    found = plan()
    print(json.dumps({"cpu_seconds": time.process_time() - begun, "shards": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
