"""Ingested files: every format gives the same rows, and bad files are refused with a reason."""

from __future__ import annotations

import bz2
import contextlib
import datetime as dt
import gzip
import io
import json
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files import formats
from dormouse.files.formats import read_source
from dormouse.files.text_files import read_csv
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Member, Primitive, StructType
from dormouse.tables.properties import CsvDialect
from tests.support.source_files import arrow_file, arrow_stream, gzipped

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "id", "type": "IntType"}],
        "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
        "valueFields": [
            {"name": "name", "type": "StringType", "nullable": True},
            {"name": "raw", "type": "ByteArrayType", "nullable": True},
            {
                "name": "price",
                "type": {"DecimalType": {"precision": 6, "scale": 2}},
                "nullable": True,
            },
            {"name": "day", "type": "DateType", "nullable": True},
            {"name": "ratio", "type": "FloatType", "nullable": True},
            {"name": "ok", "type": "BooleanType", "nullable": True},
            {"name": "tags", "type": {"ListType": {"elementType": "LongType"}}, "nullable": True},
            {
                "name": "counts",
                "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
                "nullable": True,
            },
        ],
    }
)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
ROWS: list[dict[str, object]] = [
    {
        "id": 1,
        "at": NOON,
        "name": "",
        "raw": b"\xff\0",
        "price": Decimal("1234.50"),
        "day": dt.date(2024, 2, 29),
        "ratio": 0.5,
        "ok": True,
        "tags": [1, None, 3],
        "counts": [("a", 1), ("b", None)],
    },
    {"id": 2, "at": NOON, **dict.fromkeys(f.name for f in SCHEMA.values)},
]
CSV = """at,id,name,raw,price,day,ratio,ok,tags,counts
2024-02-29T13:00:00+01:00,1,"",/wA=,1234.5,2024-02-29,0.5,true,"[1,null,3]","{""a"":1,""b"":null}"
2024-02-29 12:00,2,,,,,,,,
"""
JSON = """{"id":1,"at":"2024-02-29T12:00:00","name":"","raw":"/wA=","price":1234.5,\
"day":"2024-02-29","ratio":0.5,"ok":true,"tags":[1,null,3],"counts":{"a":1,"b":null}}

{"at":"2024-02-29 12:00:00+0000","id":2,"name":null}
"""
KEY_ONLY = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "valueFields": [{"name": "v", "type": "LongType"}],
    }
)


def parquet(rows: list[dict[str, object]], schema: pa.Schema | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[dict[str, object]]]:
    def read_bytes(body: bytes | str, key: str, schema: Schema = SCHEMA) -> list[dict[str, object]]:
        local = tmp_path / "file"
        local.write_bytes(body.encode() if isinstance(body, str) else body)
        batches = list(read_source(local, key, schema))
        assert all(batch.schema == arrow_schema(schema) for batch in batches)
        return [row for batch in batches for row in batch.to_pylist()]

    return read_bytes


UNSIGNED: list[pa.Field[Any]] = [pa.field("k", pa.string()), pa.field("v", pa.uint64())]
NANOSECONDS = [pa.field("id", pa.int32()), pa.field("at", pa.timestamp("ns"))]
Read = Callable[..., list[dict[str, object]]]


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("t/x.csv", CSV.encode()),
        ("t/x.json", JSON.encode()),
        ("t/x.ndjson", JSON.replace("\n", "\r\n").encode()),
        ("t/x.JSONL", JSON.encode()),
        ("t/x.json", f"\n[\n{JSON.strip()}\n]".replace("\n\n", ",\n").encode()),
        ("t/x.txt", CSV.encode()),
        ("t/x.parquet", parquet(ROWS, arrow_schema(SCHEMA))),
        ("t/x.arrow", arrow_file(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)))),
        ("t/x.Feather", arrow_stream(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA)))),
    ],
)
def test_each_format_plain_or_compressed_has_the_same_rows(
    read: Read, key: str, body: bytes
) -> None:
    assert read(body, key) == ROWS
    assert read(gzipped(body), key + ".gz") == ROWS
    assert read(bz2.compress(body), key + ".bz2") == ROWS
    assert read(pa.compress(body, "zstd", asbytes=True), key + ".zst") == ROWS


