"""Encodings: quick ones, or those that every reader of Parquet knows, as the shard's id says."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.keys import KeyRange
from dormouse.shards.writer import ShardContext, ShardWriter
from dormouse.state.partitions import Partition
from dormouse.storage import FolderStorage
from dormouse.stored.paths import (
    is_plain,
    make_run_id,
    make_shard_id,
    part_shard_number,
    shard_path,
)
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.tables import batches_of

UNIQUE = "0" * 32
KNOWN_TO_ALL = {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "BIT_PACKED"}
QUICK = {"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"}


def encodings(folder: Path, run: str) -> dict[str, set[str]]:
    """Write a shard of every type; return the encodings of each column in any row group."""
    shard = make_shard_id(run, 0)
    storage = FolderStorage(folder / "data")
    context = ShardContext("table", EVERY_TYPE, "job")
    chance = random.Random(1)
    rows = [row_of_every_type(n) | {"s": f"{chance.random()}"} for n in range(7000)]
    rows.sort(key=lambda row: (row["t"], row["b"], row["i"]))
    writer = ShardWriter(storage, context, shard, 0, folder)
    for batch in batches_of(rows, EVERY_TYPE, 7000):
        writer.write(Partition("root", KeyRange()), batch)
    writer.finish(last=True).publish(storage)
    metadata = pq.read_metadata(folder / "data" / shard_path("table", shard))
    assert metadata.num_row_groups > 1
    found: dict[str, set[str]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in (group.column(i) for i in range(group.num_columns)):
            found.setdefault(column.path_in_schema, set()).update(column.encodings)
    return found


def test_shards_of_published_tables_have_encodings_that_every_reader_knows(tmp_path: Path) -> None:
    found = encodings(tmp_path, make_run_id(UNIQUE, plain=True))
    assert set().union(*found.values()) <= KNOWN_TO_ALL


def test_shards_of_other_tables_have_the_quick_ones(tmp_path: Path) -> None:
    found = encodings(tmp_path, make_run_id(UNIQUE, plain=False))
    assert set().union(*found.values()) >= QUICK
    assert "DELTA_LENGTH_BYTE_ARRAY" in found["s"]
    assert "BYTE_STREAM_SPLIT" in found["d"]


@given(st.booleans(), st.integers(0, 10**6), st.integers(0, 10**5))
def test_the_id_of_a_shard_says_its_encodings(plain: bool, part: int, number: int) -> None:
    run = make_run_id(UNIQUE, plain=plain)
    assert is_plain(make_shard_id(run, part_shard_number(part, number))) == plain


@pytest.mark.parametrize("shard", ["", "p", "lip-0", f"{UNIQUE}-0", f"{UNIQUE}0p-0"])
def test_other_ids_say_nothing(shard: str) -> None:
    assert not is_plain(shard)
