"""Blocks of rows: each row gets to its range, and streams come in one order wherever they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse_spark.blocks import RowBlock, Spool, route_rows, store_rows, stored_rows
from tests.support.world import LETTERS


def batch(text: str) -> pa.RecordBatch:
    rows = [{"letter": letter, "at": at, "note": None} for at, letter in enumerate(text)]
    return pa.RecordBatch.from_pylist(rows, arrow_schema(LETTERS))


def text_of(batches: list[pa.RecordBatch]) -> str:
    return "".join(letter for each in batches for letter in each.column("letter").to_pylist())


def test_rows_are_divided_where_ranges_meet() -> None:
    stream = [batch("bcep"), batch("ppp"), batch("pqz")]
    routed = list(route_rows(7, stream, [("d",), ("k",), ("pp",), ("z",)], LETTERS))
    spool = {}
    for part, block in routed:
        assert block.task == 7
        rows = pa.ipc.read_record_batch(pa.py_buffer(block.rows), arrow_schema(LETTERS))
        spool[part] = spool.get(part, "") + text_of([rows])
    assert spool == {0: "bc", 1: "e", 2: "ppppp", 3: "q", 4: "z"}


@pytest.mark.parametrize("memory_bytes", [0, 1000, 10**6])
def test_streams_come_in_one_order_from_memory_and_from_the_file(
    tmp_path: Path, memory_bytes: int
) -> None:
    blocks = [
        RowBlock(task, number, batch(text).serialize().to_pybytes())
        for task, number, text in [(2, 1, "xyz"), (0, 5, "c"), (2, 0, "q"), (0, 1, "ab")]
    ]
    spool = Spool(tmp_path / "blocks", memory_bytes)
    for block in blocks:
        spool.add(block)
    found = [text_of(stream) for stream in spool.streams(LETTERS)]
    assert found == ["abc", "qxyz"]
    assert ((tmp_path / "blocks").stat().st_size == 0) == (memory_bytes == 10**6)


def test_no_blocks_are_no_streams(tmp_path: Path) -> None:
    assert list(Spool(tmp_path / "blocks", 10).streams(LETTERS)) == []


def test_stored_rows_are_read_once_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    store_rows(path, [batch("ab"), batch("c")], LETTERS)
    assert text_of(list(stored_rows(path))) == "abc"
    assert not path.exists()


def test_rows_that_cannot_be_stored_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(pa.ArrowInvalid):
        store_rows(tmp_path / "rows", [pa.RecordBatch.from_pylist([{"other": 1}])], LETTERS)
    assert not list(tmp_path.iterdir())
