"""Every value of a Parquet or Arrow file arrives as it was written, or the file is refused."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.casting import can_cast
from dormouse.files.formats import infer_file, read_source
from dormouse.files.frames import read_frame
from dormouse.schema.schema import Field, Schema, choose_schema
from dormouse.schema.types import DecimalType, FieldType, ListType, Primitive, show_type
from tests.support.source_files import arrow_file, arrow_stream

KINDS = [*Primitive, *(DecimalType(*digits) for digits in ((20, 0), (38, 0), (38, 38), (9, 2)))]
PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
FIRST, LAST = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999."""


def schema_of(kind: FieldType) -> Schema:
    return Schema((Field("k", Primitive.LONG),), values=(Field("v", kind, nullable=True),))


def numbers() -> Iterator[pa.Array[Any]]:
    for bits in (8, 16, 32, 64):
        high = 2 ** (bits - 1)
        yield pa.array([0, -1, high - 1, -high], getattr(pa, f"int{bits}")())
        yield pa.array([0, 2 * high - 1, high], getattr(pa, f"uint{bits}")())
    yield pa.array([2**24, 2**24 + 1, 2**53, 2**53 + 1, -(2**53) - 1], pa.int64())
    yield pa.array(np.array([0.5, -0.0, 65504, math.inf, math.nan, 6e-8], np.float16))
    yield pa.array([0.1, -0.0, 3.4e38, math.inf, 1e-45], pa.float32())
    yield pa.array([0.1, -0.0, 1.7e308, -math.inf, math.nan, 5e-324], pa.float64())
    decimals = ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76))
    for make, digits in decimals:
        for scale in (0, 2, min(digits, 38)):
            most = (9,) * digits
            cells = [
                Decimal((0, most, -scale)),
                Decimal((1, most, -scale)),
                Decimal((0, (5,), -scale)),
            ]
            yield pa.array(cells, make(digits, scale))


