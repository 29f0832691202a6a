"""Schemas: Sleeper's JSON is accepted unchanged, with more types; errors say where and why."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    KeyType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
)
from tests.support.batches import KEY_TYPES, WITHIN

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


def test_the_json_of_the_original_is_read_unchanged_and_gets_ids() -> None:
    schema = Schema.from_json(ORIGINAL)
    assert [f.id for f in schema.fields] == [1, 2, 3, 4, 5, 6]
    assert [f.nested_ids for f in schema.values] == [(), (), (7,), (8, 9)]
    assert schema.next_field_id == 10
    assert _without_ids(schema.to_json()) == ORIGINAL
    assert [f.name for f in schema.keys] == ["key", "timestamp"]
    assert schema.field_named("list").type == ListType(Primitive.INT)


def _without_ids(body: dict[str, object]) -> dict[str, object]:
    return {
        part: [
            {name: value for name, value in field.items() if name not in ("id", "nestedIds")}
            for field in fields
        ]
        for part, fields in body.items()
        if isinstance(fields, list)
    }


def _struct_of(kinds: list[FieldType]) -> StructType:
    return StructType(tuple(Member(f"m{i}", kind, i % 2 == 1) for i, kind in enumerate(kinds)))


types = st.recursive(
    st.sampled_from(WITHIN)
    | st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda scale: DecimalType(p, scale))
    ),
    lambda inner: (
        st.builds(ListType, inner)
        | st.builds(MapType, st.sampled_from(WITHIN), inner)
        | st.lists(inner, min_size=1, max_size=2).map(_struct_of)
    ),
    max_leaves=3,
) | st.just(Primitive.DYNAMIC)


@given(st.lists(KEY_TYPES, min_size=1), st.lists(types))
def test_any_schema_is_read_back_from_its_json(
    keys: list[KeyType], values: list[FieldType]
) -> None:
    schema = Schema(
        tuple(Field(f"k{i}", kind) for i, kind in enumerate(keys)),
        values=tuple(Field(f"v{i}", kind, nullable=i % 2 == 0) for i, kind in enumerate(values)),
    )
    assert Schema.loads(schema.dumps()) == schema


def _with(kind: object, **more: object) -> str:
    schema = {"nextFieldId": more.pop("nextFieldId", 1)}
    key, value = {"name": "k", "type": "IntType"}, {"name": "v", "type": kind, **more}
    return json.dumps({**schema, "rowKeyFields": [key], "valueFields": [value]})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "no row key"),
        ('{"rowKeyFields": "key"}', "Expected `array | null`, got `str`"),
        (
            '{"rowKeyFields": [{"name": "k"}]}',
            r"missing required field `type` - at `\$.rowKeyFields\[0\]",
        ),
        ('{"rowKeyFields": [{"type": "IntType"}]}', "missing required field `name`"),
        ('{"rowKeyFields": [{"name": "a\\u0000", "type": "IntType"}]}', "cannot be called"),
        ('{"rowKeyFields": [{"name": "k", "type": "TextType"}]}', "unknown type"),
        ('{"rowKeyFields": [{"name": "k", "type": "DoubleType"}]}', "cannot be a key"),
        (
            '{"rowKeyFields": [{"name": "k", "type": {"ListType": {"elementType": "IntType"}}}]}',
            "cannot be a key",
        ),
        ('{"rowKeyFields": [{"name": "k", "type": "IntType", "nullable": true}]}', "nullable"),
        (
            '{"rowKeyFields": [{"name": "k", "type": "IntType", "nullable": 1}]}',
            "Expected `bool`, got `int`",
        ),
        (
            '{"rowKeyFields": [{"name": "k", "type": "IntType"}],'
            ' "valueFields": [{"name": "k", "type": "IntType"}]}',
            "more than once",
        ),
        ('{"rowKeyFields": [], "columns": []}', "unknown field `columns`"),
        (
            '{"rowKeyFields": [{"name": "k", "type": "IntType"}], "valueFields":'
            ' [{"name": "d", "type": {"DecimalType": {"precision": 40, "scale": 1}}}]}',
            "not a decimal type",
        ),
        (_with({"StructType": {}}), "a struct has no fields"),
        (_with({"StructType": {"fields": {}}}), "Expected `array`, got `object`"),
        (_with({"StructType": {"fields": [{"name": "a"}]}}), "missing required field `type`"),
        (
            _with({"StructType": {"fields": [{"name": "a", "type": "IntType"}] * 2}}),
            "a more than once",
        ),
        (_with({"DecimalType": {"precision": True}}), "whole numbers"),
        (_with("IntType", colour="red"), "unknown field `colour`"),
        (_with("IntType", id="1"), "Expected `int`, got `str`"),
        (_with("IntType", id=2**31), "Expected `int` <= 2147483647"),
        (_with("IntType", id=7, nextFieldId=-1), "Expected `int` >= 0"),
        ('{"dataKeys": [{"name": "k", "number": 1}]}', "missing required field `wrapped`"),
        ('{"dataKeys": [{"number": 1, "wrapped": "QUI"}]}', "Invalid base64"),
        ('{"dataKeys": [{"number": 1, "wrapped": "é"}]}', "Invalid base64"),
        (_with("IntType", nestedIds=[7]), "1 nested ids, and 0 nested parts"),
        (_with({"ListType": {"elementType": "IntType"}}, nestedIds=[0]), "not all different"),
        (_with({"ListType": {"elementType": "IntType"}}, id=7, nestedIds=[7]), "not all different"),
        (
            _with({"ListType": {"elementType": "IntType"}}, nestedIds=["7"]),
            "Expected `int`, got `str`",
        ),
    ],
)
def test_a_bad_schema_is_refused_with_its_reason(body: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        Schema.loads(body)


def test_more_columns_than_a_footer_can_carry_are_refused() -> None:
    fields = [{"name": f"f{i}", "type": "IntType"} for i in range(10_001)]
    with pytest.raises(InvalidRequestError, match="at most 10000"):
        Schema.loads(json.dumps({"rowKeyFields": fields}))


def test_types_that_nest_too_deep_are_refused() -> None:
    kind: object = "IntType"
    for _ in range(16):
        kind = {"ListType": {"elementType": kind}}
    with pytest.raises(InvalidRequestError, match="at most 16 deep"):
        Schema.loads(_with(kind))


def test_fields_without_ids_get_those_after_the_last_ever_given() -> None:
    key = Field("k", Primitive.LONG)
    schema = Schema((key,), values=(Field("v", Primitive.LONG, id=7),), next_field_id=5)
    assert [f.id for f in schema.fields] == [8, 7]
    assert schema.next_field_id == 9
    wider = replace(schema, values=(*schema.values, Field("w", Primitive.LONG)))
    assert wider.field_named("w").id == 9
    without = replace(wider, values=wider.values[:1])
    assert without.next_field_id == 10


@given(st.lists(types, min_size=1), st.lists(types, min_size=1))
def test_what_is_nested_has_ids_of_its_own_which_stay(
    values: list[FieldType], added: list[FieldType]
) -> None:
    """The ids of all parts are different, and new columns take none that was ever given."""
    fields = tuple(Field(f"v{i}", kind) for i, kind in enumerate(values))
    schema = Schema((Field("k", Primitive.LONG),), values=fields)
    more = tuple(Field(f"w{i}", kind) for i, kind in enumerate(added))
    wider = replace(schema, values=(*schema.values[1:], *more))
    assert wider.values[: len(values) - 1] == schema.values[1:]
    ids = [i for f in (*schema.fields, *wider.values[len(values) - 1 :]) for i in _all_ids(f)]
    assert sorted(ids) == list(range(1, wider.next_field_id))


def _all_ids(field: Field) -> tuple[int, ...]:
    return (field.id, *field.nested_ids)


def test_parts_are_numbered_from_the_outside_in() -> None:
    kind = MapType(Primitive.INT, _struct_of([ListType(Primitive.INT), Primitive.LONG]))
    schema = Schema((Field("k", Primitive.LONG),), values=(Field("v", kind),))
    key, value, first, element, second = schema.values[0].nested_ids
    assert (key, value, first, element, second) == (3, 4, 5, 6, 7)


def test_one_id_for_two_fields_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not all different"):
        Schema((Field("k", Primitive.LONG, id=1),), values=(Field("v", Primitive.LONG, id=1),))


def test_an_unknown_column_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Schema.from_json(ORIGINAL).field_named("tiemstamp")
    assert "timestamp" in refused.value.hint
