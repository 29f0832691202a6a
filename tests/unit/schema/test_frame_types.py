"""The table of `docs/schema.md`: each cell is what happens to a column of that type."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    is_key_type,
    parse_type_text,
    show_type,
)
from tests.support.frame_types import ROWS, FrameType
from tests.support.instances import InMemory
from tests.support.world import World

TIME = dt.datetime.fromisoformat("2024-02-29T12:30:45")
CLOCK = dt.time(12, 30, 45)
UUIDS = UUID("123e4567-e89b-12d3-a456-426614174000")
WHOLE = pa.array([7, None])
TEXTS = pa.array(["a", None])
SAMPLES: list[Any] = [
    pa.array([True, None]),
    *(pa.array([7, None], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.array([7, None], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    pa.array([2**64 - 1, None], pa.uint64()),
    *(pa.array([0.5, None], kind) for kind in (pa.float16(), pa.float32(), pa.float64())),
    *(
        pa.array([Decimal("1.25"), None], kind(9, 2))
        for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
    ),
    *(pa.array(["ü", None], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(pa.array([b"\xff", None], kind) for kind in (pa.binary(), pa.large_binary())),
    pa.array([b"\xff", None], pa.binary_view()),
    pa.array([b"\0abc", None], pa.binary(4)),
    pa.array([UUIDS.bytes, None], pa.uuid()),
    pa.array(['{"a":[1.50]}', None], pa.json_()),
    pa.array([TIME.date(), None], pa.date32()),
    pa.array([TIME.date(), None], pa.date64()),
    *(pa.array([TIME, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([TIME, None], pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([CLOCK, None], pa.time32(unit)) for unit in ("s", "ms")),
    *(pa.array([CLOCK, None], pa.time64(unit)) for unit in ("us", "ns")),
    TEXTS.dictionary_encode(),
    pc.run_end_encode(TEXTS),
    *(pa.array([[7], None], kind(pa.int64())) for kind in (pa.list_, pa.large_list)),
    pa.array([[7], None], pa.list_(pa.int64(), 1)),
    pa.array([[7], None], pa.list_view(pa.int64())),
    pa.array([[("a", 7)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([{"a": 7}, None], pa.struct([("a", pa.int64())])),
    pa.nulls(2),
    pa.array([1, None], pa.duration("us")),
    pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    pa.array([Decimal(10) ** 40, None], pa.decimal256(50, 2)),
]
BY_NAME = {re.sub(r"UTC", "UTC", str(sample.type)): sample for sample in SAMPLES}
STORED = [row for row in ROWS if row.stored]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return InMemory.over(World(tmp_path / "world")).instance


def frame(name: str) -> pa.Table:
    sample = BY_NAME[name]
    return pa.table({"id": pa.array([1, 2]), "v": sample})


def test_the_table_names_every_type_that_is_sampled_here() -> None:
    assert sorted(name for row in ROWS for name in row.names) == sorted(BY_NAME)


@pytest.mark.parametrize("row", STORED, ids=lambda row: row.stored)
def test_a_column_is_stored_as_the_table_says_and_comes_back_equal(
    row: FrameType, instance: Instance
) -> None:
    for number, name in enumerate(row.names):
        given = frame(name)
        table = instance.create_table(f"t{number}", like=given, row_keys=["id"])
        assert show_type(table.schema.field_named("v").type) == row.stored
        table.ingest(given).wait()
        found = table.query().to_arrow().column("v").to_pylist()
        assert type(found[0]).__name__ == row.python and found[1] is None
        assert found[0] == BY_NAME[name][0].as_py(), name


@pytest.mark.parametrize("row", STORED, ids=lambda row: row.stored)
def test_a_column_can_be_a_key_if_its_type_can(row: FrameType, instance: Instance) -> None:
    is_key = is_key_type(parse_type_text(row.stored))
    for number, name in enumerate(row.names):
        given = frame(name).slice(0, 1)
        if not is_key:
            with pytest.raises(InvalidRequestError, match="column 'v' cannot be a key"):
                instance.create_table("t", like=given, row_keys=["v"])
            continue
        table = instance.create_table(f"t{number}", like=given, row_keys=["v"], sort_keys=["id"])
        table.ingest(given).wait()
        value = table.query().to_arrow().column("v").to_pylist()[0]
        assert table.count(exact=value) == table.count([(value, None)]) == 1
        assert table.count([(None, value)]) == 0


@pytest.mark.parametrize("row", STORED, ids=lambda row: row.stored)
def test_rows_age_by_the_instants_that_the_table_does_not_except(
    row: FrameType, instance: Instance
) -> None:
    schema = Schema(
        (Field("id", Primitive.LONG),),
        values=(Field("v", parse_type_text(row.stored), nullable=True),),
    )
    if not row.stored.startswith("timestamp"):
        return
    filters = {"filters": "ageOff(v, 1000000000)"}
    if row.stored.startswith("timestamp_ntz"):
        with pytest.raises(InvalidRequestError, match="ageOff cannot use v"):
            instance.create_table("t", schema, filters)
        return
    table = instance.create_table("t", schema, filters)
    now_ms = instance.services.clock.now_ms()
    factor = 1_000_000 if "_ns" in row.stored else 1_000
    times = [(now_ms - age_ms) * factor for age_ms in (2_000_000_000, 0)]
    kind = table.query().schema.field("v").type
    table.ingest(pa.table({"id": [1, 2], "v": pa.array(times, kind)}))
    table.wait()
    assert table.query().to_arrow().column("id").to_pylist() == [2]


@pytest.mark.parametrize("row", [row for row in ROWS if not row.stored])
def test_a_type_that_tables_do_not_have_is_refused_by_name(
    row: FrameType, instance: Instance
) -> None:
    for name in row.names:
        with pytest.raises(InvalidRequestError, match="column 'v' is") as caught:
            instance.create_table("t", like=frame(name), row_keys=["id"])
        assert "cannot be inferred" in str(caught.value)
    assert instance.tables() == []


ICEBERG = {
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "binary",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "timestamp_ns": "timestamptz_ns",
    "timestamp_ntz_ns": "timestamp_ns",
    "date": "date",
    "time": "time",
    "uuid": "uuid",
    "dynamic": "string",
}
"""The types of Iceberg's specification, version 3, that have the same values."""


def iceberg_type(kind: FieldType) -> str:
    match kind:
        case Primitive():
            return ICEBERG[show_type(kind)]
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision}, {scale})"
        case ListType(element=element):
            return f"list<{iceberg_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{iceberg_type(key)}, {iceberg_type(value)}>"
        case _:
            members = ", ".join(f"{m.name}: {iceberg_type(m.type)}" for m in kind.members)
            return f"struct<{members}>"


@pytest.mark.parametrize("row", STORED, ids=lambda row: row.stored)
def test_iceberg_has_the_type_that_the_table_says(row: FrameType) -> None:
    assert iceberg_type(parse_type_text(row.stored)) == row.iceberg


def test_every_primitive_type_is_in_the_table() -> None:
    stored = {row.stored for row in STORED}
    assert {show_type(kind) for kind in Primitive} <= stored
