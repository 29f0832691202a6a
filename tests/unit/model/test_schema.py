"""Schemas: the original's JSON unchanged, more types, and clear refusals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.model.schema import (
    KEY_TYPES,
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
)

ORIGINAL = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "sortKeyFields": [{"name": "timestamp", "type": "LongType"}],
    "valueFields": [
        {"name": "int", "type": "IntType"},
        {"name": "bytes", "type": "ByteArrayType", "nullable": True},
        {"name": "list", "type": {"ListType": {"elementType": "IntType"}}},
        {"name": "map", "type": {"MapType": {"keyType": "IntType", "valueType": "StringType"}}},
    ],
}


def test_the_json_of_the_original_is_read_and_written_unchanged() -> None:
    schema = Schema.from_json(ORIGINAL)
    assert schema.to_json() == ORIGINAL
    assert [f.name for f in schema.keys] == ["key", "timestamp"]
    assert schema.field_named("list").type == ListType(Primitive.INT)


_types = st.recursive(
    st.sampled_from(Primitive)
    | st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda scale: DecimalType(p, scale))
    ),
    lambda inner: (
        st.builds(ListType, inner) | st.builds(MapType, st.sampled_from(Primitive), inner)
    ),
    max_leaves=3,
)


@given(st.lists(st.sampled_from(sorted(KEY_TYPES, key=str)), min_size=1), st.lists(_types))
def test_any_schema_is_read_back_from_its_json(
    keys: list[Primitive], values: list[FieldType]
) -> None:
    schema = Schema(
        tuple(Field(f"k{i}", kind) for i, kind in enumerate(keys)),
        values=tuple(Field(f"v{i}", kind, nullable=i % 2 == 0) for i, kind in enumerate(values)),
    )
    assert Schema.loads(schema.dumps()) == schema


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no row key"),
        ('{"rowKeyFields": "key"}', "not a list"),
        ('{"rowKeyFields": [{"name": "k"}]}', "has no type"),
        ('{"rowKeyFields": [{"type": "IntType"}]}', "no usable name"),
        ('{"rowKeyFields": [{"name": "a\\u0000", "type": "IntType"}]}', "no usable name"),
        ('{"rowKeyFields": [{"name": "k", "type": "TextType"}]}', "unknown type"),
        ('{"rowKeyFields": [{"name": "k", "type": "DoubleType"}]}', "cannot be a key"),
        (
            '{"rowKeyFields": [{"name": "k", "type": {"ListType": {"elementType": "IntType"}}}]}',
            "cannot be a key",
        ),
        ('{"rowKeyFields": [{"name": "k", "type": "IntType", "nullable": true}]}', "nullable"),
        ('{"rowKeyFields": [{"name": "k", "type": "IntType", "nullable": 1}]}', "true or false"),
        (
            '{"rowKeyFields": [{"name": "k", "type": "IntType"}],'
            ' "valueFields": [{"name": "k", "type": "IntType"}]}',
            "more than once",
        ),
        ('{"rowKeyFields": [], "columns": []}', "unknown parts: columns"),
        (
            '{"rowKeyFields": [{"name": "k", "type": "IntType"}], "valueFields":'
            ' [{"name": "d", "type": {"DecimalType": {"precision": 40, "scale": 1}}}]}',
            "not a decimal type",
        ),
    ],
)
def test_a_bad_schema_is_refused_with_its_reason(body: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        Schema.loads(body)


def test_more_fields_than_the_bound_are_refused() -> None:
    fields = [{"name": f"f{i}", "type": "IntType"} for i in range(1001)]
    with pytest.raises(InvalidRequestError, match="at most 1000"):
        Schema.loads(json.dumps({"rowKeyFields": fields}))


def test_an_unknown_column_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Schema.from_json(ORIGINAL).field_named("tiemstamp")
    assert "timestamp" in refused.value.hint
