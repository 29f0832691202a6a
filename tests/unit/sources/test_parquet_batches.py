"""Parquet files that are small and hold much: memory stays bounded, or they are refused."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import RefusedSourceError
from dormouse.files import parquet_files
from dormouse.files.formats import infer_file, read_source
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards import thrift
from tests.support.damage import flipped

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "valueFields": [
            {"name": "l", "type": {"ListType": {"elementType": "StringType"}}, "nullable": True},
            {"name": "t", "type": "StringType", "nullable": True},
        ],
    }
)
LONG = "x" * 1024 * 1024


def repeated(values: list[str], indices: list[int]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values))


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("nested", [False, True])
def test_a_long_value_that_comes_often_later_on_fills_no_memory(
    tmp_path: Path, store_schema: bool, nested: bool
) -> None:
    """The first rows are short, and in the file it is once: 20 KB that unpack to a gigabyte."""
    column = repeated(["a", LONG], [0] * 100 + [1] * 1000)
    if nested:
        lists = pa.ListArray.from_arrays(pa.array(range(1101), pa.int32()), column)
        table = pa.table({"k": pa.array(["a"] * 1100), "l": lists})
    else:
        table = pa.table({"k": pa.array(["a"] * 1100), "t": column})
    local = tmp_path / "x"
    pq.write_table(table, local, store_schema=store_schema)
    rows = 0
    for batch in read_source(local, "x.parquet", SCHEMA):
        assert batch.nbytes <= 1.1 * parquet_files.REPEATED_BYTES
        rows += batch.num_rows
    assert rows == 1100


def test_values_that_are_just_repeated_are_read_in_large_batches(tmp_path: Path) -> None:
    local = tmp_path / "x"
    pq.write_table(pa.table({"k": repeated(["a", "b"], [0, 1] * 20_000)}), local)
    first = next(iter(read_source(local, "x.parquet", SCHEMA)))
    assert first.num_rows == parquet_files.BATCH_ROWS


def test_a_row_of_countless_elements_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements that are null take nothing in the file, and eight bytes each in memory."""
    monkeypatch.setattr(parquet_files, "MAX_ELEMENTS", 1000)
    lists = pa.ListArray.from_arrays(pa.array([0, 1001], pa.int32()), pa.nulls(1001, pa.string()))
    local = tmp_path / "x"
    pq.write_table(pa.table({"k": ["a"], "l": lists}), local)
    with pytest.raises(RefusedSourceError, match="1,001 elements") as refused:
        list(read_source(local, "x.parquet", SCHEMA))
    assert "row groups" in refused.value.hint


def test_a_column_made_to_fill_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MAX_UNPACKED_BYTES", 8 * 1024 * 1024)
    local = tmp_path / "x"
    column = pa.array([LONG] * 10)
    pq.write_table(pa.table({"k": column}), local, compression="zstd", use_dictionary=False)
    with pytest.raises(RefusedSourceError, match="unpacks to 10,4"):
        list(read_source(local, "x.parquet", SCHEMA))


def test_a_footer_is_read_once_for_many_row_groups_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    footers: list[object] = []
    real = pq.ParquetFile

    def counting(*given: Any, metadata: pq.FileMetaData | None = None, **how: Any) -> object:
        footers.append(metadata)
        return real(*given, metadata=metadata, **how)

    monkeypatch.setattr(pq, "ParquetFile", counting)
    monkeypatch.setattr(parquet_files, "RUN_BYTES", 1)
    counts = []
    for groups in (1, 50):
        local = tmp_path / f"{groups}"
        with pq.ParquetWriter(local, pa.schema([("k", pa.string()), ("t", pa.string())])) as writer:
            for _ in range(groups):
                writer.write_table(pa.table({"k": ["a"] * 2, "t": [LONG[:5000]] * 2}))
        footers.clear()
        assert sum(b.num_rows for b in read_source(local, "x.parquet", SCHEMA)) == 2 * groups
        assert len(footers) > groups, "dictionaries are read, too"
        counts.append(footers.count(None))
    assert counts == [1, 1]


def test_a_footer_too_large_for_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MAX_FOOTER_BYTES", 10_000)
    local = tmp_path / "x"
    pq.write_table(pa.table({"k": ["a"] * 1000}), local, row_group_size=1)
    with pytest.raises(RefusedSourceError, match="the footer has .* at most 10,000") as caught:
        list(read_source(local, "x.parquet", SCHEMA))
    assert "larger row groups" in caught.value.hint


@pytest.mark.parametrize("checksums", [True, False])
def test_pages_of_a_file_that_have_checksums_are_held_against_them(
    tmp_path: Path, checksums: bool
) -> None:
    local = tmp_path / "x.parquet"
    table = pa.table({"k": range(1000), "v": [f"v{n % 7}" for n in range(1000)]})
    pq.write_table(table, local, write_page_checksum=checksums)
    schema = Schema(
        (Field("k", Primitive.LONG),), values=(Field("v", Primitive.STRING, nullable=True),)
    )
    assert pa.Table.from_batches(read_source(local, "x.parquet", schema)).to_pylist() == (
        table.to_pylist()
    )
    if not checksums:
        return
    body = local.read_bytes()
    for place in range(200, 1800, 100):
        local.write_bytes(flipped(body, place))
        with pytest.raises(RefusedSourceError):
            list(read_source(local, "x.parquet", schema))


