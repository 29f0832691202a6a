"""Reading ranges: a look-up reads little, damage and absence raise, older shards are read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.shards.reading import Slice
from dormouse.state.partitions import NewShard
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from tests.support.tables import MEMORY_BYTES, ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}, {"name": "n", "type": "IntType"}],
        "valueFields": [{"name": "v", "type": "LongType"}, {"name": "w", "type": "StringType"}],
    }
)


class CountingFile(io.RawIOBase):
    """A file whose reads are counted, each a request if it were on S3."""

    def __init__(self, file: BinaryIO, reads: list[int]) -> None:
        self._file = file
        self._reads = reads

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        body = self._file.read(size)
        self._reads.append(len(body))
        return body

    def close(self) -> None:
        self._file.close()
        super().close()


class CountingStorage(FolderStorage):
    """A folder that counts the reads of its objects."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[int] = []

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        return CountingFile(super().open(path, size_bytes), self.reads)  # type: ignore[return-value]  # enough of one


ROWS = 300_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    """A table of one shard of many row groups: 100 keys of 3000 rows, hardly compressible."""
    folder = tmp_path_factory.mktemp("large")
    table = ShardTable(CountingStorage(folder / "data"), SCHEMA, folder)
    table.add_sorted(large_batches(), "job")
    return table


def large_batches() -> Iterator[pa.RecordBatch]:
    for start in range(0, ROWS, 10_000):
        numbers = range(start, start + 10_000)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([f"{n // 3000:03}" for n in numbers]),
                pa.array([n % 3000 for n in numbers], pa.int32()),
                pa.array([n * 0x9E3779B97F4A7C15 % 2**63 for n in numbers], pa.int64()),
                pa.array([f"{n * 0x9E3779B97F4A7C15 % 2**61:x}" for n in numbers]),
            ],
            schema=arrow_schema(SCHEMA),
        )


def reads_of(table: ShardTable, call: Callable[[], object]) -> list[int]:
    storage = table.storage
    assert isinstance(storage, CountingStorage)
    storage.reads.clear()
    call()
    return list(storage.reads)


@pytest.mark.parametrize("n", [0, 1234, 2999])
def test_a_key_of_a_large_shard_is_found_by_two_reads_of_a_small_part(
    large: ShardTable, n: int
) -> None:
    (shard,) = large.state.shards.values()
    key = KeyRange.exactly(("057", n))
    found: list[dict[str, object]] = []
    reads = reads_of(large, lambda: found.extend(large.rows(key)))
    assert [row["v"] for row in found] == [(57 * 3000 + n) * 0x9E3779B97F4A7C15 % 2**63]
    assert len(reads) <= 1 + 4, "the index, and the pages of each column"
    assert sum(reads) < shard.size_bytes / 8


def test_a_key_that_is_not_there_costs_the_index_and_keys_of_a_block(large: ShardTable) -> None:
    (shard,) = large.state.shards.values()
    reads = reads_of(large, lambda: large.rows(KeyRange.exactly(("0570",))))
    assert len(reads) <= 1 + 3, "the index, and the dictionary and pages of the row keys"
    assert sum(reads) < shard.size_bytes / 16
    nothing = large.query(KeyRange.exactly(("zzz",)))
    assert (nothing.reader.read_all().num_rows, nothing.reads.shards) == (0, set())


def test_a_range_of_one_shard_is_read_in_order_and_by_its_row_groups(large: ShardTable) -> None:
    (shard,) = large.state.shards.values()
    span = KeyRange(("010", 2990), ("011", 10))
    found: list[object] = []

    def read() -> None:
        found.extend(row["n"] for row in large.rows(span, columns=["n"]))

    assert sum(reads_of(large, read)) < shard.size_bytes / 10
    assert found == [*range(2990, 3000), *range(10)]


