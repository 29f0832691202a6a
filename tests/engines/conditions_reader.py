"""Ask one engine for the rows of exported files where conditions hold; run in any environment that
has the engine and pyarrow: ``python conditions_reader.py ENGINE FOLDER`` prints, as JSON, the
engine's version, and for each condition the ids of its rows, in order, or the engine's error.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import math
import operator
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib.metadata import version
from typing import Any

NAN, INF = math.nan, math.inf
UTC_NOON = dt.datetime(2026, 3, 29, 12, 0, 0, 1, dt.UTC)
NAIVE_NOON = UTC_NOON.replace(tzinfo=None)
Condition = tuple[str, str, Any]
CONDITIONS: dict[str, Condition] = {
    "d = NaN": ("d", "=", NAN),
    "d <> NaN": ("d", "<>", NAN),
    "d > 1.5": ("d", ">", 1.5),
    "d <= 1.5": ("d", "<=", 1.5),
    "d <> 1.5": ("d", "<>", 1.5),
    "d >= infinity": ("d", ">=", INF),
    "d < NaN": ("d", "<", NAN),
    "f >= NaN, of floats": ("f", ">=", NAN),
    "f > 1.5, of floats": ("f", ">", 1.5),
    "d = 0, of -0.0 and 0.0": ("d", "=", 0.0),
    "d < 0, of -0.0": ("d", "<", 0.0),
    "d >= 0, of -0.0": ("d", ">=", 0.0),
    "s <> 'a', beside null": ("s", "<>", "a"),
    "s is null": ("s", "is null", None),
    "s = '', beside null": ("s", "=", ""),
    "s > 'z', of any text": ("s", ">", "z"),
    "s < U+E000, of U+1F42D": ("s", "<", "\ue000"),
    "l > 2**53": ("l", ">", 2**53),
    "n = 1.50": ("n", "=", Decimal("1.50")),
    "n > 25 digits": ("n", ">", Decimal("12345678901234567890.12344")),
    "t = a microsecond": ("t", "=", UTC_NOON),
    "t < a time, before 1970": ("t", "<", dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
    "ntz >= a time": ("ntz", ">=", NAIVE_NOON),
    "day < a date": ("day", "<", dt.date(1970, 1, 1)),
    "b >= X'ff'": ("b", ">=", b"\xff"),
    "o = false": ("o", "=", False),
}
"""What is asked: a column, a comparison, and a value."""
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Ask = Callable[[Condition], list[int]]


def sql(condition: Condition) -> str:
    """Return a condition as SQL that the engines and Dormouse understand alike."""
    column, sign, value = condition
    return f"{column} {sign}" if value is None else f"{column} {sign} {_literal(value)}"


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float() if not math.isfinite(value):
            return f"CAST('{'NaN' if math.isnan(value) else 'Infinity'}' AS DOUBLE)"
        case str():
            return f"'{value}'"
        case bytes():
            return f"X'{value.hex()}'"
        case dt.datetime():
            zone = "" if value.tzinfo is None else "+00:00"
            return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}{zone}'"
        case dt.date():
            return f"DATE '{value}'"
    return str(value)


def by_sql(rows: Callable[[str], Any], table: str, *words: tuple[str, str]) -> Ask:
    """Return how to ask an engine of SQL, which has other `words` for literals."""

    def ask(condition: Condition) -> list[int]:
        text = sql(condition)
        for ours, theirs in words:
            text = re.sub(ours, theirs, text)
        return [int(row[0]) for row in rows(f"SELECT id FROM {table} WHERE {text}")]

    return ask


def open_duckdb(files: str) -> Ask:
    connection = importlib.import_module("duckdb").connect()
    connection.execute("SET TimeZone = 'UTC'")
    return by_sql(
        lambda q: connection.execute(q).fetchall(),
        f"'{files}'",
        (r"TIMESTAMP '(.*)\+00:00'", r"TIMESTAMPTZ '\1+00:00'"),
        (r"X'(.*)'", r"from_hex('\1')"),
    )


def open_datafusion(files: str) -> Ask:
    context = importlib.import_module("datafusion").SessionContext()
    context.register_parquet("t", files.removesuffix("/*.parquet"))
    return by_sql(
        lambda q: [(row["id"],) for batch in context.sql(q).collect() for row in batch.to_pylist()],
        "t",
    )


def open_chdb(files: str) -> Ask:
    query = importlib.import_module("chdb").query
    return by_sql(
        lambda q: [line.split(",") for line in str(query(q)).splitlines()],
        f"file('{files}', Parquet)",
        (r"X'(.*)'", r"unhex('\1')"),
        (r"TIMESTAMP '([^+]*)(\+00:00)?'", r"toDateTime64('\1', 6, 'UTC')"),
    )


def open_spark(files: str) -> Ask:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.read.parquet(files).createOrReplaceTempView("t")
    return by_sql(lambda q: session.sql(q).collect(), "t")


def open_pyarrow(files: str) -> Ask:
    dataset, compute = map(importlib.import_module, ("pyarrow.dataset", "pyarrow.compute"))
    arrow = importlib.import_module("pyarrow")
    table = dataset.dataset(files.removesuffix("/*.parquet"), format="parquet")

    def ask(condition: Condition) -> list[int]:
        column, sign, value = condition
        field = compute.field(column)
        if value is None:
            found = field.is_null()
        else:
            kind = table.schema.field(column).type if not isinstance(value, Decimal) else None
            found = SIGNS[sign](field, arrow.scalar(value, kind))
        return list(table.to_table(columns=["id"], filter=found)["id"].to_pylist())

    return ask


def by_expressions(frame: Any, module: Any, rows: Callable[[Any], list[int]]) -> Ask:
    """Return how to ask an engine that has expressions of Python."""

    def ask(condition: Condition) -> list[int]:
        column, sign, value = condition
        cell = module.col(column)
        found = cell.is_null() if value is None else SIGNS[sign](cell, module.lit(value))
        return rows(frame.where(found) if hasattr(frame, "where") else frame.filter(found))

    return ask


def open_polars(files: str) -> Ask:
    polars = importlib.import_module("polars")
    frame = polars.scan_parquet(files)
    return by_expressions(frame, polars, lambda found: found.collect()["id"].to_list())


def open_daft(files: str) -> Ask:
    daft = importlib.import_module("daft")
    frame = daft.read_parquet(files)
    return by_expressions(frame, daft, lambda found: found.select("id").to_pydict()["id"])


def open_pyiceberg(metadata: str) -> Ask:
    kinds = importlib.import_module("pyiceberg.expressions")
    table = importlib.import_module("pyiceberg.table").StaticTable.from_metadata(metadata)
    names = {
        **{"=": "EqualTo", "<>": "NotEqualTo", "<": "LessThan", "<=": "LessThanOrEqual"},
        **{">": "GreaterThan", ">=": "GreaterThanOrEqual", "is null": "IsNull"},
    }

    def ask(condition: Condition) -> list[int]:
        column, sign, value = condition
        kind = getattr(kinds, names[sign])
        if isinstance(value, dt.datetime):
            value = value.isoformat()
        elif isinstance(value, dt.date):
            value = str(value)
        found = kind(column) if value is None else kind(column, value)
        return list(table.scan(found, selected_fields=("id",)).to_arrow()["id"].to_pylist())

    return ask


PACKAGES = {"spark": "pyspark"}


def main(engine: str, place: str) -> None:
    """Ask an engine everything."""
    ask = globals()[f"open_{engine}"](place)
    found: dict[str, list[int] | str] = {}
    for name, condition in CONDITIONS.items():
        try:
            found[name] = sorted(ask(condition))
        except Exception as error:  # engines raise kinds of their own
            found[name] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({"version": version(PACKAGES.get(engine, engine)), "found": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
