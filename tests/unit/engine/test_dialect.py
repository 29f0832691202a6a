"""Conditions and SQL are one dialect: what a condition accepts, a statement understands alike."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import expr
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.engine.predicates import parse_predicate
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.statements.child.conditions import translated
from dormouse.statements.child.session import open_session
from tests.support.depth import examples

MEMBERS = [
    {"name": "city", "type": "StringType", "nullable": True},
    {"name": "size", "type": "LongType"},
    {"name": "at", "type": {"StructType": {"fields": [{"name": "lat", "type": "FloatType"}]}}},
]
TYPES: dict[str, object] = {
    "i": "IntType",
    "j": "LongType",
    "f": "FloatType",
    "d": "DoubleType",
    "n": {"DecimalType": {"precision": 9, "scale": 2}},
    "b": "BooleanType",
    "s": "StringType",
    "t": "TimestampType",
    "tn": "TimestampNtzType",
    "tz": "TimestampNsType",
    "day": "DateType",
    "place": {"StructType": {"fields": MEMBERS}},
    "tags": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
    "stops": {"ListType": {"elementType": "StringType"}},
}
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "row", "type": "LongType"}],
        "valueFields": [
            {"name": name, "type": kind, "nullable": True} for name, kind in TYPES.items()
        ],
    }
)
NOON = dt.datetime(2026, 1, 31, 12, 30, 15, 250_001, tzinfo=dt.UTC)
ROWS: list[dict[str, object]] = [
    {
        "row": 0,
        "i": 3,
        "j": -7,
        "f": 0.1,
        "d": 2.5,
        "n": Decimal("3.25"),
        "b": True,
        "s": "12",
        "t": NOON,
        "tn": NOON.replace(tzinfo=None),
        "tz": NOON,
        "day": NOON.date(),
        "place": {"city": "Köln", "size": 5, "at": {"lat": 50.9}},
        "tags": [("a", 1), ("b", 2)],
        "stops": ["x", "y"],
    },
    {
        "row": 1,
        "i": -(2**31),
        "j": 2**63 - 1,
        "f": -1.5,
        "d": 1e300,
        "n": Decimal("-1.00"),
        "b": False,
        "s": "Ab,c-é",
        "t": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
        "tn": dt.datetime(2024, 2, 29, tzinfo=dt.UTC).replace(tzinfo=None),
        "tz": dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        "day": dt.date(2024, 2, 29),
        "place": {"city": None, "size": 0, "at": {"lat": 0.1}},
        "tags": [],
        "stops": [],
    },
    {
        "row": 2,
        "i": 0,
        "j": 0,
        "f": 1e30,
        "d": -0.25,
        "n": Decimal("9999999.99"),
        "b": True,
        "s": " 2026-01-31 ",
        "t": dt.datetime(2100, 6, 1, tzinfo=dt.UTC),
        "tn": dt.datetime(1800, 1, 1, 5, tzinfo=dt.UTC).replace(tzinfo=None),
        "tz": dt.datetime(1800, 1, 1, 5, tzinfo=dt.UTC),
        "day": dt.date(1969, 7, 20),
        "place": None,
        "tags": None,
        "stops": [None, "z"],
    },
    {"row": 3, **dict.fromkeys(TYPES)},
]


def stored_batch() -> pa.RecordBatch:
    """Return the rows as they come from Parquet, in which no part of a null struct is left."""
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)), file)
    return pq.read_table(pa.BufferReader(file.getvalue())).combine_chunks().to_batches()[0]


BATCH = stored_batch()
NOW_MS = int(dt.datetime.now(dt.UTC).timestamp() * 1000)


def of_condition(text: str, batch: pa.RecordBatch = BATCH) -> list[int]:
    predicate = parse_predicate(text, SCHEMA, now_ms=NOW_MS)
    assert parse_predicate(predicate.sql, SCHEMA) == predicate  # without a present time
    return [row for part in predicate.apply([batch]) for row in part.column(0).to_pylist()]


def of_statement(text: str, scratch: str = "/tmp") -> list[int]:
    context = open_session(scratch, 2**28, 1)
    context.from_arrow(pa.Table.from_batches([BATCH]), "everything")
    rows = context.sql(f'SELECT "row" FROM everything WHERE {text} ORDER BY "row"')
    return [row for part in rows.collect() for row in part.column(0).to_pylist()]


MEANINGS: list[tuple[str, list[int]]] = [
    ("place.city = 'Köln'", [0]),
    ("place['city'] IS NULL", [1, 2, 3]),
    ("place.size IS NULL", [2, 3]),  # it cannot be null, but what it is in can
    ("place.size = 0", [1]),
    ("place.at.lat > 1", [0]),
    ("place['at']['lat'] > 1 AND place.at['lat'] < 51", [0]),
    ("tags['a'] = 1", [0]),
    ("tags['zz'] IS NULL", [0, 1, 2, 3]),
    ("stops[1] = 'x'", [0]),
    ("stops[2] = 'z'", [2]),
    ("stops[-1] IN ('y', 'z')", [0, 2]),
    ("stops[0] IS NULL AND stops[9] IS NULL", [0, 1, 2, 3]),
    ("i = '3'", [0]),
    ("j < '10'", [0, 2]),
    ("d > '2'", [0, 1]),
    ("n = '3.25'", [0]),
    ("t >= '2026-01-31'", [0, 2]),
    ("t >= '2026-01-31 13:30:15.250001+01:00'", [0, 2]),
    ("tn > '2026-01-01T00:00:00'", [0]),
    ("tz BETWEEN '2024-02-29' AND '2024-03-01'", [1]),
    ("day IN ('2024-02-29', '2026-01-31')", [0, 1]),
    ("t > DATE '2026-01-31'", [0, 2]),
    ("t > now() - INTERVAL '1 day'", [2]),
    ("tn < current_timestamp", [0, 1, 2]),
    ("tz > current_timestamp() - INTERVAL '1' DAY", []),
    ("day <= current_date - INTERVAL '7 days'", [0, 1, 2]),
    ("day < current_date", [0, 1, 2]),
    ("t + INTERVAL '1 month' = '2026-02-28 12:30:15.250001'", [0]),
    ("INTERVAL '1 hour' + t < '1970-01-01 01:00:00'", [1]),
    ("tz - INTERVAL '1 year 2 days 90 seconds' < '2023-02-26'", [1, 2]),
    ("day - INTERVAL '1 month' = '2025-12-31'", [0]),
    ("date_trunc('week', t) = '2026-01-26'", [0]),
    ("date_trunc('month', day) = '2024-02-01'", [1]),
    ("date_trunc('quarter', tn) = TIMESTAMP '2026-01-01'", [0]),
    ("date_trunc('year', now()) > t", [1]),
    ("CAST(t AS DATE) = '2026-01-31'", [0]),
    ("t::date = DATE '1969-12-31'", [1]),
    ("i::bigint * 2 = 6", [0]),
    ("CAST(i AS DOUBLE) > d", [0, 2]),
    ("CAST(j AS FLOAT) > 9e18", [1]),
    ("CAST(j AS TEXT) = '-7'", [0]),
    ("b::int = 1", [0, 2]),
    ("day::text LIKE '2026-%'", [0]),
    ("t::text LIKE '2026-01-31T%'", [0]),
    ("CAST(i AS DECIMAL(12, 2)) = n", []),
    ("TRY_CAST(s AS INT) = 12", [0]),
    ("TRY_CAST(s AS BIGINT) IS NULL", [1, 2, 3]),
    ("TRY_CAST(trim(s) AS DATE) = '2026-01-31'", [2]),
    ("TRY_CAST(trim(s) AS TIMESTAMP) > '2026-01-30'", [2]),
    ("TRY_CAST(d AS INT) = 2", [0]),
    ("TRY_CAST(j AS INT) IS NULL", [1, 3]),
    ("CASE WHEN i = 3 THEN 'three' WHEN b THEN s END = 'three'", [0]),
    ("CASE i WHEN 3 THEN 1 ELSE 2 END = 2", [1, 2, 3]),
    ("CASE WHEN b THEN j ELSE NULL END = 0", [2]),
    ("s || '!' = '12!'", [0]),
    ("concat(place.city, '!') = '!'", [1, 2, 3]),
    ("(s || place.city) IS NULL", [1, 2, 3]),
    ("substr(s, 2, 1) = 'b'", [1]),
    ("substring(s FROM 2) = '2'", [0]),
    ("left(s, 1) = '1' OR right(s, 1) = 'é'", [0, 1]),
    ("split_part(s, ',', 2) = 'c-é'", [1]),
    ("strpos(s, '-') = 5", [1]),
    ("position('2' IN s) = 2", [0, 2]),
    ("reverse(s) = '21'", [0]),
    ("ltrim(s) = '2026-01-31 '", [2]),
    ("rtrim(s) = ' 2026-01-31'", [2]),
    ("char_length(s) = 6", [1]),
    ("date_part('year', t) = 2026", [0]),
    ("j > 2 * 3 - 7", [1, 2]),
]


@pytest.mark.parametrize(("text", "expected"), MEANINGS)
def test_a_condition_means_what_it_means_in_a_statement(text: str, expected: list[int]) -> None:
    assert of_condition(text) == expected
    assert of_statement(text) == expected


UNITS = st.sampled_from(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
LENGTHS = st.sampled_from(
    ["1 day", "-3 months", "1 year -2 days", "90 minutes", "1.5 seconds", "40 days 25 hours"]
)
TEXTS = st.sampled_from(["''", "'a'", "'2'", "'1'", "'Ab'", "'-'", "'2026-01-31'"])


def apply(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: form.format(*found))


wholes = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["j", "CAST(i AS BIGINT)", "place.size", "tags['b']", "length(s)"]),
        st.integers(-9, 9).map(str),
        apply("({} + {})", wholes, wholes),
        apply("({} - {})", wholes, wholes),
        apply("({} / 3)", wholes),
        apply("coalesce({}, {})", wholes, wholes),
        apply("CASE WHEN {} THEN {} ELSE {} END", conditions, wholes, wholes),
        apply("EXTRACT(MONTH FROM {})", times),
        apply("strpos({}, {})", texts, texts),
        apply("TRY_CAST({} AS BIGINT)", texts),
    )
)
texts = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["s", "place.city", "stops[1]", "stops[-1]"]),
        TEXTS,
        apply("upper({})", texts),
        apply("trim({})", texts),
        apply("substr({}, {}, 2)", texts, st.sampled_from("0123")),
        apply("left({}, {})", texts, st.sampled_from(["-2", "0", "3"])),
        apply("right({}, {})", texts, st.sampled_from(["-2", "0", "3"])),
        apply("split_part({}, {}, 1)", texts, TEXTS),
        apply("({} || {})", texts, texts),
        apply("concat({}, {})", texts, texts),
        apply("nullif({}, {})", texts, texts),
        apply("CAST({} AS TEXT)", wholes),
        apply("CAST({} AS TEXT)", days),
        apply("CASE WHEN {} THEN {} END", conditions, texts),
    )
)
times = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["t", "t", "coalesce(t, now())"]),
        apply("(t + INTERVAL '{}')", LENGTHS),
        apply("date_trunc('{}', t - INTERVAL '{}')", UNITS, LENGTHS),
    )
)
days = st.deferred(
    lambda: st.one_of(
        st.just("day"),
        apply("CAST({} AS DATE)", times),
        apply("(day - INTERVAL '{}')", st.sampled_from(["1 month", "40 days", "-1 year"])),
    )
)
COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
conditions = st.deferred(
    lambda: st.one_of(
        apply("({} {} {})", wholes, COMPARED, wholes),
        apply("({} {} {})", texts, COMPARED, texts),
        apply("({} {} t)", times, COMPARED),
        apply("(t {} now() - INTERVAL '{}')", COMPARED, LENGTHS),
        apply("({} {} '2026-01-31')", days, COMPARED),
        apply("(date_trunc('{}', tn) {} '2026-01-01')", UNITS, COMPARED),
        apply("(date_trunc('{}', tz) {} '2024-01-01')", UNITS, COMPARED),
        apply("({} IN (1, -3, 7))", wholes),
        apply("({} LIKE '%2%')", texts),
        apply("({} IS NULL)", texts),
        apply("({} BETWEEN {} AND {})", wholes, wholes, wholes),
        apply("starts_with({}, {})", texts, TEXTS),
        apply("(NOT {})", conditions),
        apply("({} AND {})", conditions, conditions),
        apply("({} OR {})", conditions, conditions),
        apply("({} IS TRUE)", conditions),
    )
)


@settings(deadline=None, max_examples=examples(150))
@given(text=conditions)
def test_no_condition_selects_other_rows_than_the_same_words_in_a_statement(text: str) -> None:
    try:
        found = of_condition(text)
    except InvalidRequestError as error:
        refused = ("nested", "has at most", "is not a number")
        assert any(reason in str(error) for reason in refused), error
        return
    assert found == of_statement(text)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("t::date = '2026-01-31'", "(CAST(\"t\" AS DATE) = DATE '2026-01-31')"),
        (
            "date_trunc('month', t) < '2026-01-01'",
            "(date_trunc('month', \"t\") < TIMESTAMP '2026-01-01 00:00:00')",
        ),
        ("lower(s) = 'a'", None),
        ("CAST(d AS INT) = 1", None),
    ],
)
def test_units_of_time_in_a_statement_become_conditions(text: str, condition: str | None) -> None:
    """So a statement reads no more of a table than the times that it asks for."""
    context = open_session("/tmp", 2**28, 1)
    context.from_arrow(pa.Table.from_batches([BATCH]), "everything")
    plan = context.sql(f'SELECT "row" FROM everything WHERE {text}').optimized_logical_plan()
    while not isinstance(plan.to_variant(), expr.Filter):
        plan = plan.inputs()[0]
    assert translated(plan.to_variant().predicate(), SCHEMA) == condition
