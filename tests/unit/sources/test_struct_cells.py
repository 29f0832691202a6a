"""Structs in ingested files: exactly the table's members, null only where the table allows it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, MapType, Member, Primitive, StructType

LONG = Primitive.LONG
INNER = StructType((Member("must", LONG), Member("may", Primitive.STRING, nullable=True)))
ALL = StructType(
    (
        Member("a b", Primitive.INT),
        Member("raw", Primitive.BYTES, nullable=True),
        Member("at", Primitive.TIMESTAMP, nullable=True),
        Member("day", Primitive.DATE, nullable=True),
        Member("price", DecimalType(38, 2), nullable=True),
        Member("inner", INNER, nullable=True),
        Member("by_key", MapType(LONG, INNER), nullable=True),
    )
)


def schema_of(kind: object, *, nullable: bool = True) -> Schema:
    return Schema((Field("k", LONG),), values=(Field("v", kind, nullable),))  # type: ignore[arg-type]


def read(tmp_path: Path, key: str, body: bytes | str, schema: Schema) -> list[object]:
    local = tmp_path / "file"
    local.write_bytes(body.encode() if isinstance(body, str) else body)
    return [row["v"] for batch in read_source(local, key, schema) for row in batch.to_pylist()]


def parquet(values: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    keys = pa.array(range(len(values)), pa.int64())
    pq.write_table(pa.Table.from_arrays([keys, values], names=["k", "v"]), sink)
    return sink.getvalue().to_pybytes()


JSON = (
    '{"a b":1,"raw":"/wA=","at":"2024-02-29T12:00:00Z","day":"2024-02-29","price":"1.5",'
    '"inner":{"must":1},"by_key":{"7":{"must":2,"may":""}}}'
)
EXPECTED = {
    "a b": 1,
    "raw": b"\xff\0",
    "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "day": dt.date(2024, 2, 29),
    "price": Decimal("1.50"),
    "inner": {"must": 1, "may": None},
    "by_key": [(7, {"must": 2, "may": ""})],
}
LEAST = {"a b": -5} | dict.fromkeys(["raw", "at", "day", "price", "inner", "by_key"])


def test_structs_are_json_objects_in_json_lines_and_in_cells_of_csv(tmp_path: Path) -> None:
    lines = f'{{"k":1,"v":{JSON}}}\n{{"k":2,"v":{{"a b":-5}}}}\n{{"k":3}}'
    assert read(tmp_path, "x.json", lines, schema_of(ALL)) == [EXPECTED, LEAST, None]
    cells = [JSON, '{"a b":-5}']
    quoted = "".join(
        f'{i},"{cell.replace(chr(34), chr(34) * 2)}"\n' for i, cell in enumerate(cells)
    )
    assert read(tmp_path, "x.csv", f"k,v\n{quoted}9,\n", schema_of(ALL)) == [EXPECTED, LEAST, None]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{}", "missing required field `must`"),
        ('{"must":null}', "got `null`"),
        ('{"must":1,"more":2}', "unknown member"),
        ('{"must":"1"}', "Expected `int`"),
        ("[1]", "Expected `object"),
    ],
)
def test_a_json_object_that_is_not_the_struct_is_refused(
    tmp_path: Path, value: str, reason: str
) -> None:
    with pytest.raises(RefusedSourceError, match="line 2, column 'v'") as refusal:
        lines = f'{{"k":1,"v":{{"must":1}}}}\n{{"k":2,"v":{value}}}'
        read(tmp_path, "x.json", lines, schema_of(INNER))
    assert reason in refusal.value.hint
    with pytest.raises(RefusedSourceError, match="line 2, column 'v'"):
        quoted = value.replace('"', '""')
        read(tmp_path, "x.csv", f'k,v\n1,"{quoted}"\n', schema_of(INNER))


def test_structs_of_parquet_match_by_name_and_may_be_narrower(tmp_path: Path) -> None:
    found = pa.array(
        [{"may": "x", "must": 1}, None, {"may": None, "must": 2}],
        pa.struct([("may", pa.dictionary(pa.int8(), pa.string())), ("must", pa.int16())]),
    )
    assert read(tmp_path, "x.parquet", parquet(found), schema_of(INNER)) == [
        {"must": 1, "may": "x"},
        None,
        {"must": 2, "may": None},
    ]
    lacking = pa.array([{"must": 1}], pa.struct([pa.field("must", pa.int64(), nullable=False)]))
    assert read(tmp_path, "x.parquet", parquet(lacking), schema_of(INNER)) == [
        {"must": 1, "may": None}
    ]


@pytest.mark.parametrize(
    "members",
    [
        [("may", pa.string())],
        [("must", pa.int64()), ("more", pa.int64())],
        [("must", pa.string())],
        [("must", pa.int64()), ("must", pa.int64())],
    ],
)
def test_structs_of_parquet_with_other_members_are_refused(
    tmp_path: Path, members: list[tuple[str, pa.DataType]]
) -> None:
    fields = [pa.field(*member) for member in members]
    parts = [pa.nulls(1, field.type) for field in fields]
    present = pa.StructArray.from_arrays(parts, fields=fields)
    with pytest.raises(RefusedSourceError, match="column 'v' is struct<"):
        read(tmp_path, "x.parquet", parquet(present), schema_of(INNER))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (INNER, {"must": 1}, {"must": None}),
        (ListType(INNER), [None, {"must": 1}], [{"must": 1}, {"must": None}]),
        (MapType(LONG, INNER), [(1, None)], [(1, {"must": 1}), (2, {"must": None})]),
        (StructType((Member("in", INNER, True),)), {"in": None}, {"in": {"must": None}}),
        (ListType(ListType(INNER)), [[]], [None, [{"must": None}]]),
    ],
)
def test_a_null_where_the_table_allows_none_is_refused_at_any_depth(
    tmp_path: Path, kind: ListType | MapType | StructType, good: object, bad: object
) -> None:
    lenient = pa.array([good, None, good, bad, good], _nullable(kind))
    with pytest.raises(RefusedSourceError, match="row 4, .*, column 'v': ") as refused:
        read(tmp_path, "x.parquet", parquet(lenient), schema_of(kind))
    assert refused.value.hint == "'must' has no value in it, and cannot be null"
    assert len(read(tmp_path, "x.parquet", parquet(lenient.take([0, 1, 4])), schema_of(kind))) == 3


def _nullable(kind: ListType | MapType | StructType) -> pa.DataType:
    inner = pa.struct([("must", pa.int64()), ("may", pa.string())])
    match kind:
        case ListType(element=ListType()):
            return pa.list_(pa.list_(inner))
        case ListType():
            return pa.list_(inner)
        case MapType():
            return pa.map_(pa.int64(), inner)
        case StructType():
            return inner if kind is INNER else pa.struct([("in", inner)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INNER, '{"must":1,"must":2}'),
        (MapType(Primitive.STRING, LONG), '{"a":1,"\\u0061":2}'),
        (ListType(INNER), '[{"must":1},{"must":1,"may":"x","may":"x"}]'),
        (MapType(Primitive.DOUBLE, LONG), '{"1.5":1,"1.5":2}'),
    ],
)
def test_a_name_that_comes_twice_in_an_object_is_refused_at_any_depth(
    tmp_path: Path, kind: ListType | MapType | StructType, value: str
) -> None:
    quoted = value.replace('"', '""')
    for name, body in (("x.json", f'{{"k":1,"v":{value}}}'), ("x.csv", f'k,v\n1,"{quoted}"\n')):
        with pytest.raises(RefusedSourceError, match="line [12], column 'v'") as refusal:
            read(tmp_path, name, body, schema_of(kind))
        assert "a name twice" in refusal.value.hint


def test_floats_within_others_are_as_exact_as_those_alone(tmp_path: Path) -> None:
    kind = MapType(Primitive.DOUBLE, ListType(Primitive.FLOAT))
    good = '{"-0":[1.5,null],"1e3":["NaN"],"NaN":null}'
    (found,) = read(tmp_path, "x.json", f'{{"k":1,"v":{good}}}', schema_of(kind))
    assert str(found) == "[(-0.0, [1.5, None]), (1000.0, [nan]), (nan, None)]"
    for bad in ('{"a":[]}', '{"9007199254740993":[]}', '{"1":[16777217]}', '{"1":[1e39]}'):
        with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
            read(tmp_path, "x.json", f'{{"k":1,"v":{bad}}}', schema_of(kind))


def test_nesting_that_no_stack_would_hold_is_refused_in_a_cell(tmp_path: Path) -> None:
    deep = "[" * 100_000
    with pytest.raises(RefusedSourceError, match="line 2, column 'v'"):
        read(tmp_path, "x.csv", f'k,v\n1,"{deep}"\n', schema_of(ListType(Primitive.DOUBLE)))
