"""Schemas of columns that were found, and schemas in short form."""

from __future__ import annotations

import pytest
from hypothesis import given

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, FoundColumn, Schema, choose_schema, parse_schema
from dormouse.schema.types import DecimalType, ListType, Primitive, show_type
from tests.support.batches import schemas

COLUMNS = [
    FoundColumn("v", "double", Primitive.DOUBLE),
    FoundColumn("b", "int64", Primitive.LONG),
    FoundColumn("a", "string", Primitive.STRING, nullable=False),
    FoundColumn("n", "nothing", None, problem="is null in every row"),
]


def test_keys_come_first_in_the_order_in_which_they_are_named_and_are_not_null() -> None:
    schema = choose_schema(COLUMNS[:3], ["a"], ["b"])
    assert schema == Schema(
        (Field("a", Primitive.STRING),),
        (Field("b", Primitive.LONG),),
        (Field("v", Primitive.DOUBLE, nullable=True),),
    )


def test_a_column_without_a_type_needs_one_from_the_caller() -> None:
    with pytest.raises(InvalidRequestError, match="column 'n' is null in every row") as caught:
        choose_schema(COLUMNS, ["a"])
    assert "--type NAME:TYPE" in caught.value.hint
    schema = choose_schema(COLUMNS, ["a"], types={"n": "list<string>", "v": Primitive.FLOAT})
    assert schema.field_named("n").type == ListType(Primitive.STRING)
    assert schema.field_named("v").type is Primitive.FLOAT


@pytest.mark.parametrize(
    ("row_keys", "sort_keys", "types", "reason"),
    [
        ([], [], {}, "no row keys are named"),
        (["x"], [], {}, "no column 'x'"),
        (["a"], ["x"], {}, "no column 'x'"),
        (["a"], [], {"x": "long"}, "no column 'x'"),
        (["v"], [], {}, "'v' cannot be a key: it is double"),
        (["a"], ["v"], {}, "'v' cannot be a key"),
        (["a"], ["a"], {}, "more than once"),
        (["a"], [], {"v": "real"}, "there is no type 'real'"),
    ],
)
def test_a_choice_that_fits_no_table_is_refused_with_a_reason(
    row_keys: list[str], sort_keys: list[str], types: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        choose_schema(COLUMNS[:3], row_keys, sort_keys, types)


def test_two_columns_of_one_name_and_no_columns_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="the file has columns of one name: 'a'"):
        choose_schema([*COLUMNS[:3], COLUMNS[2]], ["a"], of="the file")
    with pytest.raises(InvalidRequestError, match="the file has no columns"):
        choose_schema([], ["a"], of="the file")


def test_the_hint_names_the_columns_that_can_be_keys() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        choose_schema(COLUMNS[:3], [])
    assert caught.value.hint.endswith("of: b, a")


@pytest.mark.parametrize("between", [", ", "\n", ",\n\n  "])
def test_columns_are_read_in_short_form_from_one_line_or_several(between: str) -> None:
    text = between.join(["id:long", "price:decimal(12,2)?", "tags : list<string>?"])
    assert parse_schema(text, ["id"]) == Schema(
        (Field("id", Primitive.LONG),),
        values=(
            Field("price", DecimalType(12, 2), nullable=True),
            Field("tags", ListType(Primitive.STRING), nullable=True),
        ),
    )


def test_types_in_a_json_schema_may_be_in_short_form() -> None:
    body = {
        "rowKeyFields": [{"name": "id", "type": "long"}],
        "valueFields": [{"name": "v", "type": "list<decimal(12,2)>"}],
    }
    schema = Schema.from_json(body)
    assert schema.key_types == (Primitive.LONG,)
    assert schema.field_named("v").type == ListType(DecimalType(12, 2))
    body["valueFields"][0]["type"] = "lst<long>"
    with pytest.raises(
        InvalidRequestError, match="field 'v' has an unknown type: .* no type 'lst'"
    ):
        Schema.from_json(body)


@pytest.mark.parametrize("text", ["", "id", "id:", "id:long,,b:long", "id:long b", ":long"])
def test_text_that_lists_no_columns_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_schema(text, ["id"])


def test_a_schema_in_json_names_its_keys_itself() -> None:
    with pytest.raises(InvalidRequestError, match="says itself which fields are keys"):
        parse_schema('{"rowKeyFields": [{"name": "id", "type": "LongType"}]}', ["id"])


@given(schemas())
def test_every_schema_has_a_short_form(schema: Schema) -> None:
    text = ", ".join(f"{f.name}:{show_type(f.type)}{'?' * f.nullable}" for f in schema.fields)
    found = parse_schema(
        text, [f.name for f in schema.row_keys], [f.name for f in schema.sort_keys]
    )
    assert found == schema
