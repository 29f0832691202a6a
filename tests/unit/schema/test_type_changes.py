"""What becomes of types and members: ids are never used again, and nothing narrows."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.iceberg import check_publishable, iceberg_schema
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import Primitive, parse_type_text, show_type
from dormouse.tables.properties import Properties, properties_of
from dormouse.tables.table import Alteration, apply_alteration, replace_schema

PAYLOAD = "struct<a:int?,b:struct<x:float?>?,c.d:string?>"
SCHEMA = parse_schema(
    f"k:int, t:timestamp, p:{PAYLOAD}?, l:list<struct<x:int?>>?, "
    "m:map<int,list<struct<x:decimal(4,2)?>>>?, p.q:long?",
    ["k"],
    ["t"],
)


def alter(schema: Schema = SCHEMA, properties: Properties | None = None, **what: object) -> Schema:
    if isinstance(types := what.get("types"), dict):
        what["types"] = {path: parse_type_text(kind) for path, kind in types.items()}
    if isinstance(add := what.get("add"), list):
        what["add"] = tuple(Field(n, parse_type_text(kind), nullable=True) for n, kind in add)
    return apply_alteration(schema, Alteration(**what), properties or Properties())  # type: ignore[arg-type]


def kind(schema: Schema, name: str) -> str:
    return show_type(schema.field_named(name).type)


def ids(body: object) -> dict[str, int]:
    """Return the ids of everything in Iceberg's form of a schema, by path."""
    found: dict[str, int] = {}

    def visit(item: object, path: str) -> None:
        if not isinstance(item, dict):
            return
        for field in item.get("fields", ()):
            found[f"{path}{field['name']}"] = field["id"]
            visit(field["type"], f"{path}{field['name']}.")
        for part in ("element", "key", "value"):
            if part in item:
                found[f"{path}{part}"] = item[f"{part}-id"]
                visit(item[part], f"{path}{part}.")

    visit(body, "")
    return found


def test_members_at_any_depth_are_added_dropped_and_renamed_with_ids_of_their_own() -> None:
    before = ids(iceberg_schema(SCHEMA))
    schema = alter(
        add=[("p.b.y", "list<long>"), ("l.element.y", "string"), ("m.value.element.y", "uuid")],
        drop=("p.a",),
        rename={"p.b.x": "z", "m.value.element.x": "w", "p.c.d": "e"},
    )
    assert kind(schema, "p") == "struct<b:struct<z:float?,y:list<long>?>?,e:string?>"
    assert kind(schema, "l") == "list<struct<x:int?,y:string?>>"
    assert kind(schema, "m") == "map<int,list<struct<w:decimal(4,2)?,y:uuid?>>>"
    after = ids(iceberg_schema(schema))
    assert after["p.b.z"] == before["p.b.x"]
    assert after["p.e"] == before["p.c.d"]
    assert after["m.value.element.w"] == before["m.value.element.x"]
    new = {number for path, number in after.items() if path.endswith((".y", ".y.element"))}
    assert len(new) == 4
    assert min(new) >= SCHEMA.next_field_id
    assert schema.next_field_id == max(new) + 1
    assert Schema.loads(schema.dumps()) == schema


def test_a_member_dropped_and_added_again_is_another_one() -> None:
    at_once = alter(drop=("p.a",), add=[("p.a", "int")])
    later = alter(alter(drop=("p.a",)), add=[("p.a", "int")])
    old = ids(iceberg_schema(SCHEMA))["p.a"]
    assert ids(iceberg_schema(at_once))["p.a"] == ids(iceberg_schema(later))["p.a"] > old


def test_a_column_with_a_dot_in_its_name_comes_before_a_member() -> None:
    schema = alter(rename={"p.q": "q"}, types={"p.a": "long"})
    assert "q" in [field.name for field in schema.fields]
    assert kind(alter(add=[("no.such", "long")]), "no.such") == "long"


@pytest.mark.parametrize(
    ("path", "then", "now"),
    [
        ("k", "int", "long"),
        ("p.a", "int", "long"),
        ("p.b.x", "float", "double"),
        ("l", "list<struct<x:int?>>", "list<struct<x:long?>>"),
        ("l.element.x", "int", "long"),
        ("m.key", "int", "long"),
        ("m.value.element.x", "decimal(4,2)", "decimal(38,2)"),
        ("l.element", "struct<x:int?>", "struct<x:long?>"),
    ],
)
def test_types_widen_at_any_depth(path: str, then: str, now: str) -> None:
    schema = alter(types={path: now})
    before, after = (ids(iceberg_schema(each)) for each in (SCHEMA, schema))
    assert before == after
    column = path.partition(".")[0]
    assert kind(schema, column) == kind(SCHEMA, column).replace(then, now, 1)


