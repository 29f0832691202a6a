"""Bounds of times: conditions on units of time leave out what no matching row can be in."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.keys import INT64_MAX, INT64_MIN, KeyRange, encode_key
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive, parse_count
from dormouse.sql.conditions import TRUNCATED, parse_condition
from dormouse.sql.key_bounds import key_bounds
from tests.support.depth import examples

NOW_MS = 1_769_862_615_250  # 2026-01-31T12:30:15.25Z


def schema_of(kind: str) -> Schema:
    return Schema.from_json(
        {
            "rowKeyFields": [{"name": "at", "type": kind}],
            "valueFields": [{"name": "v", "type": "LongType"}],
        }
    )


TIMES = schema_of("TimestampType")


def span(start: str | None, end: str | None) -> KeyRange:
    first = () if start is None else (parse_count(start, Primitive.TIMESTAMP),)
    return KeyRange(first, None if end is None else (parse_count(end, Primitive.TIMESTAMP),))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("at >= now() - INTERVAL '1 day'", span("2026-01-30T12:30:15.250", None)),
        ("at < current_date", span(None, "2026-01-31")),
        ("at >= CAST('2026-01-31' AS DATE)", span("2026-01-31", None)),
        ("at >= date_trunc('month', now())", span("2026-01-01", None)),
        ("at < '2026-02-01'::timestamp - INTERVAL '1 month'", span(None, "2026-01-01")),
        ("date_trunc('month', at) = '2026-02-01'", span("2026-02-01", "2026-03-01")),
        ("date_trunc('month', at) = '2026-02-02'", None),
        ("date_trunc('month', at) > '2026-02-02'", span("2026-03-01", None)),
        ("date_trunc('month', at) >= '2026-02-01'", span("2026-02-01", None)),
        ("date_trunc('month', at) < '2026-02-01'", span(None, "2026-02-01")),
        ("date_trunc('month', at) < '2026-02-02'", span(None, "2026-03-01")),
        ("'2026-02-01' >= date_trunc('quarter', at)", span(None, "2026-04-01")),
        ("at::date = '2024-02-29'", span("2024-02-29", "2024-03-01")),
        ("date_trunc('week', at) = '2026-01-26'", span("2026-01-26", "2026-02-02")),
        ("EXTRACT(YEAR FROM at) = 2026", span("2026-01-01", "2027-01-01")),
        ("date_trunc('year', at) >= '9999-01-01'", KeyRange()),
        ("date_trunc('month', at) <> '2026-02-01'", KeyRange()),
        ("at + INTERVAL '1 day' > '2026-02-01'", KeyRange()),
    ],
)
def test_a_time_that_is_calculated_once_and_a_unit_of_time_bound_keys(
    text: str, wanted: KeyRange | None
) -> None:
    found = key_bounds(parse_condition(text, TIMES, now_ms=NOW_MS), TIMES)
    assert found == ([] if wanted is None else [wanted])


DAYS = st.dates(dt.date(1700, 1, 1), dt.date(2250, 12, 31))
KINDS = ["TimestampType", "TimestampNtzType", "TimestampNsType", "TimestampNtzNsType"]


@settings(deadline=None, max_examples=examples(40))
@given(
    kind=st.sampled_from(KINDS),
    unit=st.sampled_from(TRUNCATED),
    op=st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]),
    day=DAYS,
    near=st.lists(st.integers(-40 * 86_400, 400 * 86_400), min_size=1, max_size=30),
    form=st.sampled_from(["date_trunc('{}', at) {} '{}'", "at::date {1} '{2}'"]),
)
def test_no_matching_row_is_outside_of_the_bounds(
    kind: str, unit: str, op: str, day: dt.date, near: list[int], form: str
) -> None:
    schema = schema_of(kind)
    per = 10**9 if "Ns" in kind else 10**6
    start = (day - dt.date(1970, 1, 1)).days * 86_400
    counts = [(start + seconds) * per for seconds in (*near, 0, -1, 1)]
    column = pa.array(counts, pa.int64()).cast(arrow_schema(schema).field("at").type)
    batch = pa.record_batch([column, pa.array(counts)], arrow_schema(schema))
    predicate = parse_predicate(form.format(unit, op, day), schema)
    spans = key_bounds(predicate.condition, schema)
    matching = [n for part in predicate.apply([batch]) for n in part.column(1).to_pylist()]
    assert all(any(each.contains(encode_key((n,))) for each in spans) for n in matching)


EXTREMES = [INT64_MIN, INT64_MIN + 1, -(10**17), -1, 0, 10**17, INT64_MAX - 1, INT64_MAX]


@pytest.mark.parametrize("kind", [*KINDS, "DateType"])
@pytest.mark.parametrize(
    "value",
    [
        *(f"date_trunc('{unit}', at)" for unit in TRUNCATED),
        *("at + INTERVAL '1 month'", "at - INTERVAL '9999 years'", "at - INTERVAL '40 days'"),
        *("at + INTERVAL '3 months -90 days'", "at::text", "TRY_CAST(at AS TIMESTAMP)"),
        "CAST(at + INTERVAL '1 year' AS DATE)",
    ],
)
def test_no_time_is_too_early_or_too_late_to_be_tested(kind: str, value: str) -> None:
    """DataFusion ends with an error on times that it cannot calculate with; conditions do not."""
    schema = schema_of(kind)
    is_date = kind == "DateType"
    counts = [max(-(2**31), min(2**31 - 1, n)) for n in EXTREMES] if is_date else EXTREMES
    stored = pa.int32() if is_date else pa.int64()
    column = pa.array(counts, stored).cast(arrow_schema(schema).field("at").type)
    batch = pa.record_batch([column, pa.array(EXTREMES)], arrow_schema(schema))
    predicate = parse_predicate(f"{value} IS NOT NULL", schema)
    found = sum(part.num_rows for part in predicate.apply([batch]))
    others = sum(part.num_rows for part in predicate.negated().apply([batch]))
    assert found + others == len(EXTREMES)
    assert found or "9999" in value
