"""Every form of a condition, over columns of every type that can be compared, is held to Python:
the rows that match, the normal form, and the bounds by which keys and row groups are left out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.key_codec import plain_part
from dormouse.keys import encode_key
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema
from dormouse.sql.key_bounds import column_bounds
from tests.unit.engine.test_casts import COMPARISONS, INT, LONG

NAN, INF = math.nan, math.inf
FLOAT_TYPES = ("FloatType", "DoubleType")
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8 << 48))[0]
TENTH = struct.unpack("f", struct.pack("f", 0.1))[0]  # the float nearest to 0.1, as a double
DAY = 86_400_000_000
Test = Callable[[Any], bool | None]


@dataclass(frozen=True)
class Kind:
    """A type, values of it as they are stored, and literals, each with its value. The first and the
    last literal are values of the type, the last is the greater.
    """

    type: object
    values: Sequence[Any]
    literals: Sequence[tuple[str, Any]]


FLOATS = [-INF, -1.5, -0.0, 0.0, 1.5, 16777216.0, INF, NAN, NEGATIVE_NAN]
FLOAT_LITERALS = [
    ("'-Infinity'", -INF),
    ("'inf'", INF),
    ("'-0.0'", 0.0),
    ("0.1", 0.1),
    ("CAST(0.1 AS REAL)", TENTH),
    ("CAST('nan' AS REAL)", NAN),
    ("'NaN'", NAN),
]
MICROSECONDS = [-62_135_596_800_000_000, -1, 0, 1, 20_454 * DAY, 20_454 * DAY + 1]
TIMES = [
    ("'1970-01-01'", 0),
    ("TIMESTAMP '2026-01-01 00:00:00.000001'", 20_454 * DAY + 1),
    ("DATE '2026-01-01'", 20_454 * DAY),
]
NANOSECONDS = [-LONG + 1000, -1, 0, 20_454 * DAY * 1000, 20_454 * DAY * 1000 + 999, LONG - 1]
FINER = [
    ("'1969-12-31 23:59:59.999999999'", -1),
    ("TIMESTAMP '2026-01-01 00:00:00.000000999'", 20_454 * DAY * 1000 + 999),
    ("DATE '2026-01-01'", 20_454 * DAY * 1000),
]
TEXTS = ["", "A", "a", "ab", "5", "NaN", "\ud7ff", "\ue000", "\U0001f600"]
KINDS = [
    Kind(
        "IntType",
        [-INT, -1, 0, 1, 2, INT - 1],
        [
            ("1", 1),
            ("1.5", Decimal("1.5")),
            ("3000000000", 3 * 10**9),
            ("1e30", 10**30),
            ("'2'", 2),
        ],
    ),
    Kind(
        "LongType",
        [-LONG, -1, 0, 1, 2**53, 2**53 + 1, LONG - 1],
        [
            ("-1", -1),
            ("0.5", Decimal("0.5")),
            (str(LONG), LONG),
            (str(-LONG - 1), -LONG - 1),
            (f"{LONG - 1}", LONG - 1),
        ],
    ),
    Kind(
        {"DecimalType": {"precision": 6, "scale": 2}},
        [Decimal(text) for text in ("-9999.99", "-2.34", "0.00", "2.34", "2.35", "9999.99")],
        [
            ("-2.34", Decimal("-2.34")),
            ("2.345", Decimal("2.345")),
            ("1e9", 10**9),
            ("'2.35'", Decimal("2.35")),
        ],
    ),
    Kind(
        {"DecimalType": {"precision": 38, "scale": 0}},
        [Decimal(number) for number in (-(10**38) + 1, -1, 0, LONG, 10**38 - 1)],
        [("-1", -1), (f"{10**38 - 1}", 10**38 - 1)],
    ),
    Kind("DoubleType", [*FLOATS, 5e-324, 0.1, TENTH, 16777217.0, 1e300], FLOAT_LITERALS),
    Kind("FloatType", [*FLOATS, TENTH], FLOAT_LITERALS),
    Kind("BooleanType", [False, True], [("FALSE", False), ("TRUE", True)]),
    Kind("StringType", TEXTS, [("'NaN'", "NaN"), ("''", ""), ("'\ue000'", "\ue000")]),
    Kind("ByteArrayType", [b"", b"\0", b"a", b"\xff"], [("X''", b""), ("X'61'", b"a")]),
    Kind("TimestampType", MICROSECONDS, [*TIMES, ("'2026-01-01T01:00:00+01:00'", 20_454 * DAY)]),
    Kind("TimestampNtzType", MICROSECONDS, [TIMES[0], TIMES[2], TIMES[1]]),
    Kind("TimestampNsType", NANOSECONDS, [FINER[0], FINER[2], FINER[1]]),
    Kind("TimestampNtzNsType", NANOSECONDS, [FINER[0], FINER[2], FINER[1]]),
    Kind(
        "DateType",
        [-719_162, -1, 0, 20_454, 2_932_896],
        [("'0001-01-01'", -719_162), ("DATE '2026-01-01'", 20_454)],
    ),
    Kind(
        "TimeType",
        [0, 1, DAY // 2, DAY - 1],
        [("'00:00:00.000001'", 1), ("TIME '23:59:59.999999'", DAY - 1)],
    ),
    Kind(
        "UuidType",
        [bytes(16), b"\x80" + bytes(15), b"\xff" * 16],
        [
            (f"'{'0' * 8}-0000-0000-0000-{'0' * 12}'", bytes(16)),
            (f"UUID '80{'0' * 6}-0000-0000-0000-{'0' * 12}'", b"\x80" + bytes(15)),
        ],
    ),
]


def place(value: Any) -> Any:
    """Return what a value is ordered by: all NaN are equal and above all else, as in PostgreSQL."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0 if is_nan else value) if isinstance(value, float) else value


