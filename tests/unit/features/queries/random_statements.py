"""Random statements and conditions over a table with columns of every type, and its rows.

Left out is what DuckDB means otherwise: `/` of decimals and whole numbers, and the place of nulls
in an order where none is said.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from dormouse.schema.schema import Schema

ROWS = 240
WORDS = ["", "ab", "B", "it's", "100%_", "é", "Z\\", "a b", "\U0001f42d", "ab"]
FLOATS = [0.0, -0.0, 0.5, -1.5, 0.1, 3.0, 2.25, math.nan, math.inf, -math.inf, 1e300, 5e-324]
DECIMALS = ["0.00", "1.25", "-1.25", "0.10", "9999999.99", "-9999999.99", "3.00", "2.50"]
GREAT = ["0", "1", "-3", "99999999999999999999999999999999999999", "12345678901234567890"]
DAYS = [dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1999, 12, 31), dt.date(2024, 3, 1)]
TIMES = [
    dt.datetime.fromisoformat(text)
    for text in (
        "1970-01-01",
        "2024-02-29 12:30:00.000001",
        "1969-12-31 23:59:59.999999",
        "2024-03-01",
    )
]
BINARY = [b"", b"\x00", b"\xff\x00ab", b"ab"]
IDS = [bytes(range(16)), b"\xff" * 16, bytes(16)]
_TYPES: dict[str, object] = {
    "s": "StringType",
    "i": "IntType",
    "v": "LongType",
    "f": "DoubleType",
    "h": "DoubleType",
    "g": "FloatType",
    "d": {"DecimalType": {"precision": 9, "scale": 2}},
    "e": {"DecimalType": {"precision": 20, "scale": 6}},
    "x": {"DecimalType": {"precision": 38, "scale": 0}},
    "b": "BooleanType",
    "at": "TimestampType",
    "n": "TimestampNtzType",
    "y": "DateType",
    "z": "ByteArrayType",
    "u": "UuidType",
}
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "sortKeyFields": [{"name": "m", "type": "IntType"}],
        "valueFields": [
            {"name": name, "type": kind, "nullable": True} for name, kind in _TYPES.items()
        ],
    }
)
OTHER = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "f", "type": "DoubleType", "nullable": True},
            {"name": "d", "type": {"DecimalType": {"precision": 12, "scale": 3}}},
            {"name": "s", "type": "StringType", "nullable": True},
        ],
    }
)
_VALUE = re.compile(
    r"(?P<before>[=<>(,] ?)"
    r"(?:(?P<text>(?<!CAST\()'(?:[^']|'')*')|(?P<number>\d+\.\d+))(?![\w.])"
)
"""A text or a number with a fraction that can be a parameter."""


def rows() -> pa.Table:
    chosen = random.Random(11)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
        picked = [None if chosen.random() < 0.15 else chosen.choice(values) for _ in range(ROWS)]
        return pa.array(picked, kind)

    floats = some(FLOATS, pa.float64())
    small = [value for value in FLOATS if not 1e39 < abs(value) < math.inf and value != 5e-324]
    return pa.table(
        {
            "k": pa.array([number // 3 for number in range(ROWS)], pa.int64()),
            "m": pa.array([number % 3 for number in range(ROWS)], pa.int32()),
            "s": some(WORDS, pa.string()),
            "i": some([0, 1, -7, 3, 2**31 - 1], pa.int32()),
            "v": some([0, 1, 3, -5, 2**53 + 1], pa.int64()),
            "f": floats,
            "h": some(FLOATS, pa.float64()),
            "g": some(small, pa.float32()),
            "d": some(list(map(Decimal, DECIMALS)), pa.decimal128(9, 2)),
            "e": some([Decimal("0.000001"), Decimal("1.25"), Decimal("-3")], pa.decimal128(20, 6)),
            "x": some(list(map(Decimal, GREAT)), pa.decimal128(38, 0)),
            "b": some([True, False], pa.bool_()),
            "at": some(TIMES, pa.timestamp("us", "UTC")),
            "n": some(TIMES, pa.timestamp("us")),
            "y": some(DAYS, pa.date32()),
            "z": some(BINARY, pa.binary()),
            "u": some(IDS, pa.binary(16)),
        }
    )


def others() -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(0, 40, 2), pa.int64()),
            "f": pa.array([FLOATS[n * 5 % 12] if n % 6 else None for n in range(20)]),
            "d": pa.array(
                [Decimal(DECIMALS[n % 8]) + Decimal("0.005") * (n % 2) for n in range(20)],
                pa.decimal128(12, 3),
            ),
            "s": pa.array([WORDS[n % 10] if n % 3 else None for n in range(20)]),
        }
    )


def duck() -> duckdb.DuckDBPyConnection:
    """Return a connection that has the same tables."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET threads = 1")
    for name, table in (("t", rows()), ("o", others())):
        connection.register("arrow_" + name, table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow_{name}")
    return connection


def to_duck(text: str) -> str:
    """Return a statement with literals as DuckDB writes them."""
    return re.sub(r"X'([0-9a-f]*)'", r"from_hex('\1')", text)


def normal(found: list[tuple[object, ...]], *, is_ordered: bool) -> list[tuple[str, ...]]:
    """Return rows that can be compared."""
    shown = [tuple(map(cell, row)) for row in found]
    return shown if is_ordered else sorted(shown)


def cell(value: object) -> str:
    match value:
        case bool() | None:
            return str(value)
        case int():
            return str(value)
        case float():
            return f"{value + 0.0:.9g}"
        case Decimal():
            plain = value.normalize()
            return f"{float(plain):.9g}" if abs(plain) < 10**9 else f"{plain:f}"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case bytes():
            return value.hex()
    return str(value).replace("-", "") if len(str(value)) == 36 else str(value)


@dataclass(frozen=True)
class Statement:
    """`text` has its values as literals; `asked` has parameters in their place."""

    text: str
    asked: str
    values: dict[str, object]

    @property
    def is_ordered(self) -> bool:
        return self.text.endswith("t.k, t.m") or " LIMIT " in self.text


class Maker:
    """Random statements; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str | Callable[[], str]) -> str:
        chosen = self.random.choice(choices)
        return chosen if isinstance(chosen, str) else chosen()

    def decimal(self) -> str:
        """Return a number with a fraction."""
        return self.pick(
            *("1.25", "-1.25", "0.1", ".5", "9999999.99", "-9999999.99", "2.5", "0.0", "1.255"),
            *("0.000001", "1e0", "25e-1", "3.0", "2"),
        )

    def decimals(self) -> str:
        return self.pick(
            *("t.d", "t.d", "t.e", "t.x", "CAST(t.i AS DECIMAL(12, 2))", "abs(t.d)", "(- t.d)"),
            lambda: f"(t.d {self.pick('+', '-', '*')} {self.decimal()})",
            lambda: f"coalesce(t.d, {self.decimal()})",
            lambda: f"CASE WHEN t.b THEN t.d ELSE {self.decimal()} END",
            lambda: f"nullif(t.d, {self.decimal()})",
        )

    def floats(self) -> str:
        return self.pick(
            *("t.f", "t.f", "t.h", "t.g", "(- t.f)", "(t.h * 0)", "(t.f + 1.5)", "abs(t.f)"),
            *("CAST(t.d AS DOUBLE)", "coalesce(t.f, t.h)", "nullif(t.f, 0.0)"),
            *("CASE t.f WHEN 0.0 THEN t.h ELSE t.f END",),
        )

    def float(self) -> str:
        return self.pick(
            *("0.0", "-0.0", "0.5", "-1.5", "0.1", "3.0", "2.25", "1e300", "3"),
            *("CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)", "5e-324"),
        )

    def numbers(self) -> str:
        return self.pick(self.decimals, self.floats, "t.i", "t.v", "t.m", "(t.m + 1)")

    def compared(self) -> str:
        return self.pick(
            "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"
        )

    def simple(self) -> str:
        """Return a test that conditions and statements have."""
        return self.pick(
            lambda: f"t.d {self.compared()} {self.decimal()}",
            lambda: f"t.e {self.compared()} {self.decimal()}",
            lambda: f"t.x {self.pick('=', '<', '>=')} {self.pick(*GREAT)}",
            lambda: f"t.f {self.compared()} {self.pick('0.0', '-0.0', '0.5', '0.1', '-1.5')}",
            lambda: f"t.d {self.pick('IN', 'NOT IN')} ({self.decimal()}, {self.decimal()}, 1.25)",
            lambda: f"t.f {self.pick('IN', 'NOT IN')} (0.5, {self.pick('0.0', '-0.0')}, 3.0, 0.1)",
            lambda: f"t.f NOT BETWEEN {self.pick('-1.5', '0.0')} AND {self.pick('0.0', '3.0')}",
            lambda: f"t.d BETWEEN {self.decimal()} AND {self.decimal()}",
            lambda: f"t.i {self.compared()} {self.pick('0', '3', '-7')}",
            lambda: f"t.v {self.compared()} {self.pick('0', '3', str(2**53 + 1))}",
            lambda: f"t.s {self.compared()} {self.word()}",
            lambda: f"t.s IN ({self.word()}, {self.word()})",
            lambda: f"t.y {self.compared()} DATE '{self.random.choice(DAYS)}'",
            lambda: f"t.n {self.compared()} TIMESTAMP '{self.random.choice(TIMES)}'",
            lambda: f"t.z {self.compared()} X'{self.random.choice(BINARY).hex()}'",
            lambda: f"t.f {self.compared()} t.h",
            lambda: f"t.d {self.compared()} t.d",
            *("t.b", "t.b IS NOT TRUE", "t.d IS NULL", "t.f IS NOT NULL", "t.k > 30"),
            lambda: f"t.k {self.compared()} {self.random.randrange(ROWS // 3)}",
        )

    def word(self) -> str:
        return "'" + self.random.choice(WORDS).replace("'", "''") + "'"

    def condition(self, depth: int = 2) -> str:
        """Return a condition, as `--where` takes it."""
        if depth and self.random.random() < 0.5:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            joined = f"{left} {self.pick('AND', 'OR')} {right}"
            return self.pick(joined, f"({joined})", f"NOT ({joined})")
        return self.simple()

    def test(self) -> str:
        """Return a test, as statements have it."""
        return self.pick(
            self.condition,
            lambda: f"{self.numbers()} {self.compared()} {self.numbers()}",
            lambda: f"{self.decimals()} {self.compared()} {self.decimal()} AND {self.simple()}",
            lambda: f"{self.floats()} {self.compared()} {self.float()} OR {self.simple()}",
            lambda: f"{self.floats()} IN ({self.float()}, {self.float()}, 0.0, 7.0, 8.0)",
            lambda: f"{self.decimals()} IN ({self.decimal()}, {self.decimal()})",
            "t.d IN (SELECT d FROM o)",
            "t.f IN (SELECT f FROM o WHERE f IS NOT NULL)",
            "t.d NOT IN (SELECT 1.25 UNION SELECT 0.1)",
            "EXISTS (SELECT 1 FROM o WHERE o.f = t.f AND o.d > 1.005)",
            "t.f = (SELECT max(o.f) FROM o WHERE o.k = t.k)",
            "t.d > (SELECT min(d) FROM o WHERE d > 0.005)",
        )

    def fold(self) -> str:
        return self.pick(
            *("count(*)", "count(t.f)", "count(DISTINCT t.f)", "count(DISTINCT t.g)"),
            *("min(t.f)", "max(t.f)", "min(t.g)", "max(DISTINCT t.g)", "min(t.d)", "max(t.e)"),
            *("sum(t.i)", "sum(t.d)", "sum(t.d * 1.5)", "max(t.s)", "min(t.y)", "max(t.at)"),
            *("count(DISTINCT t.d)", "min(t.x)", "bool_or(t.b)", "max(t.z)"),
            lambda: f"min({self.floats()}) FILTER (WHERE {self.simple()})",
            lambda: f"max({self.floats()})",
            lambda: f"count(DISTINCT {self.floats()})",
            lambda: f"count(*) FILTER (WHERE {self.simple()})",
            lambda: f"max({self.decimals()})",
        )

    def group(self) -> str:
        return self.pick("t.f", "t.g", "t.s", "t.d", "t.b", "t.y", "t.m", self.floats, "t.z")

    def window(self) -> str:
        part = self.pick("t.f", "t.g", "t.s", "t.d", "t.f, t.s", self.floats)
        order = self.pick("t.h", "t.f", "t.d", "t.g", "t.k") + " NULLS LAST"
        return self.pick(
            f"count(*) OVER (PARTITION BY {part})",
            f"rank() OVER (PARTITION BY {part} ORDER BY {order})",
            f"dense_rank() OVER (ORDER BY {order})",
            f"row_number() OVER (PARTITION BY {part} ORDER BY t.k, t.m)",
            f"min(t.f) OVER (PARTITION BY {part})",
            f"max(t.g) OVER (PARTITION BY {part} ORDER BY {order})",
            "max(t.f) OVER (ORDER BY t.k, t.m ROWS 3 PRECEDING)",
            f"sum(t.i) OVER (PARTITION BY {part} ORDER BY {order})",
            f"count(*) FILTER (WHERE t.d > 0.1) OVER (PARTITION BY {part} ORDER BY t.k, t.m)",
        )

    def having(self) -> str:
        return self.pick(
            *("count(*) > 3", "sum(t.d) > 0.1", "min(t.f) < 0.5", "max(t.f) = 3.0", "sum(t.i) > 0"),
            *("max(t.d) = 9999999.99", "count(DISTINCT t.f) > 2", "min(t.d) BETWEEN 0.1 AND 1.25"),
        )

    def item(self) -> str:
        return self.pick(self.numbers, "t.s", "t.at", "t.u", "t.z", "t.y", "t.n", "t.b", "t.f")

    def select(self) -> str:
        joined = self.pick(
            *("t JOIN o ON t.f = o.f", "t LEFT JOIN o ON t.d = o.d AND o.f < 3.5"),
            *("t JOIN o ON t.k = o.k", "t JOIN o ON t.f = o.d", "t JOIN o ON t.d + 0.005 = o.d"),
            "t JOIN (SELECT f, min(d) AS d, max(f) AS top FROM o GROUP BY f) o ON t.f = o.top",
        )
        group, other = self.group(), self.group()
        where = self.pick("", lambda: f" WHERE {self.test()}", lambda: f" WHERE {self.test()}")
        return self.pick(
            lambda: f"SELECT t.k, t.m, {self.item()} AS a, {self.item()} AS c FROM t{where}",
            lambda: f"SELECT t.k, t.d, t.f FROM t WHERE {self.simple()} AND {self.simple()}",
            lambda: f"SELECT count(*) AS a FROM t WHERE {self.simple()}",
            lambda: f"SELECT {self.fold()} AS a, {self.fold()} AS c FROM t{where}",
            lambda: f"SELECT {self.fold()} AS a, {self.fold()} AS c FROM {joined}",
            lambda: f"SELECT {group} AS a, {self.fold()} AS c FROM t{where} GROUP BY {group}",
            lambda: (
                f"SELECT {group} AS a, {other} AS c, {self.fold()} AS e FROM t{where} "
                f"GROUP BY {group}, {other} HAVING {self.having()}"
            ),
            lambda: f"SELECT DISTINCT {group} AS a, {other} AS c FROM t{where}",
            lambda: f"SELECT t.k, t.m, {self.window()} AS a, {self.window()} AS c FROM t{where}",
            lambda: (
                f"SELECT t.k, t.m, {self.item()} AS a FROM t{where} ORDER BY "
                f"{self.pick('t.f', 't.g', 't.d', 't.s', 't.y')} {self.pick('', 'DESC ')}"
                f"NULLS LAST, t.k, t.m LIMIT {self.random.randrange(40)}"
            ),
            lambda: (
                f"SELECT t.k, t.m FROM t{where} ORDER BY "
                f"{self.pick('t.f', 't.g', 't.f + t.h', 't.d * 0.5')} NULLS LAST, t.k, t.m"
            ),
            lambda: (
                f"SELECT {self.pick('t.f', 't.d')} AS a FROM t{where} "
                f"{self.pick('UNION', 'EXCEPT', 'INTERSECT', 'UNION ALL')} "
                f"SELECT {self.pick('f', 'd', '0.1', '0.0', '-f')} FROM o"
            ),
            lambda: (
                f"WITH c AS (SELECT t.s, {self.decimals()} AS p, {self.floats()} AS q FROM t"
                f"{where}) SELECT s, count(*) AS a, max(q) AS w, sum(p) AS r FROM c "
                f"WHERE p <> {self.decimal()} OR q >= {self.float()} GROUP BY s"
            ),
        )

    def statement(self) -> Statement:
        """Return a statement, and itself with parameters."""
        text = self.select()
        values: dict[str, object] = {}

        def parameter(found: re.Match[str]) -> str:
            name = f"p{len(values)}"
            values[name] = (
                found["text"][1:-1].replace("''", "'") if found["text"] else float(found["number"])
            )
            return f"{found['before']}${name}"

        asked = _VALUE.sub(parameter, text)
        return Statement(text, asked, values)
