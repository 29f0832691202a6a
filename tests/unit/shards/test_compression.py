"""Compression: numbers that zstd does not shrink are stored as they are packed."""

from __future__ import annotations

import errno
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, Primitive
from dormouse.shards.parquet import ParquetFileWriter

SCHEMA = Schema(
    (Field("key", Primitive.STRING),),
    (Field("time", Primitive.TIMESTAMP),),
    (
        Field("random", Primitive.LONG),
        Field("cycle", Primitive.LONG),
        Field("id", Primitive.UUID),
        Field("price", DecimalType(18, 2)),
        Field("blob", Primitive.BYTES),
        Field("many", ListType(Primitive.LONG)),
    ),
)
STORED_AS_PACKED = {"time", "random", "id"}


def written(local: Path, rows: int, seed: int = 0) -> pq.FileMetaData:
    chance = random.Random(seed)
    cells: dict[str, list[object]] = {
        "key": [f"{n:08}" for n in range(rows)],
        "time": [chance.getrandbits(50) for _ in range(rows)],
        "random": [chance.getrandbits(60) for _ in range(rows)],
        "cycle": [(n % 7) ** 20 for n in range(rows)],
        "id": [chance.randbytes(16) for _ in range(rows)],
        "price": [Decimal(n % 3) for n in range(rows)],
        "blob": [chance.randbytes(16) for _ in range(rows)],
        "many": [[chance.getrandbits(60)] for _ in range(rows)],
    }
    batch = pa.RecordBatch.from_pydict(cells, schema=arrow_schema(SCHEMA))
    file = ParquetFileWriter(local, SCHEMA)
    file.write(batch)
    file.close({}, "t", "s")
    return pq.read_metadata(local)


def test_a_file_for_which_there_is_no_room_is_removed_and_the_error_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("metadata"), OSError(errno.ENOSPC, "No space left on device")]

    def fail(_: pq.ParquetWriter) -> None:
        if failures:
            raise failures.pop()

    schema = Schema((Field("id", Primitive.LONG),))
    file = ParquetFileWriter(tmp_path / "file", schema)
    file.write(pa.RecordBatch.from_pydict({"id": range(10_000)}, schema=arrow_schema(schema)))
    monkeypatch.setattr(pq.ParquetWriter, "close", fail)
    with pytest.raises(OSError, match="No space left"):
        file.close({}, "t", "s")
    file.discard()
    assert not failures
    assert not any(tmp_path.iterdir())


def test_numbers_that_do_not_shrink_are_not_compressed_and_all_else_is(tmp_path: Path) -> None:
    metadata = written(tmp_path / "file", 5000)
    assert metadata.num_row_groups > 1
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        plain = {
            group.column(j).path_in_schema
            for j in range(group.num_columns)
            if group.column(j).compression == "UNCOMPRESSED"
        }
        assert plain == STORED_AS_PACKED


def test_the_first_row_group_of_many_columns_is_no_larger_than_others_and_shows_what_shrinks(
    tmp_path: Path,
) -> None:
    chance, rows = random.Random(1), 1500
    numbers = [Field(f"v{number}", Primitive.LONG) for number in range(502)]
    schema = Schema((Field("key", Primitive.LONG),), values=tuple(numbers))
    cells = [range(rows), *([chance.getrandbits(33) for _ in range(rows)] for _ in numbers)]
    file = ParquetFileWriter(tmp_path / "file", schema)
    file.write(pa.RecordBatch.from_arrays(list(map(pa.array, cells)), schema=arrow_schema(schema)))
    file.close({}, "t", "s")
    metadata = pq.read_metadata(tmp_path / "file")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert groups[0].num_rows <= groups[1].num_rows
    assert {groups[1].column(place).compression for place in range(1, 503)} == {"UNCOMPRESSED"}


def test_a_column_that_is_not_compressed_takes_hardly_more_bytes(tmp_path: Path) -> None:
    first = written(tmp_path / "file", 2000).row_group(0)
    table = pq.read_table(tmp_path / "file")
    packed = dict.fromkeys(("time", "random"), "DELTA_BINARY_PACKED")
    pq.write_table(
        table, tmp_path / "other", compression="zstd", use_dictionary=False, column_encoding=packed
    )
    other = pq.read_metadata(tmp_path / "other").row_group(0)
    for i in range(first.num_columns):
        if first.column(i).path_in_schema in STORED_AS_PACKED:
            ours, theirs = (g.column(i).total_compressed_size for g in (first, other))
            assert ours <= theirs * 1.03


def test_the_same_rows_make_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / name, 3000)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
