"""Columns of shards in the types of now, wherever in a batch they lie."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_type, becoming, evolved
from dormouse.errors import UnavailableError
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import parse_type_text
from dormouse.tables.properties import Properties
from dormouse.tables.table import Alteration, apply_alteration

BEFORE = parse_schema(
    "k:int, c:map<string,list<struct<a:int?,b:struct<x:float?,y:string?>?>>>?", ["k"]
)
STRUCT = "c.value.element"
AFTER = apply_alteration(
    BEFORE,
    Alteration(
        add=(Field(f"{STRUCT}.b.z", parse_type_text("date"), nullable=True),),
        drop=(f"{STRUCT}.b.y",),
        rename={f"{STRUCT}.a": "w"},
        types={f"{STRUCT}.a": parse_type_text("long"), f"{STRUCT}.b.x": parse_type_text("double")},
    ),
    Properties(),
)


def old(n: int) -> Any:
    inner = {"x": 0.5 * n, "y": str(n)} if n % 2 else None
    entries = [("p", [{"a": n, "b": inner}, None][: n % 3]), ("q", None)][n % 2 :]
    return None if n % 5 == 0 else entries


def new(n: int) -> Any:
    inner = {"x": 0.5 * n, "z": None} if n % 2 else None
    entries = [("p", [{"w": n, "b": inner}, None][: n % 3]), ("q", None)][n % 2 :]
    return None if n % 5 == 0 else entries


def column(schema: Schema) -> Field:
    return schema.field_named("c")


@pytest.mark.parametrize(("start", "rows"), [(0, 20), (3, 9), (7, 1), (5, 0), (19, 1)])
def test_nested_parts_of_a_slice_are_those_of_its_rows(start: int, rows: int) -> None:
    cells = pa.array(map(old, range(20)), arrow_type(column(BEFORE).type))
    found = evolved(cells.slice(start, rows), column(BEFORE), column(AFTER))
    found.validate(full=True)
    wanted = arrow_type(column(AFTER).type)
    assert found.cast(wanted).to_pylist() == [new(n) for n in range(start, start + rows)]


def test_a_shard_of_a_later_schema_is_read_by_none_that_is_earlier() -> None:
    with pytest.raises(UnavailableError, match="while the table was read"):
        becoming(column(AFTER), column(BEFORE))
    assert becoming(column(BEFORE), column(AFTER)) == column(BEFORE)
