"""Files of exports: cut between keys, in order, and never taken for those of another export."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import AlreadyExistsError, UnsortedRowsError
from dormouse.features.export_rows import FileId, WrittenFile, read_existing, write_file
from dormouse.schema.schema import Schema
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import batches_of

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})
PLACE = FileId("export", 1, 2)


def written(keys: list[int], local: Path, *, late: bool = False) -> WrittenFile:
    batches = batches_of([{"k": key} for key in keys], SCHEMA, 2)
    return write_file(batches, local, PLACE, SCHEMA, ["k"], is_late=lambda: late)


def stored(local: Path) -> tuple[MemoryStorage, int]:
    storage = MemoryStorage()
    storage.put("file", local.read_bytes())
    return storage, local.stat().st_size


def test_a_file_that_is_cut_short_has_all_rows_of_its_last_key(tmp_path: Path) -> None:
    """The next begins with the key it ends before, and would have the others twice."""
    assert written([1, 1, 1, 2, 2], tmp_path / "local", late=True) == WrittenFile(3, (2,))
    assert pq.read_table(tmp_path / "local").column("k").to_pylist() == [1, 1, 1]


def test_rows_out_of_order_are_not_exported(tmp_path: Path) -> None:
    with pytest.raises(UnsortedRowsError):
        written([1, 2, 1, 3], tmp_path / "local")


def test_a_file_that_is_there_says_where_the_next_goes_on(tmp_path: Path) -> None:
    found = written([1, 1, 2], tmp_path / "local", late=True)
    storage, size_bytes = stored(tmp_path / "local")
    assert read_existing(storage, "file", size_bytes, PLACE) == found


@pytest.mark.parametrize(
    "other", [FileId("another", 1, 2), FileId("export", 0, 2), FileId("export", 1, 3)]
)
def test_a_file_of_another_place_or_export_is_not_taken_for_ones_own(
    tmp_path: Path, other: FileId
) -> None:
    written([1], tmp_path / "local")
    storage, size_bytes = stored(tmp_path / "local")
    with pytest.raises(AlreadyExistsError):
        read_existing(storage, "file", size_bytes, other)


def test_a_file_that_no_export_wrote_is_not_taken_for_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "local")
    storage, size_bytes = stored(tmp_path / "local")
    with pytest.raises(AlreadyExistsError):
        read_existing(storage, "file", size_bytes, PLACE)