def times() -> Iterator[pa.Array[Any]]:
    for unit, count in PER_SECOND.items():
        ends = [] if unit == "ns" else [LAST * count, (LAST + 1) * count, FIRST * count]
        for zone in (None, "America/New_York"):
            cells = pa.array([0, 1, -1, 1000, 2**63 - 1, -(2**63) + 1, *ends], pa.int64())
            yield cells.cast(pa.timestamp(unit, zone))
        clock: Any = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)  # type: ignore[arg-type]
        whole = pa.int32() if unit in ("s", "ms") else pa.int64()
        yield pa.array([0, 1, 86_400 * count - 1, 86_400 * count, -1], whole).view(clock)
    days = [0, LAST // 86_400, LAST // 86_400 + 1, FIRST // 86_400, FIRST // 86_400 - 1, 2**31 - 1]
    yield pa.array(days, pa.int32()).cast(pa.date32())
    yield pa.array([day * 86_400_000 for day in (*days, 10**6)] + [1], pa.int64()).view(pa.date64())


def others() -> Iterator[pa.Array[Any]]:
    texts = ["", "é\0", "123e4567-e89b-12d3-a456-426614174000"]
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        yield pa.array(texts, text)
    for data in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield pa.array([b"", b"\xff\0"], data)
    yield pa.array([b"a" * 16, b"\xff" * 16], pa.binary(16))
    yield pa.array([b"a" * 16], pa.uuid())
    yield pa.array([True, False])
    yield pa.array(["[1]"], pa.json_())


def plain_values(cells: pa.Array[Any]) -> list[object]:
    """Return values that are equal exactly if they are the same, whatever their types count."""
    kind: Any = cells.type
    if isinstance(kind, pa.TimestampType):
        return [
            value * (10**9 // PER_SECOND[kind.unit]) for value in cells.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_time(kind):
        counts = cells.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        return [value * (10**9 // PER_SECOND[kind.unit]) for value in counts]
    if pa.types.is_date(kind):
        factor, whole = (86_400_000, pa.int32()) if kind == pa.date32() else (1, pa.int64())
        return [value * factor for value in cells.view(whole).to_pylist()]
    return [value.bytes if isinstance(value, uuid.UUID) else value for value in cells.to_pylist()]


def is_same(given: Any, found: Any, kind: FieldType) -> bool:
    if kind is Primitive.UUID and isinstance(given, str):
        given = uuid.UUID(given).bytes
    if isinstance(found, float):
        signs = math.copysign(1, found) == math.copysign(1, given)
        return signs and (found == given or math.isnan(found) and math.isnan(given))
    return bool(found == given)


@pytest.mark.parametrize(
    "cells", [*numbers(), *times(), *others()], ids=lambda cells: str(cells.type)
)
def test_a_value_of_arrow_is_the_same_in_each_type_of_a_table_or_is_refused(
    cells: pa.Array[Any],
) -> None:
    kept = 0
    for kind in KINDS:
        if not can_cast(cells.type, kind):
            continue
        for given, one in zip(
            plain_values(cells), (cells.slice(i, 1) for i in range(len(cells))), strict=True
        ):
            table = pa.table({"k": [1], "v": one})
            try:
                (batch,) = read_frame(table.to_reader(), schema_of(kind))
            except RefusedSourceError as error:
                assert "column 'v'" in str(error)
                continue
            kept += 1
            assert is_same(given, plain_values(batch.column("v"))[0], kind), (
                show_type(kind),
                given,
            )
    assert kept


def read(path: Path, kind: FieldType | str | None = None) -> list[Any]:
    """Return the values `v` of a file in the inferred type, or in another one."""
    schema = choose_schema(infer_file(path).columns, ["k"], types={"v": kind} if kind else None)
    batches = list(read_source(path, path.name, schema))
    return [value for batch in batches for value in batch.column("v").to_pylist()]


def typed(path: Path) -> str:
    kind = infer_file(path).columns[1].type
    assert kind is not None
    return show_type(kind)


OLD = [
    text and dt.datetime.fromisoformat(text)
    for text in (
        "9999-12-31T23:59:59.999999",
        "1000-01-01",
        "0001-01-01",
        None,
        "2024-02-29T12:30:45.123456",
        "1969-12-31T23:59:59.999999",
    )
]


def old_file(path: Path, cells: pa.Array[Any], *, is_known: bool = False) -> Path:
    """Write times in INT96, as Spark does; `is_known` has Arrow's schema in the file, too."""
    table = pa.table({"k": pa.array(range(len(cells)), pa.int64()), "v": cells})
    pq.write_table(
        table, path, use_deprecated_int96_timestamps=True, store_schema=is_known, row_group_size=2
    )
    return path


def test_times_of_96_bits_are_read_in_every_year_and_at_every_depth(tmp_path: Path) -> None:
    plain = pa.array(OLD, pa.timestamp("us"))
    instants = [at and at.replace(tzinfo=dt.UTC) for at in OLD]
    path = old_file(tmp_path / "x.parquet", plain)
    assert typed(path) == "timestamp" and read(path) == instants
    assert read(path, "timestamp_ntz") == OLD
    old_file(path, plain, is_known=True)
    assert typed(path) == "timestamp_ntz" and read(path) == OLD
    old_file(path, plain.cast(pa.timestamp("us", "UTC")), is_known=True)
    assert typed(path) == "timestamp" and read(path) == instants
    for kind, wrap in (
        (pa.list_(pa.timestamp("us")), lambda at: [at, None]),
        (pa.map_(pa.string(), pa.timestamp("us")), lambda at: [("a", at)]),
        (pa.struct([("a", pa.timestamp("us")), ("b", pa.int64())]), lambda at: {"a": at, "b": 1}),
    ):
        nested = [None if at is None else wrap(at) for at in OLD]
        old_file(path, pa.array(nested, kind), is_known=True)
        assert read(path) == nested


def test_times_of_96_bits_that_a_unit_does_not_hold_are_refused(tmp_path: Path) -> None:
    far = old_file(tmp_path / "far.parquet", pa.array(OLD[::-1], pa.timestamp("us")))
    for kind in (Primitive.TIMESTAMP_NS, Primitive.TIMESTAMP_NTZ_NS):
        with pytest.raises(RefusedSourceError, match="^row 4, .* column 'v'") as caught:
            read(far, kind)
        assert "nanoseconds hold the years 1677 to 2262" in caught.value.hint
    fine = old_file(tmp_path / "fine.parquet", pa.array([1_000, -1, None], pa.timestamp("ns")))
    assert typed(fine) == "timestamp_ns"
    assert [value and value.value for value in read(fine)] == [1_000, -1, None]
    with pytest.raises(RefusedSourceError, match="^row 2, .* column 'v'") as caught:
        read(fine, Primitive.TIMESTAMP)
    assert "finer than microseconds" in caught.value.hint
    with pytest.raises(RefusedSourceError, match="column 'v' is timestamp"):
        read(fine, Primitive.DATE)


def test_categories_of_polars_are_text_in_every_file(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    words = [["a", None], None, [], ["b"]]
    flat = ["a", None, "b", "a"]
    for dtype in (pl.Categorical, pl.Enum(["a", "b"])):
        for cells, kind in ((flat, dtype), (words, pl.List(dtype))):
            frame = pl.DataFrame({"k": range(4), "v": pl.Series(cells, dtype=kind)})
            frame.write_parquet(tmp_path / "x.parquet")
            frame.write_ipc(tmp_path / "x.arrow")
            frame.write_ipc_stream(tmp_path / "x.arrows")
            for path in tmp_path.iterdir():
                assert read(path) == cells, (path.name, kind)


def test_an_enum_of_parquet_is_text(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for cells in (["b", None, "é"], [["b", None], None, []]):
        pq.write_table(pa.table({"k": range(3), "v": cells}), path, store_schema=False)
        written, text, enum = path.read_bytes(), b"\x25\0\x4c\x1c\0\0", b"\x25\x08\x4c\x4c\0\0"
        assert written.count(text) == 1  # the element of the schema, in Thrift's compact form
        path.write_bytes(written.replace(text, enum))
        assert "(Enum)" in str(pq.ParquetFile(path).schema)
        assert read(path) == cells
    pq.write_table(pa.table({"k": [1], "v": ["b"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(text, enum))
    assert read(path, Primitive.BYTES) == [b"b"]


def test_what_a_column_of_a_file_was_is_said(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "x.parquet"
    values = "INTERVAL 1 DAY AS i, union_value(num := 2) AS u, {'element1': 1} AS s"
    duckdb.sql(f"COPY (SELECT 1 AS k, {values}) TO '{path}'")
    remarks = {column.name: column.remark for column in infer_file(path).columns}
    assert remarks == {"k": "", "i": "an INTERVAL", "u": "a UNION", "s": ""}
    row = {"fields": [{"name": "v", "type": "interval day to second", "nullable": True}]}
    plain = pa.table({"k": [1], "v": [1]})
    known = {"org.apache.spark.sql.parquet.row.metadata": json.dumps(row)}
    pq.write_table(plain.replace_schema_metadata(known), path)
    assert [c.remark for c in infer_file(path).columns] == ["", "an INTERVAL of Spark"]


def test_days_of_the_legacy_calendar_of_spark_are_refused_not_others(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    day, utc = dt.date(1582, 10, 15), pa.timestamp("us", "UTC")
    noon = dt.datetime(1900, 1, 1, tzinfo=dt.UTC)
    for kind, first in ((pa.date32(), day), (utc, noon)):
        early = first - dt.timedelta(days=1)
        for cells in ([first, None], [first, early]):
            table = pa.table({"k": [1, 2], "v": pa.array(cells, kind)})
            for mark in ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"):
                pq.write_table(table.replace_schema_metadata({mark: ""}), path)
                assert "legacy calendar" in infer_file(path).columns[1].remark
                if early not in cells:
                    assert read(path) == cells
                    continue
                with pytest.raises(RefusedSourceError, match="^row 2, .* column 'v'") as caught:
                    read(path)
                assert "CORRECTED" in caught.value.hint


def test_views_of_lists_are_lists_in_every_file(tmp_path: Path) -> None:
    lists = [[1], None, [], [2, None]]
    for kind in (pa.list_view(pa.int32()), pa.large_list_view(pa.int32())):
        table = pa.table({"k": range(4), "v": pa.array(lists, kind)})
        pq.write_table(table, tmp_path / "x.parquet")
        (tmp_path / "x.arrow").write_bytes(arrow_file(table))
        (tmp_path / "x.arrows").write_bytes(arrow_stream(table))
        for path in tmp_path.iterdir():
            assert read(path) == lists and read(path, ListType(Primitive.LONG)) == lists


def test_a_variant_makes_a_dynamic_column_since_its_shape_is_that_of_one_file(
    tmp_path: Path,
) -> None:
    typed_value = pa.struct(
        [("n", pa.struct([("value", pa.binary()), ("typed_value", pa.int64())]))]
    )
    for parts in (["value"], ["value", "typed_value"], ["typed_value"]):
        kinds = {"metadata": pa.binary(), "value": pa.binary(), "typed_value": typed_value}
        kind = pa.struct([(name, kinds[name]) for name in ("metadata", *parts)])
        pq.write_table(pa.table({"k": [1], "v": pa.nulls(1, kind)}), tmp_path / "x.parquet")
        assert read(tmp_path / "x.parquet") == [None]
        if "value" in parts:
            column = pa.array([{name: b"" for name in parts if name != "typed_value"}], kind)
            pq.write_table(pa.table({"k": [1], "v": column}), tmp_path / "x.parquet")
            with pytest.raises(RefusedSourceError) as caught:
                read(tmp_path / "x.parquet", Primitive.STRING)
            assert "VARIANT" in caught.value.hint


def test_what_a_library_does_not_implement_is_no_fault_of_the_data(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"k": [1], "v": pl.Series([2**100], dtype=pl.Int128)})
    frame.write_parquet(tmp_path / "x.parquet")
    for attempt in (
        lambda: infer_file(tmp_path / "x.parquet"),
        lambda: list(read_source(tmp_path / "x.parquet", "x.parquet", schema_of(Primitive.LONG))),
    ):
        with pytest.raises(RefusedSourceError, match="a library does not implement") as caught:
            attempt()
        assert "decimal(38,0)" in caught.value.hint
