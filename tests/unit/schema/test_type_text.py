"""Types in short notation: parsed, shown, and refused with the position of the error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from dormouse.errors import InvalidRequestError
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    parse_type_text,
    show_type,
)
from tests.unit.schema.test_schema import types


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("long", Primitive.LONG),
        (" LongType ", Primitive.LONG),
        ("BYTES", Primitive.BYTES),
        ("ByteArrayType", Primitive.BYTES),
        ("decimal(10,2)", DecimalType(10, 2)),
        ("decimal( 10 )", DecimalType(10, 0)),
        ("list<list<date>>", ListType(ListType(Primitive.DATE))),
        ("map < string , long >", MapType(Primitive.STRING, Primitive.LONG)),
        (
            "struct<a b:long?, c:list<int>>",
            StructType((Member("a b", Primitive.LONG, True), Member("c", ListType(Primitive.INT)))),
        ),
        ('{"ListType": {"elementType": "LongType"}}', ListType(Primitive.LONG)),
        ('"LongType"', Primitive.LONG),
    ],
)
def test_types_are_read_in_their_short_form_and_as_schemas_spell_them(
    text: str, kind: FieldType
) -> None:
    assert parse_type_text(text) == kind


@given(types)
def test_what_is_shown_is_read_back(kind: FieldType) -> None:
    assert parse_type_text(show_type(kind)) == kind
    assert parse_type_text(json.dumps(kind.to_json())) == kind


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "character 1: a type is missing"),
        ("bytearray", "there is no type"),
        ("text", "character 1: there is no type 'text'"),
        ("int64", "types: int, long, "),  # and no hint at int, which is too narrow
        ("list<text>", "character 6: there is no type 'text'"),
        ("list<long", "'>' is missing"),
        ("list", "'<' is missing"),
        ("long>", "character 5: '>' is unexpected"),
        ("map<string>", "',' is missing"),
        ("map<list<int>,int>", "character 5: the key of a map"),
        ("struct<>", "':' is missing"),
        ("struct<a:long,a:long>", "a more than once"),
        ("struct<:long>", "':' is missing"),
        ('struct<a:int,"b c":long>', 'character 14: the name "b c" is in quotes'),
        ("decimal(x,2)", "a number is missing"),
        ("decimal(39,2)", "not a decimal type"),
        ("{", "not valid JSON"),
        ("list<" * 20 + "int" + ">" * 20, "at most 16 deep"),
    ],
)
def test_what_is_no_type_is_answered_with_the_place_and_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        parse_type_text(text)
