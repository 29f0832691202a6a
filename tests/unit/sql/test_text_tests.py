"""What conditions ask of texts."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import parse_schema
from dormouse.sql.conditions import Tests, TextTest, parse_condition, text_tests

SCHEMA = parse_schema("id:long, m:string?, d:dynamic?", row_keys=["id"])


def shown(tests: Tests | None) -> str:
    if tests is None:
        return "?"
    if isinstance(tests, TextTest):
        begin, end = "^" * tests.is_begun, "$" * tests.is_ended
        return f"{tests.column}:{begin}{tests.text}{end}"
    joined = (" & " if tests.needs_all else " | ").join(map(shown, tests.tests))
    return f"({joined})"


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("has(m, 'a b')", "m:^a b$"),
        ("m = 'a' OR 'b' = m", "(m:^a$ | m:^b$)"),
        ("m IN ('a', 'b') AND id > 3", "(m:^a$ | m:^b$)"),
        ("m LIKE 'ab%cd_ef'", "(m:^ab & m:cd & m:ef$)"),
        ("m LIKE '%'", "?"),
        (r"m LIKE '%a\%b%'", "(m:a & m:b)"),
        ("m ILIKE '%aüb'", "(m:a & m:b$)"),
        (
            "contains(m, 'a') AND (starts_with(m, 'b') OR ends_with(m, 'c'))",
            "(m:a & (m:^b | m:c$))",
        ),
        ("(has(m, 'a')) IS TRUE", "m:^a$"),
        ("has(m, 'a') OR id = 3", "?"),
        ("NOT has(m, 'a')", "?"),
        ("m NOT LIKE '%a%'", "?"),
        ("has(lower(m), 'a')", "?"),
        ("has(d.x, 'a')", "?"),
    ],
)
def test_each_row_that_matches_passes_them(where: str, wanted: str) -> None:
    assert shown(text_tests(parse_condition(where, SCHEMA).expression)) == wanted


@pytest.mark.parametrize(
    "where", ["has(m, '--')", "has(m, '')", "has(m, m)", "has(id, 'a')", "has(m)"]
)
def test_what_is_looked_for_is_a_text_with_a_word(where: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_condition(where, SCHEMA)


def test_the_normal_form_means_the_same() -> None:
    condition = parse_condition("has(m, 'it''s') AND NOT has(d.x, 'b')", SCHEMA)
    assert parse_condition(condition.sql, SCHEMA) == condition
