"""The proof of a purge: it finds what is left in any object, and says why it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from dormouse.features.batch_files import batch_files
from dormouse.features.checking import acknowledge
from dormouse.features.compaction import compact
from dormouse.features.ingest import ingest
from dormouse.features.purge import Proof
from dormouse.features.purge_rows import prove_purge
from dormouse.messages.stages import CompactionJob, IngestJob
from dormouse.ports import NoncurrentObject, StoredObject
from dormouse.state.state import AssignJob, DisputeReason, DisputeShards
from dormouse.state.versions import OwnerKind, PinOwner
from dormouse.storage import FolderStorage
from dormouse.stored.paths import data_prefix, shard_path
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.purges import purge_request
from tests.support.world import Crash, World, letters, letters_file


@pytest.fixture
@made_once
def table(world: World) -> Table:
    table = world.create(gc_delay_seconds=600, orphan_age_seconds=3600)
    world.set_online(table, False)
    for number, text in enumerate(("abb", "bc", "cd")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def prove(world: World, table: Table) -> Proof:
    request = purge_request(table.schema, "letter = 'b'")
    return prove_purge(world.services, table, request)


def test_what_is_in_the_table_is_counted_with_the_shards_to_rewrite(
    world: World, table: Table
) -> None:
    proof = prove(world, table)
    assert (proof.rows, proof.objects, proof.shards) == (3, 3, 2)
    assert {found.reason for found in proof.remains} == {"it is part of the table"}
    assert not proof.is_complete


def test_a_purge_leaves_a_disputed_shard_alone_until_the_dispute_is_resolved(
    world: World, table: Table
) -> None:
    first = min(s for s in world.state(table).shards)
    damaged = DisputeShards((first,), DisputeReason.BYTES_DAMAGED, "job")
    world.new_store(table).commit(damaged, generation=0)
    world.purge(table, "letter = 'b'")
    world.settle()
    state = world.state(table)
    assert first in {reference.shard for reference in state.all_references()}
    assert not len(state.jobs), "no job was begun that would fail"
    assert {r.path for r in prove(world, table).remains} == {shard_path(table.id, first)}
    world.queue += acknowledge(world.services, table, [first])
    world.age_objects(seconds=30 * 24 * 3600)
    world.sweep()  # has the purge go on
    world.settle()
    assert prove(world, table).is_complete


def test_a_replaced_shard_that_is_disputed_is_reported_as_kept(world: World, table: Table) -> None:
    world.purge(table, "letter = 'b'")
    while world.queue:  # all but the collection
        message = world.queue.popleft()
        if message.queue != "gc-candidates":
            world.queue += world.deliver(message)
    replaced = tuple(sorted(world.state(table).unreferenced))
    damaged = DisputeShards(replaced, DisputeReason.BYTES_DAMAGED, "job")
    world.new_store(table).commit(damaged, generation=0)
    reasons = {found.reason for found in prove(world, table).remains}
    assert reasons == {"it is disputed, and kept until the dispute is resolved"}


def test_noncurrent_objects_are_reported_with_the_time_they_expire(
    world: World, table: Table
) -> None:
    world.purge(table, "letter = 'b'")
    while world.queue:  # all but the collection
        message = world.queue.popleft()
        if message.queue != "gc-candidates":
            world.queue += world.deliver(message)
    proof = prove(world, table)
    assert (proof.rows, proof.shards) == (0, 0)
    assert sorted(str(found.rows) for found in proof.remains) == ["1", "2"]
    goes_ms = world.clock.now_ms() + 600_000
    assert {found.until_ms for found in proof.remains} == {goes_ms}
    world.clock.advance(seconds=1201)
    world.sweep()
    world.settle()
    assert prove(world, table).is_complete


def test_a_pin_that_a_killed_process_has_not_confirmed_is_named(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.purge(table, "letter = 'b'")
    pins = world.services.store(table).pins
    monkeypatch.setattr(type(pins), "_confirmed", Mock(side_effect=Crash))
    with pytest.raises(Crash):
        pins.add(PinOwner(OwnerKind.TAG, "kept"), world.state(table), expires_ms=None)
    world.settle()
    remains = prove(world, table).remains
    assert [f for f in remains if "tag/kept pins" not in f.reason] == [] != remains
    (pin, _) = next(pins.held())
    assert {found.until_ms for found in remains} == {pin.expires_ms}
    assert not pin.is_confirmed


def test_what_a_dead_ingest_left_is_found_by_its_own_footer(world: World, table: Table) -> None:
    source = world.sources.drop("letters/dead.parquet", letters_file(letters("bbb")))
    (job,) = batch_files(world.services, [source])
    assert isinstance(job.message, IngestJob)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        ingest(world.services, job.message)
    world.purge(table, "letter = 'b'")
    world.settle()
    world.age_objects(seconds=60)
    proof = prove(world, table)
    (left,) = proof.remains
    assert (proof.rows, left.rows) == (0, 3)
    assert "no commit refers to it" in left.reason
    assert left.until_ms == world.clock.now_ms() + 3540_000
    world.clock.advance(seconds=3600)
    world.sources.objects.clear()
    world.sweep(audit=True)
    world.settle()
    assert prove(world, table).is_complete


def test_the_output_of_an_unfinished_job_is_distinguished(world: World, table: Table) -> None:
    inputs = tuple(sorted(world.state(table).shards))
    world.services.store(table).commit(AssignJob("job", "root", inputs), generation=0)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        compact(world.services, CompactionJob(table.id, 0, "job"))
    reasons = {found.reason for found in prove(world, table).remains}
    assert "a job that is not finished wrote it" in reasons


def test_an_object_that_cannot_be_read_is_no_proof(world: World, table: Table) -> None:
    world.purge(table, "letter = 'b'")
    world.settle()
    world.storage.put(shard_path(table.id, "torn-0"), b"no shard")
    world.storage.put(f"{data_prefix(table.id)}notes.txt", b"whatever")
    proof = prove(world, table)
    assert not proof.is_complete
    assert [found.rows for found in proof.remains] == [None, None]
    assert all("it cannot be read" in found.reason for found in proof.remains)


class KeepingStorage(FolderStorage):
    """A data root that keeps what is deleted, as a bucket with versions does."""

    def __init__(self, root: Path, kept: Path) -> None:
        super().__init__(root)
        self.kept = FolderStorage(kept)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.kept.put(path, self.get(path))
        super().delete(paths)

    def list_noncurrent(self, prefix: str) -> Iterator[NoncurrentObject]:
        for stored in self.kept.list(prefix):
            yield NoncurrentObject(stored, self.kept, stored.modified_ms + 1000)


@pytest.fixture
def keeping(world: World, tmp_path: Path) -> KeepingStorage:
    kept = KeepingStorage(tmp_path / "data", tmp_path / "kept")
    world.storage = kept
    world.services = replace(world.services, storage=kept)
    return kept


def test_rows_in_what_a_bucket_with_versions_keeps_are_left_until_that_goes(
    world: World, table: Table, keeping: KeepingStorage
) -> None:
    world.purge(table, "letter = 'b'")
    world.settle()
    kept = list(keeping.kept.list(data_prefix(table.id)))
    assert kept
    proof = prove(world, table)
    assert proof.rows == proof.shards == 0
    assert not proof.is_complete
    assert {(r.path, r.reason) for r in proof.remains} == {
        (stored.path, "it was deleted, and the bucket keeps earlier versions") for stored in kept
    }
    assert sum(found.rows or 0 for found in proof.remains) == 3
    assert all(found.until_ms is not None for found in proof.remains)
    damaged, *_ = kept
    (keeping.kept._file(damaged.path)).write_bytes(b"x" * damaged.size_bytes)
    (unread,) = (found for found in prove(world, table).remains if found.rows is None)
    assert unread.path == damaged.path and "cannot be read" in unread.reason
    keeping.kept.delete([stored.path for stored in kept])
    assert prove(world, table).is_complete


def test_what_is_committed_while_objects_are_listed_is_no_part_of_the_version_proven(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.purge(table, "letter = 'b'")
    world.settle()
    before, whole = world.state(table).version, world.storage.list

    def listing(prefix: str) -> Iterator[StoredObject]:
        found = list(whole(prefix))
        if prefix == data_prefix(table.id):
            monkeypatch.setattr(world.storage, "list", whole)
            world.drop("letters/late.parquet", letters("b", at=900))
            world.settle()
        return iter(found)

    monkeypatch.setattr(world.storage, "list", listing)
    proof = prove(world, table)
    assert (proof.is_complete, proof.version) == (True, before)
    assert not prove(world, table).is_complete


def test_a_shard_that_lies_under_the_name_of_another_is_no_proof(
    world: World, table: Table
) -> None:
    world.purge(table, "letter = 'b'")
    world.settle()
    source = world.sources.drop("letters/dead.parquet", letters_file(letters("bbb")))
    (job,) = batch_files(world.services, [source])
    assert isinstance(job.message, IngestJob)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        ingest(world.services, job.message)
    (left,) = prove(world, table).remains
    path = world.folder / "data" / left.path
    path.rename(path.with_name("other-0.parquet"))
    (found,) = prove(world, table).remains
    assert found.rows is None
    assert "its footer has the id of shard" in found.reason
