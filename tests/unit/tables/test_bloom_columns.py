"""The property bloom_columns names columns of the table, of types that can have filters."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.tables.properties import Properties, bloom_columns

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "mail", "type": "StringType"},
            {"name": "price", "type": "DoubleType"},
            {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        ],
    }
)


@pytest.mark.parametrize(
    ("text", "names"), [("", ()), ("mail", ("mail",)), (" mail , k,mail,", ("mail", "k"))]
)
def test_columns_are_named_once_each(text: str, names: tuple[str, ...]) -> None:
    assert bloom_columns(SCHEMA, Properties(bloom_columns=text)) == names


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("mail, post", "no column 'post'", "k, mail, price, tags"),
        ("price", "price is double", "string"),
        ("tags", "tags is .*can have no Bloom filter", "string"),
    ],
)
def test_other_columns_are_refused(text: str, reason: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        bloom_columns(SCHEMA, Properties(bloom_columns=text))
    assert hint in caught.value.hint
