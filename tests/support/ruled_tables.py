"""Tables with row rules: what is stored of them, and what Dormouse reads, to hold views against."""

from __future__ import annotations

import datetime as dt
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.messages.requests import SetProperties
from dormouse.schema.schema import Field, Schema, parse_field
from dormouse.schema.types import parse_type_text
from dormouse.tables.table import Table
from tests.support.queries import query_rows
from tests.support.world import World

NAN = math.nan
LONG_AGO = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
FAR_AHEAD = dt.datetime(2199, 1, 1, tzinfo=dt.UTC)


def field(name: str, kind: str, *, nullable: bool = False) -> Field:
    body = {"name": name, "type": parse_type_text(kind).to_json(), "nullable": nullable}
    return parse_field(body, name)


ODD = Schema(
    (field("select", "long"),),
    (field("a b", "string"),),
    (
        field('we"ird', "int", nullable=True),
        field("back`tick", "string", nullable=True),
        field("ünï.dot", "double", nullable=True),
        field("f", "float", nullable=True),
        field("ok", "boolean", nullable=True),
        field("raw", "bytes", nullable=True),
        field("day", "date", nullable=True),
        field("at", "timestamp", nullable=True),
        field("ntz", "timestamp_ntz", nullable=True),
        field("price", "decimal(10, 2)", nullable=True),
        field("ms", "long", nullable=True),
    ),
)
"""Columns with names that have to be quoted, of all types that engines compare alike."""
SUMMED = Schema(
    (field("k", "long"),),
    (field("from", "string"),),
    (
        field("n", "int"),
        field("big", "long"),
        field("money", "decimal(38, 10)"),
        field("least", "double"),
        field("most", "double"),
        field("least_f", "float"),
        field("most_f", "float"),
        field("word", "string"),
        field("raw", "bytes"),
        field("ok", "boolean"),
        field("day", "date"),
        field("at", "timestamp"),
    ),
)
SUMS = (
    "sum(n), sum(big), sum(money), min(least), max(most), min(least_f), max(most_f), max(word), "
    "min(raw), max(ok), min(day), max(at)"
)
VERSIONED = Schema(
    (field("k", "long"), field("Ünder", "string")),
    (field("version", "long"),),
    (
        field("rank", "long", nullable=True),
        field("x", "double", nullable=True),
        field("tags", "list<string>", nullable=True),
        field("note", "string", nullable=True),
    ),
)

TEXTS = (None, "", "it's", "100%", "50%_off", r"back\slash", "a#b", "ünïcödé 🐭", "  pad ", "Zz")
DOUBLES = (None, NAN, -0.5, 0.0, 0.1, 2.5, math.inf, -math.inf, 1e300)


def odd_rows() -> Iterator[dict[str, Any]]:
    for i in range(60):
        yield {
            "select": i % 20,
            "a b": f"key {i}",
            'we"ird': None if i % 7 == 0 else i - 30,
            "back`tick": TEXTS[i % len(TEXTS)],
            "ünï.dot": DOUBLES[i % len(DOUBLES)],
            "f": DOUBLES[i % (len(DOUBLES) - 1)],
            "ok": (None, True, False)[i % 3],
            "raw": None if i % 5 == 0 else bytes([0, i * 4]),
            "day": None if i % 4 == 0 else dt.date(2020, 1, 1) + dt.timedelta(days=i),
            "at": (None, LONG_AGO, FAR_AHEAD, LONG_AGO + dt.timedelta(microseconds=i))[i % 4],
            "ntz": None if i % 3 == 0 else dt.datetime(2024, 2, 1, 0, 0, i),  # noqa: DTZ001  # a clock without a zone
            "price": None if i % 6 == 0 else Decimal(i - 30) / 4,
            "ms": (None, 1, 7_000_000_000_000 + i)[i % 3],
        }


def summed_rows() -> Iterator[dict[str, Any]]:
    doubles = [value for value in DOUBLES if value is not None]
    texts = [value for value in TEXTS if value is not None]
    for i in range(80):
        double = NAN if i % 10 == 3 else doubles[i % len(doubles)]
        yield {
            "k": i % 10,
            "from": f"group {i % 2}",
            "n": i - 40,
            "big": (i - 30) * 10**15,
            "money": Decimal(i - 20) / Decimal(10) ** 7 + 10**20,
            "least": double,
            "most": double,
            "least_f": 1.5 if abs(double) > 1e38 else double,
            "most_f": 1.5 if abs(double) > 1e38 else double,
            "word": texts[i % len(texts)],
            "raw": bytes([255 - i, i]),
            "ok": i % 3 == 0,
            "day": dt.date(2020, 1, 1) + dt.timedelta(days=37 * i % 100),
            "at": LONG_AGO + dt.timedelta(microseconds=41 * i % 97),
        }