DIALECTS: list[tuple[CsvDialect, str, str, str]] = [
    (CsvDialect(), "x.tsv", "utf-8", "k\tv\td\nä,b\t1\t2024-02-29\n"),
    (CsvDialect(separator=";"), "x.txt", "utf-8", "k;v;d\nä,b;1;2024-02-29\n"),
    (CsvDialect(encoding="latin-1"), "x.csv", "latin-1", 'k,v,d\n"ä,b",1,2024-02-29\n'),
    (CsvDialect(encoding="utf-16"), "x.tsv", "utf-16", "k\tv\td\nä,b\t1\t2024-02-29\n"),
    (CsvDialect(dates="dmy"), "x.tsv", "utf-8", "k\tv\td\nä,b\t1\t29.2.2024\n"),
    (CsvDialect(dates="dmy"), "x.tsv", "utf-8", "k\tv\td\nä,b\t1\t2024-02-29\n"),
    (CsvDialect(dates="mdy"), "x.tsv", "utf-8", "k\tv\td\nä,b\t1\t02/29/2024\n"),
]


def test_text_is_read_as_the_table_says_that_its_files_are_written(tmp_path: Path) -> None:
    day = Field("d", Primitive.DATE, nullable=True)
    schema = Schema(KEY_ONLY.row_keys, values=(*KEY_ONLY.values, day))
    path = tmp_path / "file"
    for dialect, name, encoding, text in DIALECTS:
        path.write_text(text, encoding)
        (batch,) = read_source(path, name, schema, dialect)
        assert batch.to_pylist() == [{"k": "ä,b", "v": 1, "d": dt.date(2024, 2, 29)}]
    for dialect, body, reason in (
        (CsvDialect(), "k,v\nä,1\n".encode("latin-1"), "not UTF-8"),
        (CsvDialect(encoding="utf-16"), b"k,v\na,1\n", "is not utf-16"),
        (CsvDialect(encoding="utf-16"), "k,v\na,1\n".encode("utf-16")[:-1], "is not utf-16"),
        (CsvDialect(encoding="windows-1252"), b"k,v\n\x81,1\n", "is not windows-1252"),
        (CsvDialect(dates="mdy"), b"k,v,d\na,1,29/02/2024\n", "line 2, column 'd'"),
        (CsvDialect(dates="dmy"), b"k,v,d\na,1,29/02/24\n", "line 2, column 'd'"),
    ):
        path.write_bytes(body)
        with pytest.raises(RefusedSourceError, match=reason):
            list(read_source(path, "x.csv", schema, dialect))


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("x.csv", "k,v\n"),
        ("x.json", ""),
        ("x.json", "[]"),
        ("x.parquet", parquet([], arrow_schema(KEY_ONLY))),
    ],
)
def test_a_file_without_rows_is_good(read: Read, key: str, body: bytes) -> None:
    assert read(body, key, KEY_ONLY) == []


def test_parquet_of_narrower_or_wider_types_is_taken_when_exact(read: Read) -> None:
    found = parquet([{"v": 1, "k": "a"}], pa.schema(UNSIGNED))
    assert read(found, "x.parquet", KEY_ONLY) == [{"k": "a", "v": 1}]
    words = pa.table({"k": pa.array(["a"]).dictionary_encode(), "v": pa.array([1], pa.int8())})
    sink = pa.BufferOutputStream()
    pq.write_table(words, sink)
    assert read(sink.getvalue().to_pybytes(), "x.parquet", KEY_ONLY) == [{"k": "a", "v": 1}]


def test_long_values_that_parquet_stores_once_come_in_small_batches(tmp_path: Path) -> None:
    local = tmp_path / "x.parquet"
    pq.write_table(pa.table({"k": range(2000), "v": ["a" * 100_000] * 2000}), local)
    assert local.stat().st_size < 200_000
    schema = Schema((Field("k", Primitive.LONG),), values=(Field("v", Primitive.STRING),))
    batches = list(read_source(local, "x.parquet", schema))
    assert sum(batch.num_rows for batch in batches) == 2000
    assert max(batch.nbytes for batch in batches) <= 5 * 2**20


