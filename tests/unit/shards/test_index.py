"""What a look-up knows of a shard: by short reads, and nothing of another shard."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import pytest

from dormouse.errors import DamagedShardError, InvariantError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.schema.schema import Schema
from dormouse.shards import footer
from dormouse.shards.footer import ShardIndex, read_index
from dormouse.shards.reading import read_indexes
from dormouse.state.partitions import Shard
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from tests.support.damage import rewrite
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "repeated", "type": "StringType"},
            {"name": "alike", "type": "StringType"},
        ],
    }
)


class Noted(FolderStorage):
    """A folder that notes how much is read of its objects."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.lengths: list[int] = []

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        opened, lengths = super().open(path, size_bytes), self.lengths

        class Reader:
            def __enter__(self) -> Reader:
                return self

            def __exit__(self, *_: object) -> None:
                opened.close()

            def close(self) -> None:
                opened.close()

            def seek(self, at: int, whence: int = 0) -> int:
                return opened.seek(at, whence)

            def read(self, size: int) -> bytes:
                lengths.append(size)
                return opened.read(size)

        return Reader()  # type: ignore[return-value]


@pytest.fixture
def table(tmp_path: Path) -> ShardTable:
    made = ShardTable(Noted(tmp_path / "data"), SCHEMA, tmp_path)
    made.add(
        [{"k": k, "repeated": f"{'x' * 100}{k % 20:02}", "alike": "y" * 50} for k in range(20_000)]
    )
    return made


def index_of(table: ShardTable, cache: Cache | None = None, *, footer: bool = False) -> ShardIndex:
    (shard,) = table.state.shards.values()
    held = Cache(0) if cache is None else cache
    return read_indexes(table.storage, "table", [shard], SCHEMA, held, footers=footer)[0]


def test_the_size_of_rows_in_memory_is_not_underestimated_where_they_are_stored_small(
    table: ShardTable,
) -> None:
    (shard,) = table.state.shards.values()
    index = index_of(table)
    in_memory = shard.rows * (8 + 102 + 4 + 50 + 4)
    assert shard.size_bytes < in_memory / 10
    groups = index.blocks
    estimated = sum(index.column_bytes(number, SCHEMA.fields) for number in groups)
    assert in_memory * 0.8 < estimated < in_memory * 1.3
    keys = sum(index.column_bytes(number, SCHEMA.keys) for number in groups)
    assert shard.rows * 8 <= keys < shard.rows * 13, "eight bytes, and what a value may take beside"


def test_a_look_up_reads_the_index_and_not_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer of many row groups is longer than what a look-up reads in all."""
    write_small_blocks(monkeypatch, 4, row_group=4)
    storage = Noted(tmp_path / "data")
    table = ShardTable(storage, SCHEMA, tmp_path)
    table.add([{"k": k, "repeated": str(k), "alike": str(-k)} for k in range(4000)])
    (shard,) = table.state.shards.values()
    whole = index_of(table, footer=True).metadata.serialized_size
    groups = len(index_of(table).blocks)
    assert whole > 250 * groups
    monkeypatch.setattr(footer, "estimated_index_bytes", lambda *_: 70 * groups)
    cache = Cache()
    for wanted, reads in ((517, 2), (3518, 1)):
        storage.lengths.clear()
        assert table.rows(KeyRange.exactly((wanted,)), cache=cache) == [
            {"k": wanted, "repeated": str(wanted), "alike": str(-wanted)}
        ]
        assert len(storage.lengths) == reads
        assert sum(storage.lengths) < whole / 3
    assert shard.size_bytes > whole


def test_an_index_that_begins_before_what_was_read_is_read_again(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = index_of(table)
    monkeypatch.setattr(footer, "estimated_index_bytes", lambda *_: 600)
    table.storage.lengths.clear()  # type: ignore[attr-defined]
    found = index_of(table)
    assert found.stored == expected.stored
    assert len(table.storage.lengths) == 2  # type: ignore[attr-defined]


def test_a_footer_is_read_where_only_the_index_was(table: ShardTable) -> None:
    cache = Cache()
    assert index_of(table, cache) is index_of(table, cache)
    with pytest.raises(InvariantError, match="job0-0 was not read"):
        _ = index_of(table, cache).metadata
    whole = index_of(table, cache, footer=True)
    assert whole.metadata.num_rows == 20_000
    assert whole is index_of(table, cache) is index_of(table, cache, footer=True)
    assert whole.stored == index_of(table).stored


@pytest.mark.parametrize("whole", [False, True])
def test_another_shard_and_other_rows_are_refused(table: ShardTable, whole: bool) -> None:
    (shard,) = table.state.shards.values()
    storage = table.storage
    path = shard_path("table", shard.id)

    def read(table_id: str, expected: Shard) -> ShardIndex:
        return read_index(storage, table_id, expected, SCHEMA, Cache(0), footer=whole)

    fewer = Shard.of(shard.id, shard.rows - 1, shard.size_bytes, shard.min_key, shard.max_key)
    with pytest.raises(DamagedShardError, match=r"has 20,?000 rows, but the state says 19,?999"):
        read("table", fewer)
    renamed = Shard.of("job7-0", shard.rows, shard.size_bytes, shard.min_key, shard.max_key)
    other = Path(storage.uri) / shard_path("table", "job7-0")  # type: ignore[attr-defined]
    other.write_bytes((Path(storage.uri) / path).read_bytes())  # type: ignore[attr-defined]
    with pytest.raises(DamagedShardError, match="is shard job0-0 of table table"):
        read("table", renamed)


def test_rows_beyond_the_end_of_the_shard_are_refused(tmp_path: Path) -> None:
    """As of a shard that lost all before its footer."""
    storage = FolderStorage(tmp_path / "data")
    table = ShardTable(storage, SCHEMA, tmp_path)
    texts = (sha256(bytes([k % 256, k // 256])).hexdigest() for k in range(4000))
    table.add([{"k": k, "repeated": text, "alike": text[::-1]} for k, text in enumerate(texts)])
    (shard,) = table.state.shards.values()
    file = Path(storage.uri) / shard_path("table", shard.id)
    length = index_of(table, footer=True).metadata.serialized_size + 8
    rewrite(file, file.read_bytes()[-length:])
    cut = Shard.of(shard.id, shard.rows, length, shard.min_key, shard.max_key)
    with pytest.raises(DamagedShardError, match="its rows end at byte"):
        read_index(storage, "table", cut, SCHEMA, Cache(0))
