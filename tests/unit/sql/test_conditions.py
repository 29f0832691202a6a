"""Conditions in SQL: what is refused, where and why; nothing of the text reaches the engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.sql.conditions import (
    MAX_BRACKETS,
    MAX_CONDITION_CHARACTERS,
    MAX_LIST,
    MAX_PATTERN,
    parse_condition,
)

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "id", "type": "LongType"}],
        "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
        "valueFields": [
            {"name": "name", "type": "StringType"},
            {"name": 'od"d; --', "type": "StringType"},
            {"name": "price", "type": {"DecimalType": {"precision": 9, "scale": 2}}},
            {"name": "weight", "type": "DoubleType", "nullable": True},
            {"name": "ok", "type": "BooleanType"},
            {"name": "raw", "type": "ByteArrayType"},
            {"name": "day", "type": "DateType"},
            {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        ],
    }
)

REFUSED = [
    ("", "line 1, column 1: the condition ends too early"),
    ("id = ", "ends too early"),
    ("id = 1 1", "column 8: 1 is not allowed there"),
    ("id = 1 id", "not allowed"),
    ("name = 'open", "column 8: the quote ' is not closed"),
    ("{ : } id", "{ is not allowed there"),
    ("id = 1e", "'1e' is not a number"),
    ("nobody = 1", "no column 'nobody'; columns: id, at"),
    ("t.id = 1", "t.id: a column is named on its own"),
    ("name", "name is string; a condition is needed"),
    ("id + 1", "id + 1 is long; a condition is needed"),
    ("ok AND id", "id is long; a condition is needed"),
    ("name > 1", "name > 1: string and long cannot be compared"),
    ("id = 'one'", "'one' is not a number"),
    ("id > '1.5'", "1.5 is not a whole number"),
    ("id = 'NaN'", "'NaN' is not a number"),
    ("price < 'Infinity'", "'Infinity' is not a number"),
    ("price = CAST('NaN' AS DOUBLE)", "decimal(9,2) and double cannot be compared"),
    ("id = CAST(1 AS DOUBLE)", "long and double cannot be compared"),
    ("id = CAST(CAST('NaN' AS DOUBLE) AS INT)", "that constant cannot be cast"),
    ("weight = CAST(1e39 AS REAL)", "beyond 32 bits"),
    ("weight / 'NaN' = 1", "a number above zero"),
    ("isnan(id)", "is for floats, not long"),
    ("ok = 'true'", "boolean and string cannot be compared"),
    ("id = weight", "long and double cannot be compared"),
    ("id + 1.5 > 1", "1.5 is not a whole number of 64 bits"),
    ("id > 1e40", "no 38 digits in common"),
    ("at > 'yesterday'", "'yesterday' is not a time"),
    ("day > '2026-02-30'", "'2026-02-30' is not a date"),
    ("at > TIMESTAMP 'noon'", "'noon' is not a time"),
    ("day = DATE '2026-02-30'", "'2026-02-30' is not a date"),
    ("day = at", "date and timestamp cannot be compared"),
    ("raw = 'a'", "X'00ff'"),
    ("raw = X'0'", "two hex digits"),
    ("ok = 1", "boolean and long cannot be compared"),
    ("price = 99999999999999999999999999999999999999", "no 38 digits in common"),
    ("weight = 1e400", "beyond"),
    ("weight = 1e99999", "beyond"),
    ("tags = 1", "list<string> cannot be compared"),
    ("id = NULL", "NULL is not allowed"),
    ("id IN ()", "IN needs a list"),
    ("id IN (SELECT 1)", "IN needs a list"),
    ("id IN (1, id)", "may hold only values"),
    ("name LIKE name", "the pattern must be a text"),
    ("name LIKE 'a!%' ESCAPE '!'", "not allowed"),
    ("name LIKE ANY ('a')", "not allowed"),
    ("name ~ 'a+'", "not allowed"),
    ("name || id = 'b'", "is for string, string, not for string, long"),
    ("id / 0 = 1", "the divisor must be a number above zero"),
    ("10 % id = 1", "the divisor must be a number above zero"),
    ("price + 1 = 2", "calculates with decimal(9,2)"),
    ("-price = 1", "calculates with decimal(9,2)"),
    ("-name = 1", "-name: long and string cannot be compared"),
    ("-ok", "long and boolean cannot be compared"),
    ("-name = 'a'", "long and string cannot be compared"),
    ("trim(BOTH 'a' FROM name) = 'b'", "BOTH is not allowed there"),
    ("lower(id) = 'a'", "is for string, not for long"),
    ("starts_with(name)", "is for string, string, not for string"),
    ("EXTRACT(EPOCH FROM at) = 1", "EPOCH cannot be extracted"),
    ("EXTRACT(YEAR FROM id) = 1", "extracts from long"),
    ("CAST(name AS BIGINT) = 1", "not every string can be cast; TRY_CAST makes NULL"),
    ("weight::text = '1'", "double cannot be cast to that"),
    ("TRY_CAST(raw AS TEXT) = 'a'", "bytes cannot be cast to that"),
    ("id::smallint = 1", "SMALLINT is no type that conditions cast to"),
    ("id::int[] IS NULL", "conditions cast to no list"),
    ("CAST('2026-02-30' AS DATE) = day", "'2026-02-30' is not a date"),
    ("CAST('a' AS BIGINT) = id", "'a' is not a number"),
    ("CAST('2026-01-31' AS DATE FORMAT 'YYYY') = day", "not"),
    ("id BETWEEN SYMMETRIC 3 AND 1", "no column 'SYMMETRIC'"),
    ("now() > at", "has no present time; a table's rows age by the filter ageOff"),
    ("current_date > day", "has no present time"),
    ("current_time IS NULL", "no column 'current_time'"),
    ("at > at - INTERVAL '1 fortnight'", "'1 fortnight ' is not an interval"),
    ("at > at - INTERVAL '20000 years'", "an interval has at most 10,000 years"),
    ("at > TIMESTAMP '2026-01-31' + INTERVAL '9000 years'", "outside of the years 1 to 9999"),
    ("day > day - INTERVAL '1 hour'", "a date is moved by whole days and months"),
    ("id - INTERVAL '1 day' > id", "long and an interval cannot be added"),
    ("at - INTERVAL '1 day' * id > at", "not allowed"),
    ("date_trunc('era', at) = at", "times cannot be cut to 'era'"),
    ("date_trunc('day', id) = at", "long is no time"),
    (
        "date_trunc('day', date_trunc('day', date_trunc('day', date_trunc('day', at)))) = at",
        "nested deeper than 3",
    ),
    ("name.city = 'a'", "string has no members"),
    ("tags['a'] = 'a'", "list<string> has no such part"),
    ("tags[id] = 'a'", "in brackets is a text in quotes or a number"),
    ("tags[1:2] = 'a'", "not allowed"),
    ("substr(name, id) = 'a'", "argument 2 must be a number"),
    ("substr(name, 1, -1) = 'a'", "argument 3 must be at least 0"),
    ("split_part(name, ',', 0) = 'a'", "argument 3 must be at least 1"),
    ("id = 1 AND\n  wieght > 2", "line 2, column 3: wieght: there is no column 'wieght'"),
    ("id = 1 AND\n  wieght > 2", "did you mean weight?"),
    ("id > 1 OR name > 2", "line 1, column 11: name > 2"),
    ("coalesce(TIMESTAMP '2026-01-31', TIMESTAMP '2026-02-01') < at", "must be of a column"),
    ("random() > 0.5", "no function 'random'"),
    ("count(id) > 1", "no function 'count'"),
    ("row_number() OVER (ORDER BY id) = 1", "no function 'row_number'"),
    ("pg_sleep(10) IS NULL", "no function 'pg_sleep'"),
    ("read_file('/etc/passwd') = 'a'", "no function 'read_file'"),
    ("EXISTS (SELECT 1)", "not allowed"),
    ("/* a /* b */ */ ok", "/ is not allowed there"),
    ("id = 1; DROP TABLE t", "not allowed"),
    ("SELECT 1", "not allowed"),
    ("id = $1", "not allowed"),
    ("id = ?", "not allowed"),
    ("CASE WHEN id THEN ok END", "id is long; a condition is needed"),
    ("CASE WHEN ok THEN 1 ELSE name END = 1", "name"),
    ("(id, ok) = (1, TRUE)", "not allowed"),
    ("name = E'a\\n'", "not allowed"),
    ("NOT " * 17 + "ok", "nested deeper than 16"),
    ("(" * 5000 + "ok" + ")" * 5000, "nested deeper than 16"),
    ("ok AND " * MAX_LIST + "ok", "1,001 parts; at most 1,000"),
    ("id IN (" + "1," * MAX_LIST + "1)", "parts; at most 1,000"),
    ("ok AND " * MAX_CONDITION_CHARACTERS + "ok", "at most 16,384"),
    ("(" * (MAX_BRACKETS + 1) + "ok" + ")" * (MAX_BRACKETS + 1), "nested deeper than 16"),
    ("id IN (" + " OR id IN (".join(["1," * 999 + "1)"] * 8), "the condition has 2"),
    (f"name LIKE '{'_' * 11_000}'", "the pattern has 11,000 characters; at most 1,000"),
    (f"name NOT ILIKE '{'a' * (MAX_PATTERN + 1)}'", "starts_with, ends_with and contains"),
    ("at > TIMESTAMP '0001-01-01 00:00:00+14:00'", "is not a time: date value out of range"),
    ("at > TIMESTAMP '9999-12-31 23:00:00-14:00'", "is not a time: date value out of range"),
    ("at >= TIMESTAMP '2026-01-31 12:00:00.0000001'", "times are whole microseconds"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_what_is_no_condition_or_not_allowed_is_refused_with_where_and_why(
    text: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse_condition(text, SCHEMA)
    assert reason in refusal.value.explanation
    assert len(refusal.value.explanation) < 500


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("id=1 -- all", '("id" = 1)'),
        ("/* some */ ok --", '"ok"'),
        ("ok and (ok and ok)", '("ok" AND ("ok" AND "ok"))'),
        ("id not in (1, -2)", '(NOT ("id" IN (1, -2)))'),
        ("id between 1 and 2", '(("id" >= 1) AND ("id" <= 2))'),
        ("\"od\"\"d; --\" = 'it''s; --'", "(\"od\"\"d; --\" = 'it''s; --')"),
        ("price >= 1e1", '("price" >= 10)'),
        ("weight < -.5", '("weight" < -0.5)'),
        (
            "at < timestamp '2026-01-31T13:00:00+01:00'",
            "(\"at\" < TIMESTAMP '2026-01-31 12:00:00')",
        ),
        ("cast('2026-01-31' as date) = day", "(DATE '2026-01-31' = \"day\")"),
        ("raw = x'00FF'", "(\"raw\" = X'00ff')"),
        ("id isnull", '("id" IS NULL)'),
        ("id > 1.5", '(CAST("id" AS DECIMAL(19, 0)) > 1.5)'),
        ("id < price", '(CAST("id" AS DECIMAL(19, 0)) < "price")'),
        ("id = - -5", '("id" = 5)'),
        ("weight = 1 IS TRUE", '(("weight" = 1.0) IS TRUE)'),
        ("ok = id > 1 AND NOT ok = ok", '(("ok" = ("id" > 1)) AND (NOT ("ok" = "ok")))'),
        ("id - 2 * -id % 3 + 1 > 0", '((("id" - ((2 * (0 - "id")) % 3)) + 1) > 0)'),
        ("name || 'b' in ('a')", "((\"name\" || 'b') IN ('a'))"),
        ("timestamptz '2026-01-31'::date = day", "(DATE '2026-01-31' = \"day\")"),
        (
            "interval '1' day + at < timestamp with time zone '2026-01-31 00:00:00+01:00'",
            "((\"at\" + INTERVAL '1 days') < TIMESTAMP '2026-01-30 23:00:00')",
        ),
        ("trim(leading from name) is not unknown", '(NOT (ltrim("name") IS NULL))'),
        ("weight = 'nan'", "(\"weight\" = CAST('NaN' AS DOUBLE))"),
        ("isnan(weight)", "(\"weight\" = CAST('NaN' AS DOUBLE))"),
        ("weight > cast('-inf' as double)", "(\"weight\" > CAST('-Infinity' AS DOUBLE))"),
        ("weight = -cast('inf' as real)", "(\"weight\" = (0.0 - CAST('Infinity' AS DOUBLE)))"),
        ("1 < cast('NaN' as double)", "(1.0 < CAST('NaN' AS DOUBLE))"),
        ("weight = cast(0.5 as real)", '("weight" = 0.5)'),
    ],
)
def test_a_condition_has_a_normal_form_that_parses_to_the_same(text: str, normal: str) -> None:
    condition = parse_condition(text, SCHEMA)
    assert condition.sql == normal
    assert parse_condition(normal, SCHEMA) == condition


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_as_a_literal_and_nothing_more(value: str) -> None:
    quoted = value.replace("'", "''")
    condition = parse_condition(f"name = '{quoted}'", SCHEMA)
    assert condition.columns == {"name"}
    assert condition.sql == f"(\"name\" = '{quoted}')"


@given(st.text(st.sampled_from("'\"();,-/* =\\idok1.eEXN\n"), max_size=30))
def test_no_text_does_more_than_parse_or_be_refused(text: str) -> None:
    try:
        condition = parse_condition(text, SCHEMA)
    except InvalidRequestError:
        return
    assert condition.columns <= {field.name for field in SCHEMA.fields}
    assert parse_condition(condition.sql, SCHEMA) == condition


@pytest.mark.parametrize(
    ("inner", "condition"),
    [
        ("id", "{} BETWEEN 1 AND 2"),
        ("name", "{} NOT LIKE 'a%'"),
        ("name", "{} IS NOT NULL"),
        ("name", "{} IN ('a')"),
    ],
)
def test_the_normal_form_of_what_is_just_not_too_deep_is_not_too_deep(
    inner: str, condition: str
) -> None:
    accepted = 0
    for levels in range(10, 20):
        nested = f"({inner} + 1)" if inner == "id" else f"lower({inner})"
        for _ in range(levels - 1):
            nested = f"({nested} + 1)" if inner == "id" else f"lower({nested})"
        try:
            found = parse_condition(condition.format(nested), SCHEMA)
        except InvalidRequestError as error:
            assert "nested deeper than 16" in str(error)
            continue
        accepted += 1
        assert parse_condition(found.sql, SCHEMA) == found
    assert 0 < accepted < 10


def test_a_negation_is_a_condition_on_the_same_columns() -> None:
    condition = parse_condition("weight > 1 OR id = 2", SCHEMA)
    assert condition.negated().columns == condition.columns == {"weight", "id"}