@pytest.mark.parametrize(
    ("key", "body", "reason"),
    [
        ("x.xml", b"<a/>", "no known format"),
        ("x.csv", b"", "empty|cannot be read"),
        ("x.csv", b"k,v\na,1\nb\n", "line 3: fields of the record: 1; of the file: 2"),
        ("x.csv", b"k,v\na,1\n\xff,1\n", "line 3, column 'k': the text is not UTF-8"),
        ("x.csv", b"k,w\na,1\n", "the table has no column 'w' of the file"),
        ("x.csv", b"k\na\n", "the file has no column 'v'"),
        ("x.csv", b"k,v,v\na,1,1\n", "'v' more than once"),
        ("x.csv", b"k,v\na,1\nb,x\n", "line 3, column 'v': the value is not of type long"),
        (
            "x.csv",
            b"k,v\na,1\nb,9223372036854775808\n",
            "line 3, column 'v': the value is not of type long",
        ),
        ("x.csv", b"k,v\na,1\n,1\n", "line 3, column 'k': there is no value"),
        ("x.json", b'{"k":"a","v":1}\n{"k":"b"}', "line 2, column 'v': .* no value"),
        (
            "x.json",
            b'{"k":"a","v":1}\n{"k":"b","v":1.5}',
            "line 2, column 'v': the value is not of type long",
        ),
        ("x.json", b'{"k":"a","v":1}\n{"k":"b","v":', "line 2 is not a JSON object"),
        ("x.json", b'[\n{"k":"a",\n"v":1},\n\n{"k":1,"v":1}]', "line 5, column 'k'"),
        ("x.json", b'[{"k":"a","v":1},\n1]', "line 2 is not a JSON object"),
        ("x.json", b'[{"k":"a","v":1}', "the JSON array from line 1 on cannot be read"),
        ("x.json", b'[{"k":"a","v":1}]\n{"k":"b","v":1}', "the JSON array from line 1 on"),
        ("x.json", b'{"k":"a","v":1}\n[{"k":"b","v":1}]', "line 2 is not a JSON object"),
        ("x.json", b'{"k":"a","v":1,"w":1}', "line 1: the table has no column 'w' of the line"),
        ("x.json", b'{"k":"\xff","v":1}', "line 1"),
        ("x.json", b'{"k":"\\ud800","v":1}', "line 1"),
        ("x.json", b'{"k":"a","v":9223372036854775808}', "line 1, column 'v'"),
        ("x.json", gzipped(b'{"k":"a","v":1}'), "gzipped but not named .gz"),
        ("x.json.gz", b'{"k":"a","v":1}', "not gzipped"),
        ("x.json.gz", gzipped(b'{"k":"a","v":1}' * 1000)[:-9], "damaged"),
        ("x.csv.gz", gzipped(b"k,v\n" + b"a,1\n" * 1000)[:-9], "damaged"),
        ("x.json.zst", b'{"k":"a","v":1}', "named .zst but is not zstd-compressed"),
        ("x.json", bz2.compress(b'{"k":"a","v":1}'), "bzipped but not named .bz2"),
        ("x.csv", arrow_file(pa.table({"k": ["a"], "v": [1]})), "named .csv but is Arrow"),
        ("x.parquet", b"k,v\na,1\n", "named .parquet but is not Parquet"),
        ("x.csv", parquet([{"k": "a", "v": 1}]), "named .csv but is Parquet"),
        ("x.csv", b"PK\x03\x04\x14\x00", "named .csv but is a ZIP archive or an Excel sheet"),
        ("x.csv", b"\xef\xbb\xbf\n<!DOCTYPE html>\n<p>404</p>", "named .csv but is a page of HTML"),
        ("x.json", b'<?xml version="1.0"?><Error/>', "named .json but is a page of HTML or XML"),
        ("x.parquet", b"<html></html>", "named .parquet but is a page of HTML"),
        ("x.parquet", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        ("x.parquet", b"", "named .parquet but is empty"),
        ("x.parquet", parquet([{"k": "a", "v": 1}])[:-5], "cannot be read"),
        ("x.parquet", parquet([{"k": "a", "v": "1"}]), "column 'v' is string in the file"),
        ("x.parquet", parquet([{"k": "a", "v": 1.5}]), "column 'v' is double in the file"),
        (
            "x.parquet",
            parquet([{"k": None, "v": 1}]),
            "row 1, .* row group 1, column 'k': there is no value",
        ),
        ("x.parquet", parquet([{"k": "a"}]), "the file has no column 'v'"),
        (
            "x.parquet",
            parquet([{"k": "a", "v": 2**63}], pa.schema(UNSIGNED)),
            "row group 1, column 'v': the value is not of type long",
        ),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_reason(
    read: Read, key: str, body: bytes, reason: str
) -> None:
    with pytest.raises(RefusedSourceError, match=reason):
        read(body, key, KEY_ONLY)


SECRET = "an-address@example.com"


@pytest.mark.parametrize(
    ("key", "body"),
    [
        *(
            ("x.csv", f"id,at,{f.name}\n1,1970-01-01,{SECRET}\n")
            for f in SCHEMA.values
            if f.name != "name"
        ),
        ("x.csv", f"id,at\n1,{SECRET}\n"),
        ("x.csv", f"id,at\n{SECRET},1970-01-01\n"),
        ("x.csv", f"id,at\n1,1970-01-01,{SECRET}\n"),
        ("x.csv", f"1,{SECRET}\n2,0\n"),
        ("x.csv", f"{SECRET},{SECRET}\n2,0\n"),
        ("x.csv", f'id,at,tags\n1,1970-01-01,"{SECRET}\n'),
        *(
            ("x.json", json.dumps({"id": 1, "at": "1970-01-01", f.name: SECRET}))
            for f in SCHEMA.values
            if f.name != "name"
        ),
        ("x.json", json.dumps({"id": 1, "at": "1970-01-01", "counts": {SECRET: SECRET}})),
        ("x.json", json.dumps({"id": 1, "at": "1970-01-01", SECRET: 1})),
        ("x.json", f'{{"id":1,"at":{SECRET}'),
        ("x.json", f"{SECRET}\n"),
        ("x.parquet", parquet([{"id": 1, "at": SECRET}])),
        ("x.parquet", parquet([{"id": 1, "at": NOON, SECRET: 1}])),
        ("x.parquet", parquet([{"id": 1, "at": NOON, "price": Decimal("7654321.25")}])),
        ("x.parquet", parquet([{"id": 7654321 * 10**6, "at": NOON}])),
        ("x.parquet", parquet([{"id": 1, "at": 7654321}], pa.schema(NANOSECONDS))),
    ],
)
def test_a_reason_quotes_nothing_of_the_file(read: Read, key: str, body: str | bytes) -> None:
    with pytest.raises(RefusedSourceError) as refusal:
        read(body, key)
    assert SECRET not in refusal.value.explanation
    assert "7654321" not in refusal.value.explanation


def test_a_reason_names_no_member_that_a_struct_of_the_file_has(read: Read) -> None:
    kind = StructType((Member("x", Primitive.LONG),))
    value = {"name": "s", "type": kind.to_json(), "nullable": True}
    key = {"name": "k", "type": "LongType"}
    schema = Schema.from_json({"rowKeyFields": [key], "sortKeyFields": [], "valueFields": [value]})
    with pytest.raises(RefusedSourceError) as refusal:
        read(json.dumps({"k": 1, "s": {"x": 1, SECRET: 2}}), "x.json", schema)
    assert "a struct has an unknown member" in refusal.value.explanation
    assert SECRET not in refusal.value.explanation


def test_text_that_is_not_utf8_inside_parquet_is_refused_not_stored(read: Read) -> None:
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers(), null_count=0)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": bad, "v": [1]}), sink)
    with pytest.raises(RefusedSourceError, match="row 1, .*, column 'k'"):
        read(sink.getvalue().to_pybytes(), "x.parquet", KEY_ONLY)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("at", "yesterday"),
        ("at", "2024-02-30T00:00:00Z"),
        ("at", "2024-02-29T00:00:00.1234567Z"),
        ("raw", "not base64!"),
        ("price", "1.234"),
        ("price", "99999.00"),
        ("day", "2024-02-30"),
        ("ratio", "1e300"),
        ("ok", "perhaps"),
        ("tags", "[1, 2"),
        ("counts", '{"a":"b"}'),
        ("id", "2147483648"),
        ("id", "NaN"),
    ],
)
def test_a_cell_that_is_no_value_of_its_type_is_refused_in_csv(
    read: Read, column: str, cell: str
) -> None:
    good = {"id": "1", "at": "2024-02-29"} | {column: '"' + cell.replace('"', '""') + '"'}
    filler = {"id": "1", "at": "2024-02-29T00:00Z"} | dict.fromkeys(good.keys() - {"id", "at"}, "")
    lines = [good.keys(), *[[filler[name] for name in good]] * 3, good.values()]
    with pytest.raises(RefusedSourceError, match=f"line 5, column '{column}'"):
        read("\n".join(",".join(line) for line in lines), "x.csv")


