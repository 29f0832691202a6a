"""Files of results that are read back: all rows, or an error."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.files.results import READABLE, ResultFormat, read_rows, write_rows
from dormouse.storage import FolderStorage

BATCHES = [pa.record_batch({"v": [n, n + 1]}) for n in (0, 2)]


def put(folder: Path, body: bytes) -> FolderStorage:
    objects = FolderStorage(folder)
    objects.put("part", body)
    return objects


def written(form: ResultFormat) -> bytes:
    sink = io.BytesIO()
    write_rows(form, BATCHES, BATCHES[0].schema, sink)
    return sink.getvalue()


def read(objects: FolderStorage, form: ResultFormat, size_bytes: int, rows: int) -> list[int]:
    batches = read_rows(objects, form, BATCHES[0].schema, "part", size_bytes, rows)
    return [value for batch in batches for value in batch.column("v").to_pylist()]


@pytest.mark.parametrize("form", READABLE)
def test_what_was_written_is_read(form: ResultFormat, tmp_path: Path) -> None:
    body = written(form)
    assert read(put(tmp_path, body), form, len(body), 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("form", READABLE)
@pytest.mark.parametrize("rows", [3, 5])
def test_a_file_with_other_rows_than_its_manifest_says_is_damaged(
    form: ResultFormat, rows: int, tmp_path: Path
) -> None:
    body = written(form)
    with pytest.raises(CorruptDataError, match="4 rows"):
        read(put(tmp_path, body), form, len(body), rows)


def test_a_stream_that_ends_between_two_batches_is_damaged(tmp_path: Path) -> None:
    sink = io.BytesIO()
    writer = pa.ipc.new_stream(sink, BATCHES[0].schema)
    writer.write_batch(BATCHES[0])
    body = sink.getvalue()
    with pytest.raises(CorruptDataError, match="2 rows, not 4"):
        read(put(tmp_path, body), ResultFormat.arrow, len(body), 4)


@pytest.mark.parametrize("bit", [1, 8])
def test_a_flipped_bit_is_never_another_value(bit: int, tmp_path: Path) -> None:
    body = written(ResultFormat.parquet)
    noticed = 0
    for place in range(len(body)):
        flipped = body[:place] + bytes((body[place] ^ bit,)) + body[place + 1 :]
        objects = put(tmp_path / str(place), flipped)
        try:
            assert read(objects, ResultFormat.parquet, len(body), 4) == [0, 1, 2, 3], place
        except CorruptDataError:
            noticed += 1
    assert noticed > len(body) // 4


@pytest.mark.parametrize("form", READABLE)
@pytest.mark.parametrize("column", [pa.field("w", pa.int64()), pa.field("v", pa.date32())])
def test_a_file_with_other_columns_than_its_manifest_says_is_damaged(
    form: ResultFormat, column: pa.Field, tmp_path: Path
) -> None:
    body = written(form)
    batches = read_rows(put(tmp_path, body), form, pa.schema([column]), "part", len(body), 4)
    with pytest.raises(CorruptDataError, match="part"):
        list(batches)


@pytest.mark.parametrize("form", READABLE)
def test_a_file_that_is_gone_is_not_found(form: ResultFormat, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read(FolderStorage(tmp_path), form, 10, 4)


@pytest.mark.parametrize("form", sorted(set(ResultFormat) - set(READABLE)))
def test_formats_of_text_are_not_read_back(form: ResultFormat, tmp_path: Path) -> None:
    body = written(form)
    with pytest.raises(InvalidRequestError, match="not read back"):
        read(put(tmp_path, body), form, len(body), 4)