def versioned_rows() -> Iterator[dict[str, Any]]:
    for i in range(90):
        yield {
            "k": i % 9,
            "Ünder": "x" if i % 2 else "X",
            "version": i // 18 % 2,
            "rank": (None, 3, 3, 7)[i // 7 % 4],
            "x": DOUBLES[i // 4 % len(DOUBLES)],
            "tags": None if i % 2 else [f"t{i % 9}"],
            "note": f"row {i}",
        }


@dataclass(frozen=True, slots=True)
class Case:
    """A table whose rules were set once its rows were stored."""

    name: str
    schema: Schema
    rows: Sequence[Mapping[str, Any]]
    rules: Mapping[str, str]


DAY_MS = 24 * 60 * 60 * 1000
_CONDITIONS = {
    "numbers": """ "we""ird" > -5 AND "we""ird" BETWEEN -4 AND 20 OR "we""ird" IN (-9, 25) """,
    "nulls": """ "we""ird" IS NULL OR "back`tick" IS NOT NULL AND NOT ok IS TRUE """,
    "texts": """ "back`tick" IN ('it''s', 'back\\slash', 'ünïcödé 🐭', '') """,
    "text-order": """ "back`tick" > 'a' AND "back`tick" <> 'it''s' """,
    "likes": """ "back`tick" LIKE '%\\%\\_o%' OR "back`tick" LIKE '_#_' OR "a b" LIKE 'key 1%' """,
    "unlike": """ "back`tick" NOT LIKE '%\\\\%' """,
    "functions": """ starts_with("back`tick", '50') OR ends_with("back`tick", '🐭')
        OR contains("back`tick", '''') OR trim("back`tick") = 'pad' OR length("back`tick") = 10
        OR octet_length("back`tick") = 4 """,
    "nan-is-greatest": """ "ünï.dot" > 1.5 """,
    "nan-is-not-less": """ "ünï.dot" <= 1.5 """,
    "nan-is-unequal": """ "ünï.dot" <> 0.1 """,
    "not-nan": """ NOT "ünï.dot" >= 0 """,
    "literal-first": """ 0.1 < "ünï.dot" """,
    "floats-are-doubles": """ f = 0.1 OR f IN (2.5, -0.5) OR f IS DISTINCT FROM 0 """,
    "booleans": """ ok IS FALSE OR ok = TRUE AND select_ > 3 """,
    "not-distinct": """ ok IS NOT DISTINCT FROM TRUE """,
    "bytes": """ raw > X'0064' """,
    "times": """ at > TIMESTAMP '1999-01-01 00:00:00.000009' OR day = DATE '2020-01-08' """,
    "local-times": """ ntz > TIMESTAMP '2024-02-01 00:00:31' """,
    "decimals": """ price >= 1.25 AND price <> 2.5 """,
    "arithmetic": """ "we""ird" * 3 - 1 > 20 OR "we""ird" / 4 = -3 OR "we""ird" % 5 = -2 """,
    "coalesce": """ coalesce("we""ird", 1000) > 10 AND nullif("we""ird", 12) IS NOT NULL """,
}
CASES = [
    *(
        Case(name, ODD, tuple(odd_rows()), {"filters": f"where({text.replace('select_', q)})"})
        for q in ['"select"']
        for name, text in _CONDITIONS.items()
    ),
    Case("age-of-a-time", ODD, tuple(odd_rows()), {"filters": f"ageOff(at, {DAY_MS})"}),
    Case("age-of-a-number", ODD, tuple(odd_rows()), {"filters": f"ageOff(ms, {DAY_MS})"}),
    Case("a-great-age", ODD, tuple(odd_rows()), {"filters": f"ageOff(at, {10**18 - 1})"}),
    Case(
        "age-and-condition",
        ODD,
        tuple(odd_rows()),
        {"filters": f"ageOff(at, {DAY_MS}), where(ok = TRUE OR price > 1)"},
    ),
    Case("sums", SUMMED, tuple(summed_rows()), {"aggregations": SUMS}),
    Case(
        "sums-of-some",
        SUMMED,
        tuple(summed_rows()),
        {"aggregations": SUMS, "filters": """where(k > 2 AND "from" = 'group 1')"""},
    ),
    *(
        Case(
            how,
            VERSIONED,
            tuple(versioned_rows()),
            {"aggregations": f"{how}(rank), {how}(x), {how}(tags), {how}(note)"},
        )
        for how in ("first", "last")
    ),
    Case(
        "last-of-some",
        VERSIONED,
        tuple(versioned_rows()),
        {
            "aggregations": "last(rank), last(x), last(tags), last(note)",
            "filters": "where(\"Ünder\" = 'X')",
        },
    ),
]


def stored_and_read(case: Case, folder: Path) -> tuple[Table, pa.Table, list[dict[str, Any]]]:
    """Return a table with rules, the rows that are stored of it, and those that a query reads."""
    world = World(folder)
    table = world.create(case.name, case.schema)
    world.set_online(table, False)
    for part in range(3):
        sink = io.BytesIO()
        rows = pa.Table.from_pylist([*case.rows][part::3], arrow_schema(case.schema))
        pq.write_table(rows, sink)
        world.drop(f"{case.name}/{part}.parquet", sink.getvalue())
    world.settle()
    stored = _query(world, table)
    assert stored.num_rows == len(case.rows)
    settings = {"iceberg": "on", "iceberg_parts": "yes", **case.rules}
    world.administer(SetProperties("rules", case.name, settings))
    found = world.tables.get(table.id)
    assert found is not None
    return found, stored, _query(world, found).to_pylist()


def _query(world: World, table: Table) -> pa.Table:
    result = query_rows(
        world.storage,
        table,
        world.state(table),
        [],
        now_ms=world.clock.now_ms(),
        scratch=world.services.scratch,
        memory_bytes=64 * 1024 * 1024,
    )
    return result.reader.read_all()


def comparable(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows in one form; 0.0 and -0.0 are one value, and so are all NaNs."""
    return sorted(repr([(name, _plain(value)) for name, value in row.items()]) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case bytearray():
            return bytes(value)
        case dt.datetime() if value.tzinfo:
            return value.astimezone(dt.UTC).isoformat()
        case dt.datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
    return value
