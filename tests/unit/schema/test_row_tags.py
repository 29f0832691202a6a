"""Row tags as text: which there are, how keys of files say them, and what shards know of them."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.schema.row_tags import (
    ANY,
    all_have,
    joined_texts,
    may_have,
    merged_texts,
    only_text,
    parse_tags,
    row_tags,
    tag_in,
    tags_of,
    tags_of_key,
    with_tags,
    without_tags,
)
from dormouse.schema.schema import Schema, parse_schema
from dormouse.sql.conditions import parse_condition
from dormouse.sql.key_bounds import wanted_tags

SCHEMA: Schema = parse_schema("k:long, n:long", ["k"])


@pytest.mark.parametrize(
    "tags",
    [
        {"": "x"},
        {"1st": "x"},
        {"a b": "x"},
        {"a=b": "x"},
        {"k" * 65: "x"},
        {"a": ""},
        {"a": "x\ny"},
        {"a": "\x1e"},
        {"a": "\ud800"},
        {"a": "x" * 257},
        {"a": "ü" * 60},
        {f"k{n}": "x" for n in range(17)},
        {f"k{n}": "x" * 60 for n in range(10)},
        {"a": 1},
    ],
)
def test_tags_that_are_too_many_too_long_or_of_other_characters_are_refused(
    tags: dict[str, str],
) -> None:
    with pytest.raises(InvalidRequestError):
        row_tags(tags)


def test_tags_are_one_text_whatever_their_order_and_come_back() -> None:
    tags = {"source": "a=b/c %41 ü", "day": "2026-01-31", "x.y-z_": "''"}
    text = row_tags(tags)
    assert text == row_tags(dict(reversed(tags.items())))
    assert tags_of(text) == tags
    assert row_tags({}) == "" and tags_of("") == {}
    key = with_tags("t/part.csv", tags)
    assert tags_of_key(key) == tags and without_tags(key) == "t/part.csv"
    assert key.count("/") == 4


@pytest.mark.parametrize(
    "key",
    [
        "t/tag.a=1/tag.a=2/x.csv",
        "t/tag.a=/x.csv",
        "t/tag.a/x.csv",
        "t/tag.a=%0a/x",
        "t/tag.a=%FF/x",
    ],
)
def test_a_key_that_says_no_tags_is_refused(key: str) -> None:
    with pytest.raises(RefusedSourceError, match="folder of the file"):
        tags_of_key(key)
    assert tags_of_key("tag.a=1.csv") == tags_of_key("t/tag.a=1") == {}


def test_what_is_given_as_key_and_value_is_checked() -> None:
    assert parse_tags(["a=1=2", "b=x"]) == {"a": "1=2", "b": "x"}
    for given in (["a"], ["a=1", "a=2"], ["=1"]):
        with pytest.raises(InvalidRequestError):
            parse_tags(given)


def test_shards_know_which_tags_their_rows_may_have_and_which_all_have() -> None:
    one, two = row_tags({"a": "1", "b": "2"}), row_tags({"a": "1"})
    wanted = (tag_in("a", "1"),)
    both = joined_texts([two, one, two])
    assert only_text(both) is None and only_text(one) == one and only_text("") == ""
    assert may_have(both, wanted) and all_have(both, wanted)
    assert may_have(both, [tag_in("b", "2")]) and not all_have(both, [tag_in("b", "2")])
    assert not may_have(both, [tag_in("a", "2")]) and not may_have("", wanted)
    mixed = merged_texts([both, ""])
    assert may_have(mixed, wanted) and not all_have(mixed, wanted)
    many = joined_texts(row_tags({"a": str(n)}) for n in range(1000))
    assert many == merged_texts([many, one]) == ANY
    assert may_have(many, wanted) and not all_have(many, wanted)


@pytest.mark.parametrize(
    ("text", "tags", "takes_all"),
    [
        ("tag('a') = '1'", ["1"], True),
        ("'1' = tag('a')", ["1"], True),
        ("tag('a') IN ('1', '2')", ["1", "2"], True),
        ("tag('a') = '1' OR tag('a') = '2'", ["1", "2"], True),
        ("tag('a') = '1' AND n > 5", ["1"], False),
        ("n > 5 AND (tag('a') = '1' OR tag('a') = '2')", ["1", "2"], False),
        ("tag('a') = '1' OR n > 5", None, False),
        ("NOT tag('a') = '1'", None, False),
        ("tag('a') <> '1'", None, False),
        ("tag('a') IS NULL", None, False),
        ("upper(tag('a')) = '1'", None, False),
        ("tag('a') = tag('b')", None, False),
        ("tag('a') = 'x\n'", [], True),
    ],
)
def test_conditions_say_which_tags_rows_need(
    text: str, tags: list[str] | None, takes_all: bool
) -> None:
    condition = parse_condition(text, SCHEMA, of_rows=True)
    found, is_exact = wanted_tags(condition.expression)
    wanted = None if tags is None else tuple(tag_in("a", value) for value in tags)
    assert (found, is_exact) == (wanted, takes_all)
    assert parse_condition(condition.sql, SCHEMA, of_rows=True) == condition


@pytest.mark.parametrize("text", ["tag(n) = '1'", "tag() = '1'", "tag('a b') = '1'", "tag('a')"])
def test_a_condition_calls_tag_with_a_key(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_condition(text, SCHEMA, of_rows=True)
    with pytest.raises(InvalidRequestError, match="not known here"):
        parse_condition("tag('a') = '1'", SCHEMA)
