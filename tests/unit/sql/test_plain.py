"""Plain SQL is read as the parser of all SQL reads it, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.sql import parser
from dormouse.sql.plain import read_condition, tokenize
from tests.support.depth import examples
from tests.support.every_type import EVERY_TYPE

NAMES = [*(field.name for field in EVERY_TYPE.fields), "nosuch", "at", "date"]
VALUES = [
    "1", "0", "-3", "1.5", "-0.0", "99999999999999999999", "007", "''", "'a'", "'it''s'", "'1'",
    "'2024-02-29'", "DATE '2024-02-29'", "DATE '2024-02-30'", "TIMESTAMP '2024-02-29 12:00:00'",
    "'2024-02-29T12:00:00Z'", "TIME '12:30:00'", "'12:30'", "X'00ff'", "1e3", "- 1", "--1", "NULL",
    "TRUE", "UUID '123e4567-e89b-12d3-a456-426614174000'", "'123e4567-e89b-12d3-a456-426614174000'",
    "'\\'", "1.", ".5", "$1", "a", "'NaN'", "'-inf'",
]  # fmt: skip
OPERATORS = ["=", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "=="]


def written(name: str) -> str:
    return f'"{name}"' if len(name) % 2 else name


names = st.sampled_from(NAMES).map(written)
values = st.sampled_from(VALUES)
comparisons = st.one_of(
    st.tuples(names, st.sampled_from(OPERATORS), values).map(" ".join),
    st.tuples(names, st.lists(values, min_size=1, max_size=3)).map(
        lambda both: f"{both[0]} IN ({', '.join(both[1])})"
    ),
    st.tuples(names, values, values).map(lambda all_: "{} BETWEEN {} AND {}".format(*all_)),
    st.tuples(names, st.sampled_from(["IS NULL", "is not null", "IS TRUE"])).map(" ".join),
    names,
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR", "and"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"NOT ({text})"),
        inner.map(lambda text: f"NOT {text}"),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(400))
@given(conditions)
@example("i = 1 AND l = 2 OR s = 'a' AND (d > 1 AND d < 2)")
@example("NOT (i = 1) AND NOT (l = 2 OR i IS NULL)")
@example("i BETWEEN 1 AND 2 AND l BETWEEN 2 AND 3")
def test_a_plain_condition_has_the_tree_that_the_parser_makes(text: str) -> None:
    found = read_condition(text, EVERY_TYPE)
    if found is None:
        return
    assert found == parser.parse(text, EVERY_TYPE, None)


@pytest.mark.parametrize(
    "text", ["i = 1", "(i = 1) AND (s <> 'a')", "d > 990", "i IN (1, 2) OR NOT (s IS NULL)"]
)
def test_usual_conditions_are_plain(text: str) -> None:
    assert read_condition(text, EVERY_TYPE) is not None


@given(st.text(alphabet=st.characters(), max_size=30))
@example("i = 1 -- OR l = 2")
@example("i = 1 /* */")
@example("i = 1; s = 'a'")
@example("i = 'a' 'b'")
@example("i = E'a'")
@example("i = U&'a'")
@example("i = 1AND l = 2")
@example("s = '\ud800'")
@example('"i" = 1')
def test_no_text_is_plain_that_the_parser_refuses(text: str) -> None:
    found = read_condition(text, EVERY_TYPE)
    if found is not None:
        assert found == parser.parse(text, EVERY_TYPE, None)


def test_a_condition_that_is_nested_deeply_or_long_is_left_to_the_parser() -> None:
    assert read_condition("(" * 7 + "i = 1" + ")" * 7, EVERY_TYPE) is not None
    assert read_condition("(" * 9 + "i = 1" + ")" * 9, EVERY_TYPE) is None
    assert read_condition(" OR ".join(["i = 1"] * 101), EVERY_TYPE) is None
    assert read_condition(f"s = '{'a' * 2048}'", EVERY_TYPE) is None


@pytest.mark.parametrize("form", ["i = 1 OR l = 2 AND NOT ({})", "(i = 1 OR l = 2 AND ({}))"])
def test_what_the_parser_finds_nested_too_deeply_is_not_plain(form: str) -> None:
    text = "i = 1"
    for _ in range(8):
        text = form.format(text)
        if read_condition(text, EVERY_TYPE) is not None:
            assert parser.parse(text, EVERY_TYPE, None) == read_condition(text, EVERY_TYPE)
    assert read_condition(text, EVERY_TYPE) is None


def test_tokens_are_what_is_in_quotes() -> None:
    found = tokenize("a >= 'it''s' AND \"b\"\"c\" <> -1.5 ")
    assert found is not None
    shown = [token.text for token in found]
    assert shown == ["a", ">=", "it's", "AND", 'b"c', "<>", "-", "1.5"]


def test_an_error_in_a_plain_condition_is_that_of_the_parser() -> None:
    from dormouse.sql.conditions import parse_condition

    with pytest.raises(InvalidRequestError, match="line 1, column 1: "):
        parse_condition("i = 'a'", EVERY_TYPE)