def footers(body: bytes) -> bytes:
    return b"PAR1" + body + len(body).to_bytes(4, "little") + b"PAR1"


def a_struct(*fields: thrift.Field) -> bytes:
    return thrift.struct(fields)


ALGORITHM = a_struct((1, thrift.STRUCT, a_struct((2, thrift.BINARY, thrift.binary(b"file")))))
CHUNK_WITH_KEY = a_struct(
    (2, thrift.INT64, thrift.signed(4)),
    (8, thrift.STRUCT, a_struct((2, thrift.STRUCT, a_struct()))),
)
SEALED_CHUNK = a_struct((2, thrift.INT64, thrift.signed(4)), (9, thrift.BINARY, b"\x02ab"))
PLAIN_CHUNK = a_struct((2, thrift.INT64, thrift.signed(4)), (4, thrift.INT64, thrift.signed(9)))


def groups(*chunks: bytes) -> thrift.Field:
    group = a_struct((1, thrift.LIST, thrift.list_of(thrift.STRUCT, chunks)))
    return 4, thrift.LIST, thrift.list_of(thrift.STRUCT, [group])


ENCRYPTED = {
    "its end says so": b"PAR1" + bytes(20) + b"\x14\0\0\0PARE",
    "both ends say so": b"PARE" + bytes(20) + b"\x14\0\0\0PARE",
    "the file has an algorithm": footers(
        a_struct(groups(PLAIN_CHUNK), (8, thrift.STRUCT, ALGORITHM))
    ),
    "signed": footers(a_struct((8, thrift.STRUCT, ALGORITHM)) + bytes(28)),
    "the number of the field is written in full": footers(
        b"\x0c" + thrift.signed(8) + ALGORITHM + b"\0"
    ),
    "the number of the field overflows": footers(
        b"\x0c" + thrift.signed(65536 + 8) + ALGORITHM + b"\0"
    ),
    "behind a map": footers(
        bytes([0x70 | thrift.MAP, 1, thrift.BINARY << 4 | thrift.UUID, 1, 65])
        + bytes(16)
        + bytes([0x10 | thrift.STRUCT])
        + ALGORITHM
        + b"\0"
    ),
    "a column has a key": footers(a_struct(groups(PLAIN_CHUNK, CHUNK_WITH_KEY))),
    "a column is sealed": footers(a_struct(groups(*[PLAIN_CHUNK] * 20, SEALED_CHUNK))),
}


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_a_file_that_is_encrypted_in_any_form_is_refused_before_arrow_looks_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    def arrow(*given: object, **how: object) -> object:
        raise AssertionError("Arrow ends the process when it is asked for such a column")

    monkeypatch.setattr(pq, "ParquetFile", arrow)
    for what, body in ENCRYPTED.items():
        local = tmp_path / f"x.parquet{compression}"
        local.write_bytes(gzip.compress(body) if compression else body)
        with pytest.raises(RefusedSourceError, match=r"Parquet file is encrypted") as refused:
            list(read_source(local, f"t/{local.name}", SCHEMA))
        assert "without encryption" in refused.value.hint, what
        with pytest.raises(RefusedSourceError, match=None if compression else "is encrypted"):
            infer_file(local)


def test_a_footer_that_is_no_struct_is_refused_before_arrow_looks_at_it(tmp_path: Path) -> None:
    """Else a reader that is more lenient could find encryption where this one gave up."""
    nested = b"\x1c" * 5000
    for body in (b"", b"\x15", b"\x1e\0", b"\x15" + b"\xff" * 40, nested, b"\x19\xfc\xff\xff\x7f"):
        local = tmp_path / "x.parquet"
        local.write_bytes(footers(body))
        with pytest.raises(RefusedSourceError, match="cannot be read"):
            list(read_source(local, "t/x.parquet", SCHEMA))


@given(st.integers(0, 3), st.integers(0, 40), st.booleans())
def test_what_real_footers_have_is_no_encryption(columns: int, rows: int, nested: bool) -> None:
    values = pa.array([[f"{n}"] if nested else f"{n}" for n in range(rows)])
    sink = io.BytesIO()
    table = pa.table({f"c{n}": values for n in range(columns)}).replace_schema_metadata({"a": "b"})
    pq.write_table(table, sink, row_group_size=7, write_page_index=True)
    body = sink.getvalue()
    footer = body[-8 - int.from_bytes(body[-8:-4], "little") : -8]
    assert not thrift.has_field(footer, parquet_files.ENCRYPTION_FIELDS)
