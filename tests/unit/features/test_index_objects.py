"""Index objects: look-ups read them in place of the ends of shards; they go with their shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from dormouse.features.checking import Damage, check
from dormouse.features.copying import copy_table
from dormouse.features.purge import Proof
from dormouse.features.purge_rows import prove_purge
from dormouse.features.rebuild import rebuild
from dormouse.keys import KeyRange
from dormouse.messages.requests import DeleteTable, SetProperties
from dormouse.rows.predicates import Predicate
from dormouse.sql.conditions import parse_condition
from dormouse.storage import FolderStorage, WrappedFile
from dormouse.stored.paths import data_prefix, index_path, is_index_object, make_run_id, shard_id_of
from dormouse.tables.table import Table
from tests.support.purges import purge_request
from tests.support.queries import query_rows
from tests.support.world import Crash, World, letters

PROPERTIES: dict[str, object] = {
    "index_objects": "on",
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "gc_delay_seconds": 600,
    "orphan_age_seconds": 3600,
}


class Seen(FolderStorage):
    """A folder as far away as S3, which notes which bytes of which object are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[tuple[str, int]] = []

    @property
    def is_remote(self) -> bool:
        return True

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        return _Seen(super().open(path, size_bytes), path, self.reads)  # type: ignore[return-value]  # enough of one

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        self.reads.append((path, end))
        return super().stream(path, size_bytes, start, end)


class _Seen(WrappedFile):
    def __init__(self, file: BinaryIO, path: str, reads: list[tuple[str, int]]) -> None:
        super().__init__(file)
        self._path, self._reads = path, reads

    def read(self, size: int = -1) -> bytes:
        body = self._file.read(size)
        self._reads.append((self._path, self._file.tell()))
        return body


@pytest.fixture
def seen(world: World) -> Seen:
    storage = Seen(world.folder / "data")
    world.storage = storage
    world.services = replace(world.services, storage=storage)
    return storage


def filled(world: World, *texts: str, **properties: object) -> Table:
    table = world.create(**{**PROPERTIES, **properties})
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def objects(world: World, table: Table) -> dict[str, bytes]:
    found = world.storage.list(data_prefix(table.id))
    return {each.path: world.storage.get(each.path) for each in found}


def assert_each_shard_has_its_index(world: World, table: Table) -> None:
    there = objects(world, table)
    shards = [path for path in there if not is_index_object(path)]
    assert shards and len(there) == 2 * len(shards)
    for path in shards:
        index = there[index_path(table.id, shard_id_of(path) or "")]
        assert there[path].endswith(index) and len(index) < len(there[path])


def noted(world: World, table: Table, condition: str) -> list[object]:
    return look_up(world, table, "", condition)


def look_up(world: World, table: Table, letter: str, condition: str = "") -> list[object]:
    where = None
    if condition:
        where = Predicate(parse_condition(condition, table.schema), table.schema)
    spans = [KeyRange.exactly((letter,))] if letter else [KeyRange()]
    result = query_rows(
        world.storage,
        table,
        world.state(table),
        spans,
        where=where,
        now_ms=0,
        scratch=world.services.scratch,
        memory_bytes=64 * 1024 * 1024,
    )
    return list(result.reader.read_all().to_pylist())


def ends_read(world: World, table: Table, seen: Seen) -> set[str]:
    """Return the shards whose bytes behind their rows were read."""
    sizes = {path: len(body) for path, body in objects(world, table).items()}
    seen.reads = [each for each in seen.reads if each[0] in sizes]
    first = {
        path: size - sizes[index_path(table.id, shard_id_of(path) or "")]
        for path, size in sizes.items()
        if not is_index_object(path)
    }
    return {path for path, end in seen.reads if path in first and end > first[path]}


def test_shards_of_ingests_compactions_splits_and_purges_have_index_objects(world: World) -> None:
    table = filled(world, "abc", "xyz", "dmn", split_threshold_rows=8, compaction_files=3)
    assert len(world.state(table).partitions) > 1
    assert_each_shard_has_its_index(world, table)
    world.purge(table, "letter = 'x'")
    world.settle()
    world.clock.advance(seconds=7200)
    world.sweep(audit=True)
    world.settle()
    assert_each_shard_has_its_index(world, table)
    assert {row["letter"] for row in world.rows(table)} == set("abcyzdmn")