@pytest.mark.parametrize(
    ("column", "value"),
    [("ratio", 1e300), ("price", "1.234"), ("price", 99999), ("raw", "!"), ("tags", [1.5])],
)
def test_a_json_value_that_does_not_fit_is_refused_not_bent(
    read: Read, column: str, value: object
) -> None:
    good = {"id": 1, "at": "1970-01-01"}
    lines = [json.dumps(good), json.dumps(good | {column: value})]
    with pytest.raises(RefusedSourceError, match=f"line 2, column '{column}'"):
        read("\n".join(lines), "x.json")


def test_times_finer_than_microseconds_are_refused_not_rounded(read: Read) -> None:
    fine = pa.schema(NANOSECONDS)
    assert read(parquet([{"id": 1, "at": 1000}], fine), "x.parquet")
    with pytest.raises(RefusedSourceError, match="row 1, .*, column 'at'"):
        read(parquet([{"id": 1, "at": 1001}], fine), "x.parquet")


def test_what_no_memory_or_stack_would_hold_is_refused(tmp_path: Path) -> None:
    local = tmp_path / "local"
    for name, body, reason in (
        ("x.json", b'{"k":"a","v":' + b"[" * 100_000, "line 1 is nested too deep"),
        ("x.json", b'{"k":"a"}\n{"k":"' + b"a" * (16 << 20) + b'"}', "line 2 is longer than"),
        ("x.json.gz", gzip.compress(b"\n" + b"0" * (64 << 20), 1), "line 2 is longer than"),
        ("x.csv", b"\xff\xfe\n", "in UTF-16"),
    ):
        local.write_bytes(body)
        with pytest.raises(RefusedSourceError, match=reason):
            list(read_source(local, name, SCHEMA))


