"""The CRCs of a shard: none lacks, none is believed that does not fit, and merges read by them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import CorruptDataError, DamagedShardError, NotFoundError
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import parse_predicate
from dormouse.shards import crcs
from dormouse.shards.footer import read_footer
from dormouse.shards.reading import Slice
from dormouse.storage import FolderStorage
from dormouse.stored import checksums
from dormouse.stored.paths import shard_path
from tests.support.damage import flipped, footer_length, last_row_group, regions, rewrite
from tests.support.depth import examples, in_long_turn
from tests.support.distant_folder import DistantFolder
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.memory_storage import MemoryStorage
from tests.support.shard_files import ROWS, SCHEMA, Bodies, Shard, merged
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import MEMORY_BYTES, ShardTable

SCAN = {"look_up_bytes": 0}


@pytest.fixture(autouse=True)
def _several_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_blocks(monkeypatch, 32)


@pytest.fixture(params=in_long_turn([FolderStorage, DistantFolder]))
def shard(tmp_path: Path, request: pytest.FixtureRequest) -> Shard:
    return Shard(tmp_path, storage=request.param)


def test_every_byte_but_the_first_four_is_in_a_part_or_the_footer(shard: Shard) -> None:
    metadata = shard.metadata
    assert metadata.num_row_groups > 3
    index = crcs.index_of(metadata, shard.path)
    parts = list(crcs.all_sections(metadata, index, shard.path, len(shard.body)))
    assert len(parts) == index.layout.row_groups * index.leaves + 1
    assert parts[0].start == 4
    assert all(a.end == b.start for a, b in zip(parts, parts[1:], strict=False))
    assert parts[-1].end == len(shard.body) - 8 - metadata.serialized_size
    for part in parts:
        part.check(shard.path, memoryview(shard.body)[part.start : part.end])


ASKED: dict[str, dict[str, Any]] = {
    "a look-up": {},
    "a scan": SCAN,
    "a scan with a condition": {**SCAN, "where": "l IS NULL OR l < 1000000"},
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("region", ["page headers", "data", "page indexes", "footer"])
def test_no_flipped_bit_returns_other_rows(shard: Shard, region: str, asked: str) -> None:
    """What is not read does not matter: without a condition page indexes, and most of the
    footer.
    """
    expected = shard.table.rows(**ASKED[asked])
    draws = random.Random(region)
    refused = 0
    is_read = asked == "a scan with a condition" or region in ("data", "page headers")
    flips = examples(40) if is_read else 60 if region == "footer" else 25
    for _ in range(flips):
        place = draws.choice(draws.choice([r for r in regions(shard.body)[region] if r]))
        rewrite(shard.file, flipped(shard.body, place, draws.randrange(8)))
        try:
            found = shard.table.rows(**ASKED[asked])
        except DamagedShardError as error:
            assert shard.path in str(error)
            assert error.path == shard.path
            refused += 1
        else:
            assert found == expected
    if is_read:
        assert refused == flips
    else:
        assert refused < flips
        assert bool(refused) == (region == "footer"), "by its index"
    assert not list(shard.table.folder.iterdir())


def test_page_indexes_are_not_believed_without_a_condition(tmp_path: Path) -> None:
    """Where a merge reads files where they are, and leaves out rows by their keys."""
    shard = Shard(tmp_path, SCHEMA)
    table, scratch = shard.table, shard.table.folder
    slices = [Slice(shard.shard, KeyRange((low,), (low + 400,))) for low in (1003, 1595)]
    (place,) = regions(shard.body)["page indexes"]
    zeros = shard.body[: place.start] + bytes(len(place)) + shard.body[place.stop :]
    rewrite(shard.file, zeros)
    batches = merge_slices(
        table.storage, "table", slices, SCHEMA, scratch=scratch, memory_bytes=MEMORY_BYTES
    )
    expected = ROWS[1003:1403] + ROWS[1595:1995]
    assert [row for batch in batches for row in batch.to_pylist()] == expected


def test_a_shard_that_is_whole_is_merged_and_looked_up(shard: Shard) -> None:
    rows = shard.table.rows(**SCAN)
    assert len(rows) == 300
    assert rows == shard.table.rows()


def test_verified_bytes_that_cannot_be_decoded_are_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another version had written what this one cannot read."""
    shard = Shard(tmp_path, SCHEMA)
    monkeypatch.setattr(crcs.Section, "check_read", lambda *_: None)
    *_, last = regions(shard.body)["data"]
    broken = shard.body[: last.start] + bytes(len(last)) + shard.body[last.stop :]
    rewrite(shard.file, broken)
    with pytest.raises(DamagedShardError, match=f"{shard.path} is damaged"):
        shard.table.rows()


def test_the_row_group_and_the_column_are_named(shard: Shard) -> None:
    metadata = shard.metadata
    number = metadata.num_row_groups - 1
    rewrite(shard.file, flipped(shard.body, last_row_group(shard.body)[0]))
    with pytest.raises(DamagedShardError, match=f"column 't' in row group {number}"):
        shard.table.rows(**SCAN)


