"""The property `term_index`."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.tables.indexing import term_columns
from dormouse.tables.properties import properties_of

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "id", "type": "LongType"}],
        "valueFields": [
            {"name": "m", "type": "StringType", "nullable": True},
            {"name": "a:log", "type": "StringType"},
            {"name": "n", "type": "IntType"},
            {"name": "d", "type": "dynamic", "nullable": True},
            {"name": "l", "type": "list<string>"},
        ],
    }
)


def test_columns_are_named_with_their_tokenizers() -> None:
    properties = properties_of({"term_index": " m:log, a:log ,, m:log, a:log:word"})
    assert term_columns(SCHEMA, properties) == (("m", "log"), ("a:log", "word"))
    assert term_columns(SCHEMA, properties_of({})) == ()


@pytest.mark.parametrize("text", ["x", "m:ngram", "n", "d", "l", "m:", "m, m:log", ":log"])
def test_what_is_no_column_of_text_or_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="term_index"):
        term_columns(SCHEMA, properties_of({"term_index": text}))
