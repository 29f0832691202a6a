"""Ids of rows: kept through all that happens to shards, and published as Iceberg's row lineage."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.features.copying import copy_table
from dormouse.iceberg.metadata import MetadataFile
from dormouse.messages.requests import CompactTable, SetProperties, SplitPartitions
from dormouse.schema.schema import LAST_UPDATED, ROW_ID, ROW_IDS_END
from dormouse.tables.table import Table
from tests.support.instances import InMemory
from tests.support.world import World, letters

Lineage = Mapping[str, tuple[int, int]]
COLUMNS = ["letter", ROW_ID.name, LAST_UPDATED.name]
PUBLISHED = {"iceberg": "on", "iceberg_format": "3", "compaction_files": 100}


def drop(world: World, text: str) -> None:
    world.drop(f"letters/{text}.parquet", letters(text))
    world.settle()


def administer(world: World, *requests: CompactTable | SplitPartitions | SetProperties) -> None:
    for request in requests:
        world.administer(request)
        world.settle()


def compact(world: World) -> None:
    administer(world, CompactTable(world.ids.new(), "letters", all=True))


def opened(world: World) -> TableHandle:
    return InMemory.over(world).instance.table("letters")


def queried(world: World) -> Lineage:
    found = opened(world).query(columns=COLUMNS).read_all().to_pylist()
    return {r["letter"]: (r[ROW_ID.name], r[LAST_UPDATED.name]) for r in found}


def published_file(world: World, table: Table) -> MetadataFile:
    record = world.services.publications.get(table.id)
    assert record is not None
    return MetadataFile.read(record.metadata, world.services.storage.get)


def published(world: World, table: Table) -> Lineage:
    """Return what readers find in the newest snapshot, as Iceberg's specification says."""
    file, found = published_file(world, table), dict[str, tuple[int, int]]()
    for manifest in file.manifests_in(file.list_path(file.current)):
        following = manifest["first_row_id"]
        for entry in file.entries(manifest) if not manifest["content"] else ():
            data, sequence = entry["data_file"], entry["sequence_number"]
            first, sequence = data["first_row_id"], sequence or manifest["sequence_number"]
            if first is None:
                first, following = following, following + data["record_count"]
            rows = pq.read_table(BytesIO(file.fetch(file.relative(data["file_path"]))))
            names = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in rows.schema}
            for place, row in enumerate(rows.to_pylist(), first):
                own = (row.get(names.get(each.id)) for each in (ROW_ID, LAST_UPDATED))
                row_id, number = (a or b for a, b in zip(own, (place, sequence), strict=True))
                known = found.setdefault(row["letter"], (row_id, number))
                assert known == (row_id, number), "a row that is dead there has its own, too"
    assert len({row_id for row_id, _ in found.values()}) == len(found)
    assert all(row_id < file.metadata["next-row-id"] for row_id, _ in found.values())
    numbers = [each["sequence-number"] for each in file.snapshots]
    assert numbers == sorted({*numbers})
    assert all(number <= numbers[-1] for _, number in found.values())
    return dict(found)


@pytest.fixture
def table(world: World) -> Table:
    return world.create(row_origin="ids", **PUBLISHED)


def test_rows_keep_their_ids_and_numbers_whatever_becomes_of_their_shards(
    world: World, table: Table
) -> None:
    drop(world, "dab")
    first = published(world, table)
    assert first == queried(world)
    last = published_file(world, table).current["sequence-number"]
    drop(world, "ec")
    both = published(world, table)
    assert both == queried(world) == {**both, **first}
    assert {letter for letter, (_, number) in both.items() if number > last} == {*"ec"}
    compact(world)
    administer(world, SplitPartitions(world.ids.new(), "letters", forced=True))
    compact(world)
    assert published(world, table) == queried(world) == both
    drop(world, "f")
    compact(world)
    assert published(world, table) == queried(world) == {**both, **published(world, table)}


def test_readers_have_the_numbers_that_a_rebuild_has_given_to_commits(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = world.tracker.reserve_row_ids

    def later(table_id: str, count: int, now_ms: int) -> int:
        world.clock.advance(seconds=5)  # a commit is later than what it adds was written
        return reserve(table_id, count, now_ms)

    monkeypatch.setattr(world.tracker, "reserve_row_ids", later)
    for text in ("dab", "ec"):
        drop(world, text)
    before = published(world, table)
    opened(world).rebuild()
    world.settle()
    after = published(world, table)
    assert after == queried(world)
    assert {row: row_id for row, (row_id, _) in after.items()} == {
        row: row_id for row, (row_id, _) in before.items()
    }
    drop(world, "f")
    assert published(world, table) == queried(world) == {**published(world, table), **after}
    compact(world)
    assert published(world, table) == queried(world) == {**published(world, table), **after}


@pytest.mark.parametrize("merged", [False, True])
def test_rows_of_commits_that_are_published_at_once_have_their_own_numbers(
    world: World, table: Table, merged: bool
) -> None:
    administer(world, SetProperties("off", "letters", {"iceberg": "off"}))
    for text in ("dab", "ec"):
        drop(world, text)
    before = queried(world)
    if merged:
        compact(world)
    administer(world, SetProperties("on", "letters", {"iceberg": "on"}))
    assert published(world, table) == queried(world) == before
    assert len({number for _, number in before.values()}) == 2


def test_rows_without_ids_have_those_of_their_place_and_no_others_have_these(world: World) -> None:
    table = world.create(row_origin="on", **PUBLISHED)
    for text in ("da", "b"):
        drop(world, text)
    compact(world)
    with pytest.raises(InvalidRequestError, match="does not keep _row_id") as raised:
        queried(world)
    assert "row_origin=ids" in raised.value.hint
    earlier = published_file(world, table).current["sequence-number"]
    administer(world, SetProperties("ids", "letters", {"row_origin": "ids"}))
    drop(world, "ec")
    known = {letter: numbers for letter, numbers in queried(world).items() if letter in "ec"}
    for _ in range(2):
        found = published(world, table)
        assert {letter: found[letter] for letter in "ec"} == known
        assert all(number > earlier for _, number in known.values())
        assert {queried(world)[letter] for letter in "dab"} == {(None, None)}
        compact(world)
    administer(world, SetProperties("gone", "letters", {"row_origin": "off"}))
    drop(world, "f")
    compact(world)
    assert len(published(world, table)) == 6


def test_a_copy_has_the_ids_and_goes_on_with_others(
    world: World, table: Table, tmp_path: Path
) -> None:
    other = World(tmp_path / "other")
    other.clock.advance(seconds=100_000)  # so that its ids of tables are others
    drop(world, "dab")
    before = queried(world)
    services = world.services
    copy_table(services, table, world.sources.bucket, other.services, "letters")
    other.settle()
    assert queried(other) == before
    drop(other, "ec")
    ids = [row_id for row_id, _ in queried(other).values()]
    assert len({*ids}) == 5
    assert max(row_id or 0 for row_id in ids) < ROW_IDS_END
