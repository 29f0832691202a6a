"""What pandas, Polars and DuckDB make of the hostile files → peers.json.

``python -m tests.unit.sources.hostile.peers``, in an environment that has all three.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl

from tests.unit.sources.hostile.cases import CASES, Case

_PANDAS = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
    "string": "string",
    "decimal": "object",
}
_POLARS: dict[str, Any] = {
    "int": pl.Int32,
    "long": pl.Int64,
    "float": pl.Float32,
    "double": pl.Float64,
    "boolean": pl.Boolean,
    "string": pl.String,
    "decimal": pl.Decimal(10, 2),
    "date": pl.Date,
    "timestamp": pl.Datetime("us"),
}
_DUCKDB = {
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "decimal": "DECIMAL(10,2)",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}


def _pandas(case: Case, file: str) -> list[Any]:
    kind = case.kind.rstrip("?")
    kinds: Any = {"k": "int64", **({"v": _PANDAS[kind]} if kind in _PANDAS else {})}
    if case.ending == "csv":
        times = [] if kind in _PANDAS else ["v"]
        return list(pd.read_csv(file, dtype=kinds, parse_dates=times)["v"])
    times = [] if kind in _PANDAS else ["v"]
    return list(pd.read_json(file, lines=True, dtype=kinds, convert_dates=times)["v"])


def _polars(case: Case, file: str) -> list[Any]:
    kinds = {"k": pl.Int64, "v": _POLARS[case.kind.rstrip("?")]}
    if case.ending == "csv":
        return pl.read_csv(file, schema_overrides=kinds)["v"].to_list()
    return pl.read_ndjson(file, schema=kinds)["v"].to_list()


def _duckdb(case: Case, file: str) -> list[Any]:
    kinds = {"k": "BIGINT", "v": _DUCKDB[case.kind.rstrip("?")]}
    read = f"read_csv('{file}', types = {kinds})"
    if case.ending == "json":
        read = f"read_json('{file}', columns = {kinds})"
    return [value for (value,) in duckdb.connect().execute(f"SELECT v FROM {read}").fetchall()]


def _outcome(read: Callable[[Case, str], list[Any]], case: Case) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"x.{case.ending}"
        file.write_bytes(case.body)
        try:
            values = read(case, str(file))
        except BaseException as error:  # Polars panics with one
            if isinstance(error, KeyboardInterrupt):
                raise
            return "refused"
    if len(values) > 3:
        return f"{len(values)} rows"
    shown = [
        text if len(text := str(v) if _is_time(v) else repr(v)) <= 40 else f"{text[:40]}…"
        for v in values
    ]
    return f"`{', '.join(shown)}`" if shown else "no rows"


def _is_time(value: object) -> bool:
    return hasattr(value, "isoformat") or type(value).__name__ == "Decimal"


def main() -> None:
    """Ask all of them, and write down what they say."""
    peers = {"pandas": _pandas, "Polars": _polars, "DuckDB": _duckdb}
    versions = {"pandas": pd.__version__, "Polars": pl.__version__, "DuckDB": duckdb.__version__}
    outcomes = {
        case.name: {name: _outcome(read, case) for name, read in peers.items()} for case in CASES
    }
    body = json.dumps({"versions": versions, "outcomes": outcomes}, indent=1, ensure_ascii=False)
    (Path(__file__).parent / "peers.json").write_text(body + "\n")


if __name__ == "__main__":
    main()