def test_a_gzipped_file_that_unpacks_out_of_proportion_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_UNPACKED_BYTES", 1024 * 1024)
    plain = parquet([{"k": "a" * 3_000_000, "v": 1}])
    bombs = {
        "x.csv.gz": b"k,v\n" + b"\n" * 10_000_000,
        "x.jsonl.gz": b'{"k":"a","v":1}\n' + b"\n" * 10_000_000,
        "x.parquet.gz": plain[:4] + b"\0" * 10_000_000 + plain[4:],
    }
    for key, body in bombs.items():
        local = tmp_path / key
        local.write_bytes(gzipped(body))
        with pytest.raises(RefusedSourceError, match="unpacks to more than 200 times"):
            list(read_source(local, key, KEY_ONLY))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(bombs)
    local.write_bytes(gzipped(b"k,v\n" + b"a,1\n" * 200_000))  # not yet so large
    assert sum(b.num_rows for b in read_source(local, "x.csv.gz", KEY_ONLY)) == 200_000


def cpu_seconds(body: bytes) -> float:
    """Return what reading a CSV file took, refused or not: the least of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        with contextlib.suppress(RefusedSourceError):
            for _ in read_csv(io.BytesIO(body), KEY_ONLY):
                pass
        found.append(time.process_time() - begun)
    return min(found)


@pytest.mark.parametrize("names", ["c{}", "k"])
def test_a_header_of_ten_times_the_names_costs_about_ten_times(names: str) -> None:
    few, many = (
        (",".join(names.format(i) for i in range(count)) + "\nx\n").encode()
        for count in (10_000, 100_000)
    )
    assert cpu_seconds(many) < 30 * cpu_seconds(few)  # a hundred times, were it quadratic
