"""Flipped bits in a shard are reported as its damage, never as other rows or a crash."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import CorruptDataError
from dormouse.schema.schema import Schema
from dormouse.shards.footer import read_footer
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from tests.support.depth import in_turn
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.tables import ShardTable


class Damaged:
    """A table of one shard, whose bytes can be changed."""

    def __init__(self, folder: Path) -> None:
        (folder / "scratch").mkdir()
        self.table = ShardTable(FolderStorage(folder / "data"), EVERY_TYPE, folder / "scratch")
        (new,) = self.table.add([row_of_every_type(n) for n in range(300)])
        self.shard = new.shard
        self.path = shard_path("table", new.shard.id)
        self._file = folder / "data" / self.path
        self.body = self._file.read_bytes()
        self.rows = self.table.rows()
        (length,) = struct.unpack("<I", self.body[-8:-4])
        self.footer = len(self.body) - 8 - length

    def flip(self, place: int) -> None:
        """Flip one bit of the byte at a place, all others being as they were."""
        damaged = bytearray(self.body)
        damaged[place] ^= 1 << place % 8
        self._file.write_bytes(damaged)

    def data(self) -> Iterator[range]:
        """Return where the values of each column chunk lie, beyond the headers of its pages."""
        metadata = pq.read_metadata(pa.BufferReader(self.body))
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            for column in (group.column(i) for i in range(metadata.num_columns)):
                start = column.dictionary_page_offset or column.data_page_offset
                end = start + column.total_compressed_size
                yield range(end - min(16, column.total_compressed_size // 3), end)


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    return Damaged(tmp_path)


def test_a_look_up_never_returns_rows_of_a_damaged_page(damaged: Damaged) -> None:
    """Without checksums of pages most of these flips gave other values."""
    for place in in_turn([place for places in damaged.data() for place in places], parts=4):
        damaged.flip(place)
        with pytest.raises(CorruptDataError, match=damaged.path):
            damaged.table.rows()


def test_no_flipped_bit_of_a_footer_passes_its_checksum(damaged: Damaged) -> None:
    """It has the bounds by which row groups are left out, and the samples splits go by."""
    storage, size_bytes = damaged.table.storage, len(damaged.body)
    for place in in_turn(range(damaged.footer, size_bytes, 3), parts=4):
        damaged.flip(place)
        with pytest.raises(CorruptDataError, match=damaged.path):
            read_footer(storage, damaged.path, size_bytes)


def test_the_engine_breaks_off_over_no_damaged_page(damaged: Damaged) -> None:
    """It panics over some, which as an error of its own ended the whole process of a function."""
    places = random.Random(2).sample(range(4, damaged.footer), 300)
    found = 0
    for place in in_turn(places, parts=4):
        damaged.flip(place)
        try:
            damaged.table.rows(look_up_bytes=0)
        except CorruptDataError as error:
            assert damaged.path in str(error)
            found += 1
    assert found


def test_what_looks_like_a_checksum_is_not_read_as_one(tmp_path: Path) -> None:
    name = "blake2b:" + "0" * 32
    schema = Schema.from_json({"rowKeyFields": [{"name": name, "type": "StringType"}]})
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    table.add([{name: name}, {name: "z" + name}])
    assert table.rows() == [{name: name}, {name: "z" + name}]