@pytest.mark.parametrize("iceberg", ["off", "on"])
def test_a_look_up_reads_rows_of_the_shard_and_all_else_of_its_index_object(
    world: World, seen: Seen, iceberg: str
) -> None:
    table = filled(world, "abd", iceberg=iceberg)
    seen.reads.clear()
    assert len(look_up(world, table, "b")) == 1
    assert not ends_read(world, table, seen)
    assert {is_index_object(path) for path, _ in seen.reads} == {False, True}
    seen.reads.clear()
    assert look_up(world, table, "zebra") == []
    assert not [path for path, _ in seen.reads if not is_index_object(path)]


def test_bloom_filters_are_read_of_index_objects(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.shards.reading.MIN_ROW_GROUPS", 1)
    table = filled(world, "abd", bloom_columns="note")
    seen.reads.clear()
    assert noted(world, table, "note = 'of nobody'") == []
    assert not [path for path, _ in seen.reads if not is_index_object(path)]
    assert len(noted(world, table, "note = 'b1'")) == 1
    assert not ends_read(world, table, seen)


def test_words_are_looked_for_in_index_objects(
    world: World, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.shards.reading.MIN_ROW_GROUPS", 1)
    table = filled(world, "abd", term_index="note")
    for damaged in (False, True):
        seen.reads.clear()
        assert noted(world, table, "has(note, 'nobody')") == []
        shards_read = [path for path, _ in seen.reads if not is_index_object(path)]
        assert bool(shards_read) == damaged
        assert len(noted(world, table, "has(note, 'b1')")) == 1
        (shard,) = world.shard_objects(table)
        index = index_path(table.id, shard or "")
        body = world.storage.get(index)
        _put(world, index, bytes(100) + body[100:])


def test_a_compaction_reads_no_end_of_its_inputs(world: World, seen: Seen) -> None:
    table = filled(world, "abc")
    (before,) = (path for path in objects(world, table) if not is_index_object(path))
    size_bytes = len(world.storage.get(before))
    seen.reads.clear()
    world.drop("letters/more.parquet", letters("xyz"))
    world.deliver_all_but("gc-candidates")
    assert before in {path for path, _ in seen.reads}
    assert max(end for path, end in seen.reads if path == before) < size_bytes


def _remove(world: World, path: str) -> None:
    world.storage.delete([path])


def _flip(world: World, path: str) -> None:
    body = bytearray(world.storage.get(path))
    body[len(body) // 2] ^= 1
    _put(world, path, bytes(body))


def _cut(world: World, path: str) -> None:
    _put(world, path, world.storage.get(path)[:-1])


def _empty(world: World, path: str) -> None:
    _put(world, path, b"")


def _put(world: World, path: str, body: bytes) -> None:
    world.storage.delete([path])
    assert world.storage.put(path, body)


@pytest.mark.parametrize("damage", [_remove, _flip, _cut, _empty])
def test_a_lost_or_damaged_index_object_costs_no_row_and_a_check_finds_it(
    world: World, damage: Callable[[World, str], None]
) -> None:
    table = filled(world, "abc", bloom_columns="note")
    (shard,) = world.shard_objects(table)
    assert check(world.services, table, all_bytes=True).findings == ()
    damage(world, index_path(table.id, shard or ""))
    (finding,) = check(world.services, table, all_bytes=True).findings
    assert (finding.damage, finding.subject) == (Damage.INDEX_DAMAGED, shard)
    assert [len(look_up(world, table, letter)) for letter in "bz"] == [1, 0]
    assert noted(world, table, "note = 'c2'")
    world.drop("letters/more.parquet", letters("xyz"))
    world.settle()
    assert {row["letter"] for row in world.rows(table)} == set("abcxyz")


def test_index_objects_go_with_their_shards_and_with_the_table(world: World) -> None:
    table = filled(world, "abc", "xyz")
    assert_each_shard_has_its_index(world, table)
    assert len(objects(world, table)) == 2, "of the shard that two were merged into"
    world.administer(DeleteTable("delete", "letters"))
    world.settle()
    assert not objects(world, table)


def test_the_audit_deletes_an_index_object_without_a_shard_and_none_of_a_running_job(
    world: World,
) -> None:
    table = filled(world, "abc")
    kept = set(objects(world, table))
    alone = index_path(table.id, f"{make_run_id(world.ids.new(), plain=False, indexed=True)}-0")
    world.storage.put(alone, b"of a shard that is gone")
    world.sweep(audit=True)
    assert set(objects(world, table)) == {*kept, alone}
    world.age_objects(seconds=7200)
    world.sweep(audit=True)
    assert set(objects(world, table)) == kept


def test_a_proof_of_a_purge_names_an_index_object_that_is_left_alone(world: World) -> None:
    table = filled(world, "abc")
    assert proof(world, table).remains == ()
    (shard,) = world.shard_objects(table)
    alone = index_path(table.id, f"{make_run_id(world.ids.new(), plain=False, indexed=True)}-0")
    world.storage.put(alone, world.storage.get(index_path(table.id, shard or "")))
    (found,) = proof(world, table).remains
    assert (found.path, found.rows) == (alone, None)
    assert not proof(world, table).is_complete


def proof(world: World, table: Table) -> Proof:
    request = purge_request(table.schema, "letter = 'q'")
    return prove_purge(world.services, table, request)


def test_a_rebuild_leaves_index_objects_where_they_are(world: World) -> None:
    table = filled(world, "abc", "d")
    rows, before = world.rows(table), set(objects(world, table))
    world.set_online(table, False)
    rebuild(world.services, table)
    rebuilt = world.tables.named("letters")
    assert rebuilt is not None
    assert world.rows(rebuilt) == rows
    assert set(objects(world, table)) == before
    assert check(world.services, rebuilt, all_bytes=True).findings == ()


def test_a_copy_has_index_objects_of_its_own(world: World, tmp_path: Path) -> None:
    table = filled(world, "abc", "d")
    there = World(tmp_path / "there")
    report, _ = copy_table(world.services, table, "ingest", there.services, "copies")
    assert_each_shard_has_its_index(there, report.table)
    assert there.rows(report.table) == world.rows(table)
    assert check(there.services, report.table, all_bytes=True).findings == ()


def test_a_run_that_dies_before_its_index_object_is_put_is_made_good_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, "abc")
    put = world.storage.put

    def dying(path: str, body: bytes) -> bool:
        if (
            is_index_object(path)
            and shard_id_of(path) not in world.state(table).shards
            and (world.state(table).jobs)
        ):
            monkeypatch.undo()
            raise Crash
        return put(path, body)

    world.drop("letters/more.parquet", letters("xyz"))
    monkeypatch.setattr(world.storage, "put", dying)
    deaths = 0
    while world.queue:
        message = world.queue.popleft()
        world.clock.advance(seconds=message.delay_seconds)
        try:
            world.queue += world.deliver(message)
        except Crash:
            deaths += 1
            world.queue.append(message)
    assert deaths == 1
    assert_each_shard_has_its_index(world, table)
    assert {row["letter"] for row in world.rows(table)} == set("abcxyz")


def test_the_property_concerns_shards_that_are_written_from_then_on(world: World) -> None:
    table = filled(world, "abc", index_objects="off")
    assert not [path for path in objects(world, table) if is_index_object(path)]
    world.administer(SetProperties("on", "letters", {"index_objects": "on"}))
    world.drop("letters/more.parquet", letters("xyz"))
    world.settle()
    assert_each_shard_has_its_index(world, table)
    world.administer(SetProperties("off", "letters", {"index_objects": "off"}))
    world.drop("letters/rest.parquet", letters("q"))
    world.settle()
    assert not [path for path in objects(world, table) if is_index_object(path)]
    assert {row["letter"] for row in world.rows(table)} == set("abcxyzq")