def test_only_the_requested_columns_are_read(large: ShardTable) -> None:
    key = KeyRange.exactly(("057",))
    assert large.rows(key, columns=["v"])[0].keys() == {"v"}
    some = sum(reads_of(large, lambda: large.rows(key, columns=["n"])))
    assert some < sum(reads_of(large, lambda: large.rows(key)))
    assert list(large.rows(key, columns=["w", "k"])[0]) == ["w", "k"]


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_a_limit_returns_the_first_rows(large: ShardTable, look_up_bytes: int) -> None:
    def first(limit: int) -> list[dict[str, object]]:
        span = KeyRange(("057",), ("058",))
        return large.rows(span, limit=limit, columns=["n"], look_up_bytes=look_up_bytes)

    assert [row["n"] for row in first(3)] == [0, 1, 2]
    assert first(0) == []
    assert len(first(10**6)) == 3000


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda t: t.query(columns=["x"]), "no column 'x'"),
        (lambda t: t.query(columns=[]), "no columns"),
        (lambda t: t.query(columns=[["k"]]), "columns are names"),
        (lambda t: t.query(limit=-1), "-1 is not"),
        (lambda t: t.query(KeyRange((1,), None)), "does not fit column 'k'"),
        (lambda t: t.query(KeyRange((), ("a", "b"))), "does not fit column 'n'"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_before_anything_is_read(
    large: ShardTable, ask: Callable[[ShardTable], object], reason: str
) -> None:
    def refused() -> None:
        with pytest.raises(InvalidRequestError, match=reason):
            ask(large)

    assert reads_of(large, refused) == []


@pytest.fixture
def small(tmp_path: Path) -> ShardTable:
    return ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path, [("m",)])


def rows(*keys: str) -> list[dict[str, object]]:
    return [{"k": key, "n": 0, "v": i, "w": key} for i, key in enumerate(keys)]


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_a_shard_deleted_meanwhile_raises_not_found(small: ShardTable, look_up_bytes: int) -> None:
    (new,) = small.add(rows("a", "b"))
    small.add(rows("b", "c"))
    small.storage.delete([shard_path("table", new.shard.id)])
    with pytest.raises(NotFoundError, match=new.shard.id):
        small.rows(look_up_bytes=look_up_bytes)


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b"", lambda b: b"x" * len(b)])
def test_a_damaged_shard_raises_corrupt_data(
    small: ShardTable, look_up_bytes: int, damage: Callable[[bytes], bytes]
) -> None:
    (new,) = small.add(rows("a", "b"))
    path = shard_path("table", new.shard.id)
    body = small.storage.get(path)
    small.storage.delete([path])
    small.storage.put(path, damage(body))
    with pytest.raises(CorruptDataError, match=new.shard.id):
        small.rows(look_up_bytes=look_up_bytes)


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_damage_among_the_rows_raises_corrupt_data(small: ShardTable, look_up_bytes: int) -> None:
    (new,) = small.add(rows(*"abcdefghijkl"))
    path = shard_path("table", new.shard.id)
    body = small.storage.get(path)
    small.storage.delete([path])
    small.storage.put(path, body[:4] + b"\xff" * 100 + body[104:])
    with pytest.raises(CorruptDataError):
        small.rows(look_up_bytes=look_up_bytes)


def test_partitions_are_opened_only_as_they_are_reached(small: ShardTable) -> None:
    left, right = small.add(rows("a", "z"))
    small.storage.delete([shard_path("table", right.shard.id)])
    result = small.query(limit=1)
    assert result.reader.read_all().to_pylist() == rows("a")
    assert result.reads.shards == {left.shard.id}
    assert left.shard.rows == 1


def merged(table: ShardTable, schema: Schema, shards: Sequence[NewShard]) -> list[object]:
    slices = [Slice(new.shard, KeyRange()) for new in shards]
    batches = merge_slices(
        table.storage, "table", slices, schema, scratch=table.folder, memory_bytes=MEMORY_BYTES
    )
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_column_an_older_shard_lacks_is_null_there(small: ShardTable) -> None:
    shards = small.add(rows("a", "b"))
    body = SCHEMA.to_json()
    later = {"name": "later", "type": {"ListType": {"elementType": "LongType"}}, "nullable": True}
    newer = Schema.from_json(body | {"valueFields": [*body["valueFields"], later]})  # type: ignore[misc]
    expected = [row | {"later": None} for row in rows("a", "b")]
    assert merged(small, newer, shards) == expected
    small.schema = newer
    assert small.rows() == expected
    found = small.query(
        columns=["later"], where="later IS NULL"
    ).to_arrow()  # it has no column of it
    assert found.column("later").to_pylist() == [None, None]


def test_no_slices_merge_to_no_rows(small: ShardTable) -> None:
    assert merged(small, SCHEMA, []) == []