@pytest.mark.parametrize(
    ("path", "now", "reason"),
    [
        ("p.q", "int", "cannot become int"),
        ("k", "double", "cannot become double"),
        ("p.a", "double", "cannot become double"),
        ("p.b.x", "int", "cannot become int"),
        ("m.value.element.x", "decimal(10,3)", "cannot become decimal"),
        ("m.value.element.x", "decimal(3,2)", "cannot become decimal"),
        ("l", "list<struct<x:int?,y:int?>>", "cannot become struct"),
        ("l", "struct<x:int?>", "cannot become struct"),
        ("t", "timestamp_ns", "is a key"),
        ("t", "timestamp_ntz", "cannot become timestamp_ntz"),
        ("none", "long", "no column 'none'"),
        ("p.none", "long", "no member"),
        ("l.x", "long", "no column 'l.x'"),
    ],
)
def test_other_types_are_refused(path: str, now: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        alter(types={path: now})


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"add": [("l.y", "long")]}, "no struct"),
        ({"add": [("p.none.y", "long")]}, "no struct"),
        ({"add": [("p.a", "long")]}, "more than once"),
        ({"drop": ("l.element",)}, "no member"),
        ({"rename": {"m.key": "k"}}, "no member"),
        ({"rename": {"p.a": "p.z"}}, "dot"),
        ({"rename": {"p.a": "b"}}, "more than once"),
        ({"drop": ("p.b.x",)}, "no members"),
        ({"drop": ("p",), "rename": {"p.a": "z"}}, "dropped and renamed"),
        ({"drop": ("p.b",), "add": [("p.b.y", "long")]}, "no struct"),
    ],
)
def test_impossible_changes_of_members_are_refused(what: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        alter(**what)


@pytest.mark.parametrize("path", ["p.a", "p.z", "s.a", "s.z"])
def test_what_is_renamed_widens_by_its_old_and_its_new_name(path: str) -> None:
    rename = {"p": "s", "p.a": "z"} if path.startswith("s") else {"p.a": "z"}
    if path == "s.a":
        rename = {"p": "s"}
    schema = alter(rename=rename, drop=("p.b",), types={path: "long"}, add=[(f"{path}2", "int")])
    name = path.partition(".")[0]
    last = "z" if "p.a" in rename else "a"
    assert f"{last}:long" in kind(schema, name)
    assert f"{path[2:]}2:int" in kind(schema, name)


def test_a_path_that_means_two_members_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="old name of one and the new name"):
        alter(rename={"p.a": "b", "p.b": "a"}, types={"p.a": "long"})
    with pytest.raises(InvalidRequestError, match="two types"):
        alter(rename={"p.a": "z"}, types={"p.a": "long", "p.z": "int"})


def test_an_added_member_that_cannot_be_null_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="existing rows"):
        alter(add=(Field("p.new", Primitive.LONG),))


def test_a_member_that_a_filter_uses_stays_what_it_is() -> None:
    properties = properties_of({}, {"filters": "where(p['a'] > 1)"})
    assert alter(properties=properties, add=[("p.new", "long")], types={"p.a": "long"})
    for what in ({"rename": {"p.a": "z"}}, {"drop": ("p.a",), "add": [("p.a", "int")]}):
        with pytest.raises(InvalidRequestError, match="other members|properties"):
            alter(properties=properties, **what)


def test_a_published_table_gets_no_nanoseconds() -> None:
    schema = parse_schema("k:int, at:timestamp?", ["k"])
    properties = properties_of({}, {"iceberg": "on", "iceberg_format": "3"})
    with pytest.raises(InvalidRequestError, match="Iceberg"):
        alter(schema, properties, types={"at": "timestamp_ns"})


def test_a_table_whose_times_became_finer_is_not_published_later() -> None:
    schema = alter(
        parse_schema("k:int, at:list<timestamp>?", ["k"]), types={"at.element": "timestamp_ns"}
    )
    schema = alter(Schema.loads(schema.dumps()), rename={"at": "then"})
    with pytest.raises(InvalidRequestError, match="promotes no type"):
        check_publishable(schema, 3)
    check_publishable(replace_schema(schema, schema, Properties()), 3)
