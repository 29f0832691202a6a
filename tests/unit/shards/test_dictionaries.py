"""Dictionaries: for values that repeat, whatever type they have, and short enough for look-ups."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.keys import KeyRange
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, Primitive
from dormouse.shards import footer
from dormouse.shards.crcs import index_of
from dormouse.shards.parquet import ParquetFileWriter, dictionaries
from dormouse.storage import FolderStorage
from tests.support.tables import ShardTable

SCHEMA = Schema(
    (Field("key", Primitive.LONG),),
    (),
    (
        Field("tenths", Primitive.DOUBLE, nullable=True),
        Field("code", Primitive.INT),
        Field("price", DecimalType(18, 2)),
        Field("noise", Primitive.DOUBLE),
        Field("count", Primitive.LONG),
    ),
)
ROWS = 40_000
REPEATED = {"tenths", "code", "price"}
ODD = [-0.0, 0.0, float("inf"), struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0], float("nan")]


def cells(seed: int = 1) -> dict[str, list[Any]]:
    chance = random.Random(seed)
    tenths = [*ODD, None, *(n / 10 for n in range(3000))]
    return {
        "key": list(range(ROWS)),
        "tenths": [chance.choice(tenths) for _ in range(ROWS)],
        "code": [chance.choice((7, 2**31 - 1, -5, 10**6)) for _ in range(ROWS)],
        "price": [Decimal(chance.randrange(200)).scaleb(-2) for _ in range(ROWS)],
        "noise": [chance.random() for _ in range(ROWS)],
        "count": [n // 100 for n in range(ROWS)],
    }


def written(local: Path) -> pq.FileMetaData:
    file = ParquetFileWriter(local, SCHEMA)
    file.write(pa.RecordBatch.from_pydict(cells(), schema=arrow_schema(SCHEMA)))
    file.close({}, "t", "s")
    return pq.read_metadata(local)


def test_numbers_that_repeat_have_dictionaries_and_others_do_not(tmp_path: Path) -> None:
    metadata = written(tmp_path / "file")
    last = metadata.row_group(metadata.num_row_groups - 1)
    assert last.num_rows > 10_000
    columns = [last.column(n) for n in range(last.num_columns)]
    assert {c.path_in_schema for c in columns if c.has_dictionary_page} == REPEATED
    index = index_of(metadata, "a file")
    leaf = arrow_schema(SCHEMA).names.index("price")
    block = len(index.rows) - 1
    assert index.memory_bytes(block, leaf) >= 16 * index.rows[block], "what is not in the file"


def bits(values: list[float | None]) -> list[bytes | None]:
    return [None if value is None else struct.pack("<d", value) for value in values]


@pytest.mark.parametrize("first", [0, 20_000, ROWS - 50])
def test_every_bit_of_a_number_comes_back(tmp_path: Path, first: int) -> None:
    """Of a zero with a sign, and NaN with a payload: both are equal to others of a dictionary."""
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    wanted = cells()
    table.add([dict(zip(wanted, row, strict=True)) for row in zip(*wanted.values(), strict=True)])
    found = table.rows(KeyRange((first,), (first + 50,)))
    expected = wanted["tenths"][first : first + 50]
    assert bits([row["tenths"] for row in found]) == bits(expected)


class Long:
    """A column that takes more than any dictionary if it is packed."""

    total_compressed_size = 10**9


@pytest.mark.parametrize("values", [10, 1000, 5000])
def test_the_values_of_a_row_group_are_foreseen_from_its_first_rows(values: int) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        first = pa.table({"v": [chance.randrange(values) / 10 for _ in range(2048)]})
        packed: Any = {"v": Long()}
        ((_, (_, foreseen)),) = dictionaries(first, packed, 131_072, 10**6).items()
        whole = pa.array([n / 10 for n in chance.sample(range(values), values)]).buffers()[1]
        stored = len(pa.Codec("zstd").compress(whole))
        assert stored / 2 < foreseen < 2 * stored + 100


def test_the_index_of_rows_that_take_few_bytes_is_read_at_once(tmp_path: Path) -> None:
    """Such a shard has more blocks than its size lets expect: 8,192 rows are all that one has."""
    narrow = Schema((Field("key", Primitive.LONG),), (), (Field("one", Primitive.LONG),))
    rows = 800_000
    cells = {"key": pa.array(range(rows)), "one": pa.repeat(1, rows)}
    batch = pa.RecordBatch.from_pydict(cells, schema=arrow_schema(narrow))
    file = ParquetFileWriter(tmp_path / "file", narrow)
    file.write(batch)
    file.close({}, "t", "s")
    body = (tmp_path / "file").read_bytes()
    from_end = len(body) - body.rfind(b"dormouse.index")
    assert from_end < footer.estimated_index_bytes(len(body), 2, rows) < 2 * from_end
    assert footer.estimated_index_bytes(len(body), 2, 0) < from_end
