"""Rows of an attempt become files of a limited size, or nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.features import answer_query
from dormouse.features.answer_query import FileSink
from dormouse.files import results as writers
from tests.support.memory_storage import MemoryStorage
from tests.support.world import World

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def results(world: World, monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    """A storage that gets files in parts, of which each row makes some."""
    monkeypatch.setattr(writers, "ROW_GROUP_ROWS", 1)
    return MemoryStorage(world.clock)


def sink(results: MemoryStorage, scratch: Path) -> FileSink:
    opened = FileSink(results, scratch / "scratch", "q/", "rows-{}".format, "parquet")
    opened.begin(SCHEMA)
    return opened


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA)


def test_what_is_not_ended_leaves_neither_file_nor_parts(
    results: MemoryStorage, tmp_path: Path
) -> None:
    opened = sink(results, tmp_path)
    for number in range(20):
        opened.write(batch(number))
    assert list(results.list_uploads(""))
    opened.abort()
    assert not list(results.list_uploads(""))
    assert not list(results.list(""))
    assert not list((tmp_path / "scratch").iterdir())


def test_a_file_ends_when_it_is_large_enough(
    results: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_query, "FILE_BYTES", 1)
    opened = sink(results, tmp_path)
    for number in range(3):
        opened.write(batch(number))
    found = opened.end()
    assert [file.rows for file in found] == [1, 1, 1]
    stored = {each.path: each.size_bytes for each in results.list("")}
    assert stored == {"q/" + file.name: file.size_bytes for file in found}
    opened.abort()
    assert len(list(results.list(""))) == 3


def test_no_rows_are_no_file(results: MemoryStorage, tmp_path: Path) -> None:
    opened = sink(results, tmp_path)
    opened.write(batch())
    assert opened.end() == ()
    assert not list(results.list(""))
