"""copy_table: killed, damaged, overtaken or raced, it never shows a table that lacks anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import ContendedError, CorruptDataError, DamagedShardError, NotFoundError
from dormouse.features import copying
from dormouse.features import copying as copy_stage
from dormouse.features.checking import check
from dormouse.features.copying import CopyReport, copy_table
from dormouse.messages.requests import ReinitialiseTable
from dormouse.stored.paths import COPYING, shard_path
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters
from tests.unit.features.copying.copies import Fuse, busy_table, copied, copy_to, fused, registered


def test_killed_anywhere_and_run_again_it_continues_and_is_seen_only_when_complete(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "here")
    table = busy_table(world)
    rows, calls = world.rows(table), 0
    while True:
        there = World(tmp_path / f"there-{calls}")
        crashing = fused(there.services, Fuse(calls))
        try:
            copy_table(world.services, table, world.sources.bucket, crashing, "copies")
            break
        except Crash:
            pass
        seen = there.tables.named("copies")
        assert seen is None or there.rows(seen) == rows
        uploaded = len(there.shard_objects(there_copy(world, table, there)))
        report, messages = copy_table(
            world.services, table, world.sources.bucket, there.services, "copies"
        )
        assert report.copied == report.shards - uploaded or report.was_complete
        copy = registered(there, report.table)
        assert there.rows(copy) == rows
        assert not list(there.storage.list(COPYING.prefix(copy.id)))
        logs = {o.path.split("/")[2] for o in there.storage.list(f"{copy.id}/state/")}
        assert logs <= {copy.log, "sources"}
        calls += 1
    assert calls > 15


def there_copy(world: World, table: Table, there: World) -> Table:
    return replace(table, id=copy_stage._copy_id(table, there.services, "copies"))


def test_a_source_that_is_compacted_and_collected_meanwhile_is_copied_as_it_is_then(
    world: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2, gc_delay_seconds=60)
    world.drop("letters/0.parquet", letters("abc"))
    world.drop("letters/1.parquet", letters("xyz", at=10))
    world.deliver_all_but("table-changes")
    rows = world.rows(table)
    inner = world.storage.open
    opened: list[str] = []

    def collects(path: str, size_bytes: int) -> Any:
        if not opened:
            opened.append(path)
            world.queue += copy_stage._messages(table.id)
            world.settle()
            assert path not in {o.path for o in world.storage.list("")}
        return inner(path, size_bytes)

    monkeypatch.setattr(world.storage, "open", collects)
    copy = copied(world, table, there)
    assert there.rows(copy) == rows
    assert check(there.services, copy).findings == ()


def test_shards_of_an_earlier_call_that_are_merged_since_are_deleted(
    world: World, there: World
) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2, gc_delay_seconds=60)
    world.drop("letters/0.parquet", letters("abc"))
    world.deliver_all_but("table-changes")
    crashing = fused(there.services, Fuse(4))
    with pytest.raises(Crash):
        copy_table(world.services, table, world.sources.bucket, crashing, "copies")
    world.drop("letters/1.parquet", letters("xyz", at=10))
    world.settle()
    copy = copied(world, table, there)
    assert there.names(copy) == "abcxyz"
    assert there.shard_objects(copy) == set(there.state(copy).shards)


def test_a_shard_of_the_source_that_is_lost_or_damaged_ends_the_copy(
    world: World, there: World
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    (shard,) = world.state(table).shards
    path = world.folder / "data" / shard_path(table.id, shard)
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with pytest.raises(DamagedShardError):
        copy_to(world, table, there)
    path.unlink()
    with pytest.raises(CorruptDataError, match="lost"):
        copy_to(world, table, there)
    assert there.tables.named("copies") is None
    path.write_bytes(whole)
    assert there.names(copied(world, table, there)) == "abc"


def test_every_flipped_bit_of_a_shard_is_noticed(world: World, there: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    (shard,) = world.state(table).shards
    path = world.folder / "data" / shard_path(table.id, shard)
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(CorruptDataError):
            copy_to(world, table, there)


def test_a_shard_that_was_damaged_on_its_way_is_read_again(
    world: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    download, times = copying._download, []

    def damages(storage: Any, path: str, size_bytes: int, local: Path) -> None:
        download(storage, path, size_bytes, local)
        times.append(path)
        if len(times) == 1:
            local.write_bytes(local.read_bytes()[:-1])

    monkeypatch.setattr(copying, "_download", damages)
    assert there.names(copied(world, table, there)) == "abc"
    assert len(times) == 2


def test_of_two_calls_at_once_one_registers_the_table_and_the_other_says_so(
    world: World, there: World
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    reports: list[CopyReport] = []

    def other() -> None:
        reports.append(copy_to(world, table, there))

    there.before_next_commit(other)
    with pytest.raises(ContendedError, match="another process has copied"):
        copy_to(world, table, there)
    (report,) = reports
    assert there.names(registered(there, report.table)) == "abc"
    assert not list(there.storage.list(COPYING.prefix(report.table.id)))


def test_a_table_that_is_deleted_meanwhile_is_not_copied(
    world: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    before: Callable[..., Any] = world.storage.open

    def deletes(path: str, size_bytes: int) -> Any:
        world.delete(table)
        world.settle()
        monkeypatch.setattr(world.storage, "open", before)
        return before(path, size_bytes)

    monkeypatch.setattr(world.storage, "open", deletes)
    with pytest.raises(NotFoundError):
        copy_to(world, table, there)
    assert there.tables.named("copies") is None


def test_a_table_that_is_reset_meanwhile_is_not_copied(
    world: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    before: Callable[..., Any] = world.storage.open

    def resets(path: str, size_bytes: int) -> Any:
        monkeypatch.setattr(world.storage, "open", before)
        world.administer(ReinitialiseTable("r", table.name))
        return before(path, size_bytes)

    monkeypatch.setattr(world.storage, "open", resets)
    with pytest.raises(ContendedError, match="was reset while it was copied"):
        copy_to(world, table, there)
    assert there.tables.named("copies") is None
    assert there.names(copied(world, registered(world, table), there)) == ""
