"""A comparison of a cast is one of what the cast makes, also where that loses: held to Python."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema

INT, LONG = 2**31, 2**63
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DECIMALS = [Decimal(n) / 100 for n in (-99999, -1951, -1950, -1949, -50, -1, 0, 1, 49, 50, 1899)]
DECIMALS += [Decimal(n) / 100 for n in (1900, 1901, 1949, 1950, 1999, 2000, 2050, 99999)]
LONGS = [-LONG, -INT - 1, -INT, -1, 0, 1, 5, 19, INT - 1, INT, 2 * INT + 5, LONG - 1]
DOUBLES = [-math.inf, -1e300, -19.5, -0.5, -0.0, 0.0, 0.5, 18.99, 19.0, 19.5, 1e300, math.inf]
TIMES = [
    dt.datetime(2026, 3, day, hour, tzinfo=dt.UTC) for day in (27, 28, 29) for hour in (0, 1, 23)
]


def whole(bits: int) -> Callable[[Any], int | None]:
    """Return a cast to whole numbers: what has no place there is null."""

    def cast(value: Any) -> int | None:
        if math.isinf(value) or math.isnan(value):
            return None
        number = int(value)  # towards zero
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None

    return cast


def decimal(precision: int, scale: int) -> Callable[[Any], Decimal | None]:
    """Return a cast to decimals, rounded half away from zero."""

    def cast(value: Any) -> Decimal | None:
        number = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        return number if abs(number) < 10 ** (precision - scale) else None

    return cast


@dataclass(frozen=True)
class Cast:
    """A cast of a column of a type, and what it makes of each value by the oracle."""

    source: object
    values: Sequence[Any]
    target: str
    result: Callable[[Any], Any]
    literals: Sequence[tuple[str, Any]]


def of_numbers(*numbers: int | str) -> list[tuple[str, Decimal]]:
    """Return literals, each with its value."""
    return [(str(number), Decimal(number)) for number in numbers]


PRICE = {"DecimalType": {"precision": 5, "scale": 2}}
CASTS = [
    Cast(PRICE, DECIMALS, "INT", whole(32), of_numbers(-19, 0, 18, 19, 20)),
    Cast(PRICE, DECIMALS, "BIGINT", whole(64), of_numbers(-19, 0, 19, 20)),
    Cast(PRICE, DECIMALS, "DECIMAL(4, 1)", decimal(4, 1), of_numbers("19.5", "20.0", "0.5")),
    Cast(PRICE, DECIMALS, "DECIMAL(3, 0)", decimal(3, 0), of_numbers(-20, 0, 1, 19, 20)),
    Cast(PRICE, DECIMALS, "DECIMAL(9, 4)", decimal(9, 4), of_numbers("19.5", "19.99")),
    Cast("LongType", LONGS, "INT", whole(32), of_numbers(-1, 0, 5, 19, INT - 1)),
    Cast("LongType", LONGS, "DECIMAL(9, 0)", decimal(9, 0), of_numbers(0, 5, 19)),
    Cast("LongType", LONGS, "BOOLEAN", bool, [("TRUE", True), ("FALSE", False)]),
    Cast("LongType", LONGS, "TEXT", str, [("'5'", "5"), ("'05'", "05"), ("'19'", "19")]),
    Cast("DoubleType", DOUBLES, "INT", whole(32), of_numbers(-19, 0, 18, 19)),
    Cast("DoubleType", DOUBLES, "BIGINT", whole(64), of_numbers(-19, 0, 19)),
    Cast(
        "TimestampType",
        TIMES,
        "DATE",
        lambda time: time.date(),
        [(f"DATE '2026-03-{day}'", dt.date(2026, 3, day)) for day in (27, 28, 30)],
    ),
]


def conditions(cast: Cast) -> Iterator[tuple[str, Callable[[Any], bool | None]]]:
    """Yield conditions, each with what it says of what the cast made."""
    value = f"TRY_CAST(x AS {cast.target})"
    for text, literal in cast.literals:
        for sign, compare in COMPARISONS.items():
            yield f"{value} {sign} {text}", lambda v, c=compare, n=literal: c(v, n)  # type: ignore[misc]
            yield f"NOT {value} {sign} {text}", lambda v, c=compare, n=literal: not c(v, n)  # type: ignore[misc]
    (first, low), (last, high) = cast.literals[0], cast.literals[-1]
    yield f"{value} IN ({first}, {last})", lambda v: v in (low, high)
    yield f"{value} NOT IN ({first}, {last})", lambda v: v not in (low, high)
    if cast.target != "BOOLEAN":
        yield f"{value} BETWEEN {first} AND {last}", lambda v: low <= v <= high


@pytest.mark.parametrize("cast", CASTS, ids=lambda cast: f"{cast.source} to {cast.target}")
def test_a_comparison_of_a_cast_is_one_of_what_the_cast_makes(cast: Cast) -> None:
    columns = [{"name": "x", "type": cast.source, "nullable": True}]
    keys = [{"name": "row", "type": "IntType"}]
    schema = Schema.from_json({"rowKeyFields": keys, "valueFields": columns})
    rows = [{"row": number, "x": value} for number, value in enumerate([*cast.values, None])]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(schema))
    made = [None if row["x"] is None else cast.result(row["x"]) for row in rows]
    wrong = []
    for text, holds in conditions(cast):
        expected = [n for n, value in enumerate(made) if value is not None and holds(value)]
        found = [
            row
            for each in parse_predicate(text, schema).apply([batch])
            for row in each["row"].to_pylist()
        ]
        if found != expected:
            wrong.append((text, [rows[n]["x"] for n in set(found) ^ set(expected)]))
    assert not wrong, wrong