def conditions(kind: Kind) -> Iterator[tuple[str, Test]]:
    """Yield conditions on a column x, each with what it says of a value; null is None."""

    def known(test: Test) -> Test:
        return lambda value: None if value is None else test(value)

    literals = [(text, place(value)) for text, value in kind.literals]
    signs = list(COMPARISONS.items())
    for number, (text, other) in enumerate(literals):
        for sign, compare in signs[number % 2 :: 2]:
            yield f"x {sign} {text}", known(lambda v, c=compare, o=other: c(place(v), o))  # type: ignore[misc]
    (first, low), (last, high) = literals[0], literals[-1]
    texts, places = ", ".join(text for text, _ in literals), [other for _, other in literals]
    for sign, compare in COMPARISONS.items():
        yield f"{last} {sign} x", known(lambda v, c=compare: c(high, place(v)))  # type: ignore[misc]
    yield f"x IS DISTINCT FROM {last}", lambda v: v is None or place(v) != high
    yield f"x IS NOT DISTINCT FROM {first}", lambda v: v is not None and place(v) == low
    yield f"x IN ({texts})", known(lambda v: place(v) in places)
    yield f"x NOT IN ({texts})", known(lambda v: place(v) not in places)
    yield f"x BETWEEN {first} AND {last}", known(lambda v: low <= place(v) <= high)
    yield f"x NOT BETWEEN {first} AND {last}", known(lambda v: not low <= place(v) <= high)
    yield (
        f"(x = {first} OR x > {last}) IS NOT TRUE",
        lambda v: not (v is not None and (place(v) == low or place(v) > high)),
    )
    yield f"NOT (x > {first} AND x IS NOT NULL)", lambda v: v is None or place(v) <= low
    yield f"coalesce(x, {last}) = {last}", lambda v: v is None or place(v) == high
    yield f"nullif(x, {first}) IS NULL", lambda v: v is None or place(v) == low
    yield (
        f"CASE WHEN x > {first} THEN x ELSE {last} END = {last}",
        lambda v: v is None or place(v) <= low or place(v) == high,
    )
    if kind.type in FLOAT_TYPES:
        yield "isnan(x)", known(math.isnan)
        yield "NOT isnan(x)", known(lambda v: not math.isnan(v))
        yield "x - x = 'NaN'", known(lambda v: not math.isfinite(v))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.type))
def test_a_condition_of_any_form_matches_as_its_words_say(kind: Kind) -> None:
    columns = [{"name": "x", "type": kind.type, "nullable": True}]
    keys = [{"name": "row", "type": "IntType"}]
    schema = Schema.from_json({"rowKeyFields": keys, "valueFields": columns})
    stored = arrow_schema(schema)
    values = [*kind.values, None]
    rows = pa.array(range(len(values)), pa.int32())
    batch = pa.record_batch([rows, pa.array(values, stored.field(1).type)], schema=stored)
    wrong = []
    for text, holds in conditions(kind):
        expected = [number for number, value in enumerate(values) if holds(value)]
        predicate = parse_predicate(text, schema)
        found = [row for each in predicate.apply([batch]) for row in each["row"].to_pylist()]
        field = schema.fields[-1]
        span = column_bounds(predicate.condition, field)
        matching = [values[row] for row in expected]
        missed = [
            value
            for value in matching
            if span is not None
            and (value is None or not span.contains(encode_key((plain_part(value, field.type),))))
        ]
        if found != expected or missed or parse_predicate(predicate.sql, schema) != predicate:
            wrong.append((text, predicate.sql, [values[n] for n in set(found) ^ set(expected)]))
    assert not wrong, wrong
