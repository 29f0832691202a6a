"""Compressed files and Arrow files: read to their end, and refused if they are damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.errors import RefusedSourceError
from dormouse.files.formats import read_source
from dormouse.schema.schema import Schema
from tests.support.source_files import COMPRESSORS, arrow_file, arrow_stream

KEY_ONLY = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "valueFields": [{"name": "v", "type": "LongType"}],
    }
)
Read = Callable[..., list[dict[str, object]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_bytes(body: bytes | str, key: str, schema: Schema) -> list[dict[str, object]]:
        local = tmp_path / "file"
        local.write_bytes(body.encode() if isinstance(body, str) else body)
        return [row for batch in read_source(local, key, schema) for row in batch.to_pylist()]

    return read_bytes


def test_parts_that_were_compressed_one_by_one_are_read_to_the_end(read: Read) -> None:
    parts = [b"k,v\n", b"a,1\n" * 50_000, b"b,2\n"]
    for ending, compress in COMPRESSORS.items():
        rows = read(b"".join(map(compress, parts)), f"x.csv{ending}", KEY_ONLY)
        assert (len(rows), rows[-1]) == (50_001, {"k": "b", "v": 2}), ending


@pytest.mark.parametrize("cut", [1, 9])
def test_a_compressed_file_that_ends_in_the_middle_is_refused(read: Read, cut: int) -> None:
    body = "".join(f"{number},{number * 7919}\n" for number in range(20_000)).encode()
    for ending, compress in COMPRESSORS.items():
        with pytest.raises(RefusedSourceError, match="damaged"):
            read(compress(b"k,v\n" + body)[:-cut], f"x.csv{ending}", KEY_ONLY)


def test_text_that_begins_like_a_compressed_file_is_text(read: Read) -> None:
    assert read("k,v\nBZh9,1\n", "x.csv", KEY_ONLY) == [{"k": "BZh9", "v": 1}]
    bzh = Schema.from_json({"rowKeyFields": [{"name": "BZh91AY", "type": "LongType"}]})
    assert read("BZh91AY\n1\n", "x.csv", bzh) == [{"BZh91AY": 1}]


def test_arrow_batches_of_any_size_and_encoding_are_read(read: Read) -> None:
    keys = pa.array([f"k{number % 9}" for number in range(200_000)]).dictionary_encode()
    values = pa.array(range(200_000), pa.int32())
    table = pa.table({"v": values, "k": keys})
    for body in (arrow_file(table), arrow_file(table, compression="zstd"), arrow_stream(table)):
        rows = read(body, "x.arrow", KEY_ONLY)
        assert (len(rows), rows[-1]) == (200_000, {"k": "k1", "v": 199_999})


def test_an_arrow_file_whose_offsets_lead_out_of_it_is_refused(read: Read) -> None:
    body = arrow_file(pa.table({"k": ["a", "bc"], "v": [1, 2]}))
    offsets = struct.pack("<3i", 0, 1, 3)
    assert body.count(offsets) == 1
    with pytest.raises(RefusedSourceError, match="column .k. of the Arrow file .* is damaged"):
        read(body.replace(offsets, struct.pack("<3i", 0, 1, 100)), "x.arrow", KEY_ONLY)


def test_a_damaged_arrow_file_is_refused_or_has_no_more_than_its_bytes(read: Read) -> None:
    body = bytearray(arrow_file(pa.table({"k": ["a", "bc"], "v": [1, 2]})))
    for place in range(0, len(body), 3):
        damaged = bytes(body[:place]) + bytes([body[place] ^ 0x81]) + bytes(body[place + 1 :])
        try:
            rows = read(damaged, "x.arrow", KEY_ONLY)
        except RefusedSourceError:
            continue
        assert all(len(str(row["k"])) <= len(body) for row in rows)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"k,v\na,1\n", "named .arrow but is not Arrow"),
        (b"PAR1", "named .arrow but is Parquet"),
        (arrow_file(pa.table({"k": ["a"], "v": [1]}))[:-9], "cannot be read"),
        (arrow_file(pa.table({"k": ["a"], "v": ["1"]})), "'v' is string in the file"),
        (arrow_file(pa.table({"k": ["a", None], "v": [1, 2]})), "row 2, column 'k'"),
    ],
)
def test_a_bad_arrow_file_is_refused_with_the_place_and_the_reason(
    read: Read, body: bytes, reason: str
) -> None:
    with pytest.raises(RefusedSourceError, match=reason):
        read(body, "x.arrow", KEY_ONLY)
