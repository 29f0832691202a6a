"""Types that frames bring, where rows go: as keys, in conditions, in rules, from every source."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema, frame_schema
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.keys import KeyRange
from dormouse.schema.schema import Schema
from tests.support.batches import rows_of, schemas, sort_key_of
from tests.support.depth import examples
from tests.support.instances import InMemory
from tests.support.world import World

NOON = dt.datetime.fromisoformat("2024-02-29T12:00:00")
NANO = pd.Timestamp("2024-02-29T12:00:00.000000001")
IDS = [uuid.UUID(int=n << 120 | n) for n in range(4)]
ROWS = [
    {
        "u": IDS[n],
        "ntz": NOON + dt.timedelta(hours=n),
        "ns": NANO.tz_localize("UTC") + pd.Timedelta(n, "ns"),
        "nn": NANO + pd.Timedelta(n, "ns"),
        "clock": dt.time(n, 30),
        "n": n,
    }
    for n in range(4)
]
COLUMNS = "u:uuid, ntz:timestamp_ntz, ns:timestamp_ns, nn:timestamp_ntz_ns, clock:time, n:long"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return InMemory.over(World(tmp_path / "world")).instance


def table_of(instance: Instance, *row_keys: str) -> TableHandle:
    properties = {"compaction_files": 2, "compaction_strategy": "batch"}
    table = instance.create_table("t", COLUMNS, properties, row_keys=row_keys)
    for half in (ROWS[::2], ROWS[1::2]):
        with table.writer() as writer:
            for row in half:
                writer.write(row)
        writer.ingested.wait()
    table.wait()
    return table


def numbers(table: TableHandle, **asked: Any) -> list[int]:
    found: list[int] = table.query(**asked).to_arrow().column("n").to_pylist()
    assert table.count(**asked) == len(found)
    return found


@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_any_frame_goes_in_and_comes_out_equal_in_order(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    halves = [data.draw(rows_of(schema, max_size=8)) for _ in range(2)]
    with TemporaryDirectory() as folder:
        instance = InMemory.over(World(Path(folder))).instance
        properties = {"compaction_files": 2, "compaction_strategy": "batch"}
        table = instance.create_table("t", schema, properties)
        for rows in halves:
            table.ingest(pa.Table.from_pylist(rows, arrow_schema(schema))).wait()
        table.wait()
        found = table.query().to_arrow()
    assert found.schema == frame_schema(arrow_schema(schema))
    rows = [row for half in halves for row in half]
    given_rows = pa.Table.from_pylist(rows, arrow_schema(schema))
    wanted = given_rows.cast(found.schema).to_pylist()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted))
    keys = [sort_key_of(row, schema) for row in found.to_pylist()]
    assert keys == sorted(keys)


@pytest.mark.parametrize("key", ["u", "ntz", "ns", "nn", "clock"])
def test_rows_are_found_by_keys_of_the_type_before_and_after_compaction(
    key: str, instance: Instance
) -> None:
    table = table_of(instance, key)
    assert numbers(table) == [0, 1, 2, 3]
    for n in range(4):
        assert numbers(table, exact=ROWS[n][key]) == [n]
        assert numbers(table, ranges=[(ROWS[n][key], None)]) == list(range(n, 4))
        assert numbers(table, ranges=[(None, ROWS[n][key])]) == list(range(n))


def test_partitions_meet_at_keys_of_the_types(instance: Instance) -> None:
    points = [(ROWS[1]["u"],), (ROWS[2]["u"], ROWS[2]["clock"])]
    table = instance.create_table("t", COLUMNS, None, points, row_keys=["u", "clock"])
    with table.writer() as writer:
        for row in ROWS:
            writer.write(row)
    writer.ingested.wait()
    assert table.status().leaf_partitions == 3 and numbers(table) == [0, 1, 2, 3]
    leaves = [leaf.range for leaf in table.state().partitions.leaves()]
    assert KeyRange((IDS[1].bytes,), (IDS[2].bytes, 9_000_000_000)) in leaves


CONDITIONS = [
    ("u = '01000000-0000-0000-0000-000000000001'", [1]),
    ("u > UUID '01000000-0000-0000-0000-000000000001'", [2, 3]),
    ("u IN (X'03000000000000000000000000000003', UUID '00000000000000000000000000000000')", [0, 3]),
    ("coalesce(u, u) = u AND nullif(clock, TIME '01:30') IS NULL", [1]),
    ("ntz >= TIMESTAMP '2024-02-29 14:00:00'", [2, 3]),
    ("ntz BETWEEN TIMESTAMP '2024-02-29' AND TIMESTAMP '2024-02-29T13:00'", [0, 1]),
    ("ns = TIMESTAMP '2024-02-29 12:00:00.000000002Z'", [1]),
    ("ns > TIMESTAMP '2024-02-29 13:00:00.000000002+01:00'", [2, 3]),
    ("nn < TIMESTAMP '2024-02-29 12:00:00.000000002'", [0]),
    ("nn > TIMESTAMP '2024-02-29 12:00:00'", [0, 1, 2, 3]),
    ("clock <> TIME '02:30:00' AND EXTRACT(HOUR FROM clock) > 0", [1, 3]),
    ("EXTRACT(MINUTE FROM clock) = 30 AND EXTRACT(HOUR FROM ntz) = 13", [1]),
    ("EXTRACT(YEAR FROM ns) = 2024 AND EXTRACT(DOY FROM nn) = 60", [0, 1, 2, 3]),
]


@pytest.mark.parametrize("keys", [["n"], ["u"], ["clock", "nn"]])
def test_conditions_compare_values_of_the_types(keys: list[str], instance: Instance) -> None:
    table = table_of(instance, *keys)
    for condition, found in CONDITIONS:
        assert numbers(table, where=condition) == found, condition
        rest = numbers(table, where=f"NOT ({condition})")
        assert sorted(rest + found) == [0, 1, 2, 3], condition


MEANINGLESS = [
    ("u = 'x'", "is none"),
    ("u = X'00'", "is none"),
    ("u = 1", "cannot be compared"),
    ("ntz > TIMESTAMP '2024-02-29 14:00:00Z'", "the time has a zone"),
    ("ntz > TIMESTAMP '2024-02-29 14:00:00.0000001'", "whole microseconds"),
    ("ns > TIMESTAMP '2024-02-29 14:00:00.0000000001'", "whole nanoseconds"),
    ("ns > TIMESTAMP '1600-01-01'", "beyond what timestamp_ns can hold"),
    ("clock > TIME '25:00'", "is not a time"),
    ("clock > TIME '12:00Z'", "is not a time"),
    ("clock > TIMESTAMP '2024-02-29'", "cannot be compared"),
    ("EXTRACT(YEAR FROM clock) = 1", "extracts from time"),
    ("ns + 1 > ns", "cannot be compared"),
]


def test_what_has_no_meaning_for_the_type_is_refused(instance: Instance) -> None:
    table = instance.create_table("t", COLUMNS, row_keys=["n"])
    for condition, reason in MEANINGLESS:
        with pytest.raises(InvalidRequestError, match=reason):
            table.query(where=condition)
            raise AssertionError(condition)


def test_the_least_and_the_greatest_of_the_types_are_kept(instance: Instance) -> None:
    operations = ", ".join(
        f"{how}({name})"
        for how, name in zip(
            ["min", "max", "min", "max", "min"], ["u", "ntz", "ns", "nn", "clock"], strict=True
        )
    )
    table = instance.create_table("t", COLUMNS, {"aggregations": operations}, row_keys=["n"])
    with table.writer() as writer:
        for row in ROWS:
            writer.write({**row, "n": 7})
    writer.ingested.wait()
    (row,) = table.query().to_arrow().to_pylist()
    assert row == {
        "n": 7,
        "u": IDS[0],
        "ntz": ROWS[3]["ntz"],
        "ns": ROWS[0]["ns"],
        "nn": ROWS[3]["nn"],
        "clock": ROWS[0]["clock"],
    }


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp_ntz", "2024-02-29 12:00", NOON),
        ("timestamp_ntz", "2024-02-29", NOON.replace(hour=0)),
        ("timestamp_ns", "2024-02-29T12:00:00.000000001Z", NANO.tz_localize("UTC")),
        ("timestamp_ns", "2024-02-29T13:00:00.000000001+01:00", NANO.tz_localize("UTC")),
        ("timestamp_ntz_ns", "2024-02-29T12:00:00.000000001", NANO),
        ("time", "12:30", dt.time(12, 30)),
        ("time", "12:30:45.123456000", dt.time(12, 30, 45, 123456)),
        ("uuid", "01000000-0000-0000-0000-000000000001", IDS[1]),
        ("uuid", "01000000000000000000000000000001", IDS[1]),
        ("timestamp_ntz", "2024-02-29T12:00:00Z", None),
        ("timestamp_ntz", "2024-02-29T12:00:00.0000001", None),
        ("timestamp_ns", "2024-02-29T12:00:00.0000000001Z", None),
        ("timestamp_ns", "1500-01-01", None),
        ("time", "24:00", None),
        ("time", "12", None),
        ("time", "12:30:00Z", None),
        ("time", "12:30:00.0000001", None),
        ("uuid", "01000000-0000-0000-0000-00000000000", None),
        ("uuid", "g1000000-0000-0000-0000-000000000001", None),
    ],
)
def test_text_in_files_becomes_exactly_its_value_or_is_refused(
    kind: str, text: str, value: object, instance: Instance, tmp_path: Path
) -> None:
    nested = f"list<struct<a:{kind}?>>"
    table = instance.create_table(
        "t", f"id:long, v:{kind}, w:list<{kind}>, x:{nested}", row_keys=["id"]
    )
    json_line = f'{{"id": 1, "v": "{text}", "w": ["{text}", null], "x": [{{"a": "{text}"}}]}}'
    csv = f'id,v,w,x\n2,{text},"[""{text}"",null]","[{{""a"":""{text}""}}]"\n'
    for name, content in (("rows.jsonl", json_line), ("rows.csv", csv)):
        (tmp_path / name).write_text(content)
        dropped = table.ingest(tmp_path / name)
        if value is None:
            with pytest.raises(RefusedSourceError, match="column 'v'"):
                dropped.wait()
        else:
            dropped.wait()
    wanted = {"v": value, "w": [value, None], "x": [{"a": value}]}
    found = table.query().to_arrow().to_pylist()
    assert found == ([] if value is None else [{"id": n, **wanted} for n in (1, 2)])


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("timestamp_ntz", pa.array([NOON.replace(tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))),
        ("timestamp", pa.array([1], pa.timestamp("ns", "UTC"))),
        ("time", pa.array([1], pa.time64("ns"))),
        ("uuid", pa.array([b"short"], pa.binary(5))),
        ("uuid", pa.array(["no uuid"])),
        ("long", pa.array([2**63], pa.uint64())),
        ("decimal(3,0)", pa.array([1000])),
        ("date", pa.array([1], pa.date64())),
        ("timestamp_ns", pa.array([2**62], pa.timestamp("s", "UTC"))),
    ],
)
def test_a_cell_of_a_frame_that_would_change_is_refused(
    kind: str, cells: pa.Array, instance: Instance
) -> None:
    table = instance.create_table("t", f"id:long, v:{kind}", row_keys=["id"])
    with pytest.raises(RefusedSourceError, match="column 'v'"):
        table.ingest(pa.table({"id": [1], "v": cells}))


def test_a_schema_of_the_types_is_read_back(instance: Instance) -> None:
    table = table_of(instance, "u")
    assert Schema.loads(table.schema.dumps()) == table.schema
    assert repr(table.schema).startswith("Schema(row_keys=[u:uuid], values=[ntz:timestamp_ntz,")


def test_changes_have_uuids_of_their_own_type(instance: Instance) -> None:
    table = table_of(instance, "n")
    assert sorted(table.changes(0).to_arrow().column("u").to_pylist()) == IDS


@pytest.mark.parametrize(
    ("kind", "part", "size_bytes"),
    [("long", -1, 8), ("uuid", bytes(16), 16), ("decimal(38,0)", Decimal(10**38 - 1), 8)],
)
def test_what_ingest_takes_for_the_longest_key_the_table_takes_too(
    instance: Instance, kind: str, part: object, size_bytes: int
) -> None:
    table = instance.create_table("t", f"k:{kind}, s:string", row_keys=["k", "s"])
    for length in (4096 - size_bytes, 4097 - size_bytes):
        rows = pa.table({"k": [part], "s": ["x" * length]})
        if length + size_bytes <= 4096:
            table.ingest(rows).wait()
            continue
        with pytest.raises(RefusedSourceError, match="the row key takes 4,097"):
            table.ingest(rows)
    assert table.count(exact=part) == 1
