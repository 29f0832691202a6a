"""The files that a merge reads: how many, how large, where they lie, and what they hold."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.order import rows_within
from dormouse.errors import DiskFullError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.rows import merging
from dormouse.rows import merging as merge_windows
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema
from dormouse.shards import crcs, footer, local_copies, reading
from dormouse.shards.reading import Slice, find_blocks
from dormouse.storage import FolderStorage
from tests.support.distant_folder import DistantFolder
from tests.support.every_type import EVERY_TYPE
from tests.support.shard_files import ROWS, SCHEMA, Bodies, Shard, merged
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import MEMORY_BYTES


@pytest.fixture(autouse=True)
def _several_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_blocks(monkeypatch, 32)


@pytest.mark.parametrize("schema", [SCHEMA, EVERY_TYPE])
@pytest.mark.parametrize("most", [1, 2, 10**9])
def test_blocks_are_joined_in_copies_within_their_row_groups_up_to_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, schema: Schema
) -> None:
    monkeypatch.setattr(reading, "JOINED_BLOCKS", most)
    shard = Shard(tmp_path, schema)
    (blocks,) = find_blocks(shard.table.storage, "table", [Slice(shard.shard, KeyRange())], schema)
    stored = blocks.index.stored
    assert [number for some in blocks.joined for number in some] == [*blocks.numbers]
    for some in blocks.joined:
        assert len({stored.layout.row_group_of(number) for number in some}) == 1
    lengths = [len(stored.layout.blocks_of(group)) for group in blocks.row_groups]
    assert len(blocks.joined) == sum(-(-length // most) for length in lengths)
    rows = merged(shard.table, shard.table.storage)
    assert rows == [*shard.table.rows(KeyRange())]


NEAR_AND_DISTANT = pytest.mark.parametrize("storage", [FolderStorage, DistantFolder])


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", ["_make_hole", "write_short_footer", "stream_sections"])
def test_a_full_disk_of_temporary_files_is_said_to_be_full(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard(tmp_path, SCHEMA, DistantFolder)
    arriving = map(_no_room, [0])  # as if the first write of what arrives failed
    fails = (lambda *_: arriving) if place == "stream_sections" else _no_room
    monkeypatch.setattr(local_copies, place, fails)
    with pytest.raises(DiskFullError, match="is full"):
        merged(shard.table, shard.table.storage)
    assert not list(shard.table.folder.iterdir())


def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_windows, "WINDOW_BYTES", 1)
    monkeypatch.setattr(merge_windows, "GROUPS_PER_WINDOW", 1)


@NEAR_AND_DISTANT
def test_a_merge_has_three_windows_in_scratch_at_most_and_nothing_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: type[FolderStorage]
) -> None:
    small_steps(monkeypatch)
    shard = Shard(tmp_path, SCHEMA, storage)
    most, rows = 0, 0
    slices = [Slice(shard.shard, KeyRange())]
    table = shard.table
    batches = merge_slices(
        table.storage, "table", slices, SCHEMA, scratch=table.folder, memory_bytes=MEMORY_BYTES
    )
    for batch in batches:
        rows += batch.num_rows
        most = max(most, len(list(shard.table.folder.iterdir())))
        if rows > 2000:
            break
    assert most == 1 + local_copies.WINDOWS_AHEAD
    batches.close()
    assert not list(shard.table.folder.iterdir())
    assert shard.file.read_bytes() == shard.body


@NEAR_AND_DISTANT
@pytest.mark.parametrize("where", [None, "v >= 0"])
def test_a_shard_on_this_disk_is_read_where_it_is_for_a_condition_and_any_other_from_a_copy(
    tmp_path: Path, storage: type[FolderStorage], where: str | None
) -> None:
    shard = Shard(tmp_path, SCHEMA, storage)
    batches = merge_slices(
        shard.table.storage,
        "table",
        [Slice(shard.shard, KeyRange())],
        SCHEMA,
        where=None if where is None else parse_predicate(where, SCHEMA),
        scratch=shard.table.folder,
        memory_bytes=MEMORY_BYTES,
    )
    rows = next(batches).num_rows
    (local,) = shard.table.folder.rglob("*.parquet")
    assert local.samefile(shard.file) == (storage is FolderStorage and where is not None)
    shard.table.storage.delete([shard.path])  # by the garbage collector, as it seems
    assert rows + sum(batch.num_rows for batch in batches) == len(ROWS)


@NEAR_AND_DISTANT
def test_a_merge_reads_its_blocks_alone_even_if_the_whole_footer_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: type[FolderStorage]
) -> None:
    """As in a process that answered a query with a condition before."""
    small_steps(monkeypatch)
    shard, cache = Shard(tmp_path, SCHEMA, storage), Cache(10**7)
    slices = [Slice(shard.shard, KeyRange())]
    find_blocks(shard.table.storage, "table", slices, SCHEMA, cache, footers=True)
    assert merged(shard.table, shard.table.storage, cache=cache) == ROWS


def test_what_is_small_comes_in_one_read_and_what_is_large_in_reads_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Shard(tmp_path, SCHEMA)
    bodies = Bodies(tmp_path / "data")
    monkeypatch.setattr(bodies, "link", lambda path, local: False)
    expected = merged(shard.table, bodies)
    assert len(bodies.reads) == 2, "the index, and all the rest"
    monkeypatch.setattr(local_copies, "MAX_GET_BYTES", 2048)
    bodies.reads.clear()
    assert merged(shard.table, bodies) == expected
    assert len(bodies.reads) > 5
    largest = max(part.end - part.start for part in parts_of(shard))
    of_data = [size for _, start, size in bodies.reads[1:] if start < end_of_data(shard)]
    assert max(of_data) <= max(2048, largest)


@NEAR_AND_DISTANT
def test_a_window_reads_its_own_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: type[FolderStorage]
) -> None:
    small_steps(monkeypatch)
    shard = Shard(tmp_path, SCHEMA, storage)
    read: list[int] = []

    def counted(
        batches: Iterator[pa.RecordBatch], span: KeyRange, schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        noted = [*batches]
        read.append(sum(batch.num_rows for batch in noted))
        return rows_within(iter(noted), span, schema)

    monkeypatch.setattr(merging, "rows_within", counted)
    assert merged(shard.table, shard.table.storage) == ROWS
    assert len(read) > 5
    assert sum(read) < 2 * len(ROWS), "those at the border of two windows are read twice"


def parts_of(shard: Shard) -> Iterator[crcs.Section]:
    index = crcs.index_of(shard.metadata, shard.path)
    return crcs.all_sections(shard.metadata, index, shard.path, len(shard.body))


def test_only_the_columns_and_row_groups_that_are_needed_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_GAP_BYTES", 0)
    write_small_blocks(monkeypatch, 32, row_group=32)
    shard = Shard(tmp_path, SCHEMA)
    end_bytes = len(shard.body) - end_of_data(shard)
    monkeypatch.setattr(footer, "estimated_footer_bytes", lambda *_: end_bytes)
    whole, keys, few = (
        shard.table.query(look_up_bytes=0, **asked)
        for asked in ({}, {"columns": ["k"]}, {"where": "v BETWEEN 700 AND 710"})
    )
    counts = [query.reader.read_all().num_rows for query in (whole, keys, few)]
    assert counts == [3000, 3000, 22]
    others = sum(part.end - part.start for part in parts_of(shard) if part.column in ("v", "text"))
    assert whole.reads.size_bytes - keys.reads.size_bytes == others > 0, "without texts"
    footers = 2 * len(shard.body[end_of_data(shard) :])
    assert 0 < few.reads.size_bytes - footers < others / 5, "without row groups of other values"


def end_of_data(shard: Shard) -> int:
    return max(part.start for part in parts_of(shard))
