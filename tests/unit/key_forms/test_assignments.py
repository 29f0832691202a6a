"""Keys on the command line: commas, backslashes, dots and equals signs in names and values."""

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import KeyCodec
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive

PATHS = Schema(
    (Field("path", Primitive.STRING), Field("name", Primitive.STRING)),
    (Field("part", Primitive.STRING),),
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (r"path=a\,name=b", ["a,name=b"]),
        (r"path=a\\,name=b", ["a\\", "b"]),
        (r"path=a\\\,name=b", [r"a\,name=b"]),
        (r"path=a\\\\,name=b,part=\\", ["a\\\\", "b", r"\\"]),
        (r"path=C:\x\\y\,y", [r"C:\x\\y\,y"]),
        ("path=,name=,part=", ["", "", ""]),
    ],
)
def test_backslashes_divide_keys_or_keep_commas(text: str, values: list[str]) -> None:
    assert list(KeyCodec(PATHS).from_assignments(text)) == values


def test_a_part_begins_only_at_the_name_of_a_column() -> None:
    schema = Schema(
        row_keys=(Field("tail number", Primitive.STRING),),
        sort_keys=(Field("a=b", Primitive.LONG),),
        values=(Field("2nd leg", Primitive.STRING), Field("a", Primitive.LONG)),
    )
    parse = KeyCodec(schema).from_assignments
    assert parse("tail number=x,y,a=b=3") == ("x,y", 3)
    assert parse("tail number=x,3=4") == ("x,3=4",)
    assert parse(r"tail number=x\,2nd leg=y") == ("x,2nd leg=y",)
    for refused in ("2nd leg", "a"):
        with pytest.raises(InvalidRequestError, match=f"'{refused}' is not a row key or sort key"):
            parse(f"tail number=x,{refused}=4")


def test_a_key_twice_and_a_part_without_a_value_are_refused() -> None:
    parse = KeyCodec(PATHS).from_assignments
    with pytest.raises(InvalidRequestError, match="'path' is given twice"):
        parse("path=a,path=b")
    with pytest.raises(InvalidRequestError, match="'a' is not part of a key"):
        parse("a")
    with pytest.raises(InvalidRequestError, match="a value for 'path' too"):
        parse("name=b")


def test_two_dots_separate_only_where_a_key_or_nothing_follows() -> None:
    parse = KeyCodec(PATHS).range_from_assignments
    assert parse("path=a..path=b") == (("a",), ("b",))
    assert parse("path=../x..") == (("../x",), None)
    assert parse("..path=b") == (None, ("b",))
    with pytest.raises(InvalidRequestError, match="is not a range"):
        parse("path=a")