def test_parts_that_lie_elsewhere_by_the_footer_are_refused(shard: Shard) -> None:
    metadata = shard.metadata
    with pytest.raises(DamagedShardError, match="its data end at byte"):
        crcs.sections_behind(metadata, None, shard.path, len(shard.body) // 2)
    index = crcs.index_of(metadata, shard.path)
    starts = [start + (at == 3) for at, start in enumerate(index.starts)]
    moved = replace(index, starts=starts)
    with pytest.raises(DamagedShardError, match="in row group 0 lies elsewhere than by its index"):
        list(crcs.all_sections(metadata, moved, shard.path, len(shard.body)))


def test_a_body_shorter_than_the_requested_range_is_damage(shard: Shard) -> None:
    bodies = Bodies(shard.file.parents[2])
    bodies.cut_at, bodies.short = 4, 1
    with pytest.raises(DamagedShardError, match=f"{shard.path}.* only .* could be read"):
        merged(shard.table, bodies)


def test_a_shard_that_is_replaced_between_its_footer_and_its_rows_is_not_merged(
    tmp_path: Path,
) -> None:
    """Even by a whole shard of the same size, whose own CRCs are right."""
    shard = Shard(tmp_path, SCHEMA)
    other = ShardTable(FolderStorage(tmp_path / "other"), SCHEMA, tmp_path)
    other.add([row | {"text": str(row["text"])[::-1]} for row in ROWS])
    replacement = (tmp_path / "other" / shard.path).read_bytes()
    bodies = Bodies(tmp_path / "data")
    bodies.before_read[1] = lambda: rewrite(shard.file, replacement)  # after the footer
    with pytest.raises(CorruptDataError, match=shard.path):
        merged(shard.table, bodies)


def with_right_checksum(body: bytes) -> bytes:
    """Return a shard whose footer was changed, with the checksum of what it is now."""
    made = bytearray(body)
    end = len(made) - footer_length(body) - 8
    digits = made.rfind(b"blake2b:") + len(b"blake2b:")
    made[digits : digits + 32] = b"0" * 32
    place, right = checksums.compute_checksum(bytes(made[end:]))
    made[end + place : end + place + len(right)] = right
    return bytes(made)


def test_the_end_that_is_merged_is_that_by_which_its_parts_were_chosen(tmp_path: Path) -> None:
    """The rows are the same here; but what else a footer says decides what a condition reads."""
    shard = Shard(tmp_path, SCHEMA)
    other = with_right_checksum(shard.body.replace(b'"written_ms":0,', b'"written_ms":7,'))
    assert read_footer(shard.table.storage, shard.path, len(other)).provenance.written_ms == 0
    bodies = Bodies(tmp_path / "data")
    bodies.before_read[1] = lambda: rewrite(shard.file, other)  # after the footer
    with pytest.raises(DamagedShardError, match="another footer than it had before"):
        merged(shard.table, bodies, where=parse_predicate("v >= 0", SCHEMA))


def test_a_file_that_grew_is_damaged_where_it_is_merged_as_it_is(tmp_path: Path) -> None:
    shard = Shard(tmp_path, SCHEMA)
    bodies = Bodies(tmp_path / "data")
    rewrite(shard.file, shard.body + b"more")
    condition = parse_predicate("v >= 0", SCHEMA)
    with pytest.raises(DamagedShardError, match=r"it has [\d,]+ bytes, not [\d,]+") as raised:
        merged(shard.table, bodies, where=condition)
    assert raised.value.path == shard.path


def test_an_object_that_is_another_shard_of_the_same_size_is_reported(tmp_path: Path) -> None:
    shard = Shard(tmp_path, SCHEMA)
    (other,) = shard.table.add(ROWS)
    theirs = tmp_path / "data" / shard_path("table", other.shard.id)
    assert len(theirs.read_bytes()) == len(shard.body)
    rewrite(theirs, shard.body)
    for look_up_bytes in (0, 10**9):
        with pytest.raises(DamagedShardError, match=f"{other.shard.id}.* is shard job0-0"):
            shard.table.rows(look_up_bytes=look_up_bytes)


def test_a_shard_that_is_gone_is_not_found(shard: Shard) -> None:
    bodies = Bodies(shard.file.parents[2])
    bodies.before_read[1] = shard.file.unlink  # after the footer
    with pytest.raises(NotFoundError):
        merged(shard.table, bodies)


def test_objects_in_memory_are_merged_as_those_of_a_folder_are(tmp_path: Path) -> None:
    table = ShardTable(MemoryStorage(), EVERY_TYPE, tmp_path)
    for start in range(3):
        table.add([row_of_every_type(n) for n in range(start, 90, 3)])
    assert table.query(**SCAN).reads.scans == 0
    assert table.rows(**SCAN) == table.rows()
