"""Changes of a schema: fields that stay keep their ids, and impossible changes are refused."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Member, Primitive, StructType
from dormouse.tables.properties import Properties
from dormouse.tables.table import RETAINED_NAMES, Alteration, apply_alteration, replace_schema

LONG = Primitive.LONG
SCHEMA = Schema(
    (Field("k", LONG),),
    (Field("s", LONG),),
    (Field("a", LONG), Field("b", Primitive.STRING, nullable=True)),
)
NEW = Field("new", LONG, nullable=True)


def alter(
    *, properties: Properties | None = None, schema: Schema = SCHEMA, **what: object
) -> Schema:
    return apply_alteration(schema, Alteration(**what), properties or Properties())  # type: ignore[arg-type]


def ids(schema: Schema) -> dict[str, int]:
    return {field.name: field.id for field in schema.fields}


def test_added_fields_come_last_with_ids_never_used_before() -> None:
    without = alter(drop=("b",))
    assert ids(without) == {"k": 1, "s": 2, "a": 3}
    assert ids(alter(schema=without, add=(NEW,))) == {"k": 1, "s": 2, "a": 3, "new": 5}


def test_names_are_swapped_in_one_request() -> None:
    assert ids(alter(rename={"a": "b", "b": "a"})) == {"k": 1, "s": 2, "b": 3, "a": 4}


def test_a_dropped_name_can_be_used_again_in_the_same_request() -> None:
    again = Field("b", LONG, nullable=True)
    assert ids(alter(drop=("b",), add=(again,))) == {"k": 1, "s": 2, "a": 3, "b": 5}
    assert ids(alter(drop=("b",), rename={"a": "b"})) == {"k": 1, "s": 2, "b": 3}


def test_an_altered_schema_is_read_back_from_its_json() -> None:
    schema = alter(drop=("b",), rename={"a": "z"})
    assert Schema.loads(schema.dumps()) == schema


def test_an_error_explains_a_former_name_as_long_as_it_is_retained() -> None:
    schema = alter(rename={"a": "a1"}, drop=("b",))
    schema = alter(schema=schema, rename={"a1": "a2"})
    for name, fate in (("a", "renamed to 'a2'"), ("a1", "renamed to 'a2'"), ("b", "was dropped")):
        with pytest.raises(InvalidRequestError, match=fate):
            schema.field_named(name)
    for i in range(RETAINED_NAMES):
        schema = alter(schema=schema, rename={f"a{i + 2}": f"a{i + 3}"})
    assert schema.explain_former_name("a") == ""
    assert schema.explain_former_name("nobody") == ""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({}, "no change"),
        ({"drop": ("k",)}, "is a key and cannot be dropped"),
        ({"rename": {"s": "t"}}, "is a key and cannot be renamed"),
        ({"drop": ("x",)}, "no column 'x'"),
        ({"rename": {"x": "y"}}, "no column 'x'"),
        ({"rename": {"a": "a\n"}}, "cannot be called"),
        ({"rename": {"a": ""}}, "cannot be called"),
        ({"rename": {"a": "b"}}, "two columns 'b'"),
        ({"rename": {"a": "k"}}, "two columns 'k'"),
        ({"rename": {"a": "c", "b": "c"}}, "two columns 'c'"),
        ({"drop": ("a",), "rename": {"a": "c"}}, "dropped and renamed"),
        ({"add": (Field("a", LONG, nullable=True),)}, "two columns 'a'"),
        ({"add": (NEW, NEW)}, "two columns 'new'"),
        ({"add": (Field("new", LONG),)}, "not nullable"),
        ({"add": (Field("new", LONG, nullable=True, id=3),)}, "with an id"),
    ],
)
def test_a_change_that_cannot_be_honoured_is_refused_with_its_reason(
    what: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        alter(**what)


def test_members_of_structs_count_as_columns_and_dropping_is_always_allowed() -> None:
    few = Properties(max_fields=4)
    struct = Field("c", StructType((Member("x", LONG), Member("y", LONG))), nullable=True)
    with pytest.raises(InvalidRequestError, match="6 columns, and max_fields is 4"):
        alter(add=(struct,), properties=few)
    assert ids(alter(drop=("a",), properties=Properties(max_fields=1))).keys() == {"k", "s", "b"}


@pytest.mark.parametrize(
    ("properties", "what", "reason"),
    [
        ({"filters": "where(a > 1)"}, {"drop": ("a",)}, "properties do not allow it"),
        ({"filters": "where(a > 1)"}, {"rename": {"a": "c"}}, "properties do not allow it"),
        ({"bloom_columns": "b, a"}, {"drop": ("a",)}, "properties do not allow it"),
        ({"bloom_columns": "a"}, {"rename": {"a": "b", "b": "a"}}, "another column"),
        (
            {"filters": "where(a > 1)"},
            {"drop": ("a",), "add": (Field("a", LONG, nullable=True),)},
            "another column",
        ),
        ({"filters": "ageOff(a, 1000)"}, {"rename": {"a": "c"}}, "properties do not allow it"),
        ({"keep": "latest", "latest_by": "a"}, {"drop": ("a",)}, "latest_by: there is no column"),
        ({"aggregations": "last(a), last(b)"}, {"add": (NEW,)}, "lack value fields: new"),
        ({"aggregations": "last(a), last(b)"}, {"drop": ("b",)}, "unknown fields: b"),
    ],
)
def test_columns_that_filters_or_aggregations_use_stay(
    properties: dict[str, str], what: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        alter(properties=Properties(**properties), **what)  # type: ignore[arg-type]


def test_columns_that_filters_do_not_use_can_change() -> None:
    rules = Properties(filters="where(a > 1)")
    assert ids(alter(properties=rules, rename={"b": "c"}, add=(NEW,)))["c"] == 4


@pytest.mark.parametrize(
    ("sort_keys", "position"), [((), Primitive.LONG), ((Field("s", Primitive.INT),), None)]
)
def test_a_new_schema_fits_change_data_too(
    sort_keys: tuple[Field, ...], position: Primitive | None
) -> None:
    by = "p" if position else ""
    properties = Properties(keep="latest", change_data="debezium", latest_by=by)
    keys, values = (Field("k", Primitive.LONG),), (Field("p", Primitive.STRING),)
    schema = Schema(keys, (), values)
    assert replace_schema(schema, schema, properties).row_keys[0].name == "k"
    target = Schema(keys, sort_keys, (Field("p", position or Primitive.STRING),))
    with pytest.raises(InvalidRequestError, match="do not fit the new schema: change_data"):
        replace_schema(schema, target, properties)
