"""Values of every type, through ingest, compaction and query: just as they came, in one order."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.order import fit_range
from dormouse.arrow.types import arrow_schema
from dormouse.files.casting import FIRST_SECOND, LAST_SECOND
from dormouse.key_codec import KeyCodec
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, MapType, Member, Primitive, StructType
from dormouse.tables.table import Table
from tests.support.batches import Row, bounds, ranges, rows_of, schemas, sort_key_of
from tests.support.depth import examples
from tests.support.queries import query_rows
from tests.support.world import World
from tests.unit.query.test_oracle import assert_same_rows

LONG = Primitive.LONG


@contextmanager
def new_world() -> Iterator[World]:
    with TemporaryDirectory() as folder:
        yield World(Path(folder))


def parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def drop(world: World, name: str, rows: Sequence[Row], schema: Schema) -> None:
    wanted = arrow_schema(schema)
    world.drop(f"t/{name}.parquet", parquet(pa.Table.from_pylist(list(rows), wanted)))
    world.settle()


def compacting(world: World, schema: Schema, splits: Sequence[Key] = ()) -> Table:
    points = [KeyCodec(schema).to_json(key) for key in splits]
    return world.create("t", schema, splits=points, compaction_files=2, compaction_strategy="batch")


def found(world: World, table: Table, *wanted: KeyRange, look_up_bytes: int = 2**20) -> pa.Table:
    return query_rows(
        world.storage,
        table,
        world.state(table),
        list(wanted),
        now_ms=0,
        scratch=world.services.scratch,
        memory_bytes=2**26,
        look_up_bytes=look_up_bytes,
    ).reader.read_all()


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_rows_of_any_schema_come_back_sorted_and_filtered(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    files = data.draw(st.lists(rows_of(schema, max_size=20), min_size=1, max_size=3))
    full = bounds(schema).filter(lambda key: fits(key, schema))
    splits = sorted(data.draw(st.sets(full, max_size=2)))
    wanted = data.draw(st.lists(ranges(schema), max_size=2))
    with new_world() as world:
        table = compacting(world, schema, splits)
        for i, rows in enumerate(files):
            drop(world, str(i), rows, schema)
        everything = [row for rows in files for row in rows]
        for look_up_bytes in (0, 2**20):
            all_rows = found(world, table, look_up_bytes=look_up_bytes).to_pylist()
            assert_same_rows(all_rows, everything, schema)
            some = found(world, table, *wanted, look_up_bytes=look_up_bytes).to_pylist()
            inside = [
                row
                for row in everything
                if not wanted
                or any(r.contains(encode_key(sort_key_of(row, schema))) for r in wanted)
            ]
            assert_same_rows(some, inside, schema)


def fits(key: Key, schema: Schema) -> bool:
    """Return whether a split point can be written: within the types of the columns."""
    return bool(key) and fit_range(KeyRange(key, None), schema).min == key


def merged_values(kind: pa.Array, schema: Schema) -> pa.Table:
    """Ingest a value a row, in two files, let them be compacted, and return the rows."""
    keys = pa.array(range(len(kind)), pa.int64())
    rows = pa.Table.from_arrays([keys, kind], names=["k", "v"])
    with new_world() as world:
        table = compacting(world, schema)
        for part in range(2):
            mine = [i for i in range(len(kind)) if i % 2 == part]
            world.drop(f"t/{part}.parquet", parquet(rows.take(mine)))
            world.settle()
        assert len(world.state(table).shards) - len(world.state(table).unreferenced) == 1
        return found(world, table)


def value_of(kind: object, *, nullable: bool = True) -> Schema:
    return Schema((Field("k", LONG),), values=(Field("v", kind, nullable),))  # type: ignore[arg-type]


def test_floats_come_back_bit_by_bit() -> None:
    odd = [
        struct.unpack("<d", struct.pack("<Q", bits))[0]
        for bits in (0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x8000000000000000, 1)
    ]
    values = pa.array([*odd, 0.0, float("inf"), float("-inf"), 5e-324, None], pa.float64())
    rows = merged_values(values, value_of(Primitive.DOUBLE))["v"].combine_chunks()
    assert rows.view(pa.int64()).equals(values.view(pa.int64()))


def test_times_and_dates_of_all_years_come_back() -> None:
    limits = [FIRST_SECOND * 10**6, -1, 0, LAST_SECOND * 10**6 + 999_999]
    times = pa.array(limits, pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = merged_values(times, value_of(Primitive.TIMESTAMP))["v"].combine_chunks()
    assert rows.cast(pa.int64()).to_pylist() == limits
    limits = [FIRST_SECOND // 86_400, -1, 0, LAST_SECOND // 86_400]
    dates = pa.array(limits, pa.int32()).cast(pa.date32())
    rows = merged_values(dates, value_of(Primitive.DATE))["v"].combine_chunks()
    assert rows.cast(pa.int32()).to_pylist() == limits


def test_decimals_of_38_digits_come_back() -> None:
    values = pa.array(["9" * 38, "-" + "9" * 38, "0", "-1"]).cast(pa.decimal128(38, 0))
    assert merged_values(values, value_of(DecimalType(38, 0)))["v"].combine_chunks() == values


def test_nested_nulls_and_empty_nests_stay_what_they_are() -> None:
    kind = StructType(
        (
            Member("l", ListType(Primitive.STRING), nullable=True),
            Member("m", MapType(LONG, StructType((Member("x", LONG, True),))), nullable=True),
            Member("s", StructType((Member("must", LONG),)), nullable=True),
        )
    )
    values: list[object] = [
        None,
        {"l": None, "m": None, "s": None},
        {"l": [], "m": [], "s": {"must": 1}},
        {"l": [None, ""], "m": [(1, None), (2, {"x": None}), (3, {"x": 3})], "s": {"must": -1}},
    ]
    schema = value_of(kind)
    rows = merged_values(pa.array(values, arrow_schema(schema).field("v").type), schema)
    assert rows["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (
            Primitive.STRING,
            ["", "\0", "\0\0", "a", "a\0", "b", "\ud7ff", "\ue000", "\uffff", "\U00010000"],
        ),
        (Primitive.BYTES, [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"]),
        (Primitive.INT, [-(2**31), -1, 0, 1, 2**31 - 1]),
        (LONG, [-(2**63), -1, 0, 1, 2**63 - 1]),
        (Primitive.TIMESTAMP, [FIRST_SECOND * 10**6, -1, 0, 1, LAST_SECOND * 10**6 + 999_999]),
        (Primitive.DATE, [FIRST_SECOND // 86_400, -1, 0, 1, LAST_SECOND // 86_400]),
    ],
)
def test_keys_come_in_one_order_and_each_is_found_alone(
    kind: Primitive, keys: list[int | str | bytes]
) -> None:
    schema = Schema((Field("k", kind),), values=(Field("place", LONG),))
    stored = pa.int64() if kind is Primitive.TIMESTAMP else pa.int32()
    wanted = arrow_schema(schema).field("k").type
    with new_world() as world:
        table = compacting(world, schema, [(keys[len(keys) // 2],)])
        for part in range(2):  # the greatest first, and two files to be merged in each leaf
            places = list(range(len(keys)))[::-1][part::2]
            column = pa.array(
                [keys[i] for i in places],
                stored if kind in (Primitive.TIMESTAMP, Primitive.DATE) else wanted,
            ).cast(wanted)
            rows = pa.Table.from_arrays([column, pa.array(places)], names=["k", "place"])
            world.drop(f"t/{part}.parquet", parquet(rows))
            world.settle()
        for look_up_bytes in (0, 2**20):
            all_rows = found(world, table, look_up_bytes=look_up_bytes)
            assert all_rows["place"].to_pylist() == list(range(len(keys)))
            for place, key in enumerate(keys):
                alone = found(world, table, KeyRange.exactly((key,)), look_up_bytes=look_up_bytes)
                assert alone["place"].to_pylist() == [place]
