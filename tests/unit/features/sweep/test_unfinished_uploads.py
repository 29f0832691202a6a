"""What a crash between two parts leaves: no object, known to the proof of a purge, and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.features.garbage import MAX_UPLOAD_MS, abandoned_after_ms
from dormouse.features.purge import Proof
from dormouse.features.purge_rows import UNFINISHED, prove_purge
from dormouse.messages.requests import DeleteTable
from dormouse.ports import StoredObject
from dormouse.stored.paths import data_prefix, shard_path
from dormouse.tables.table import Table
from tests.support.memory_storage import MemoryStorage
from tests.support.purges import purge_request
from tests.support.world import World, letters


@pytest.fixture
def storage(world: World) -> MemoryStorage:
    """A storage that gets shards in parts."""
    storage = MemoryStorage(world.clock)
    world.storage = storage  # type: ignore[assignment]  # another kind of storage
    world.services = replace(world.services, storage=storage)
    return storage


@pytest.fixture
def table(world: World, storage: MemoryStorage) -> Table:
    table = world.create(orphan_age_seconds=3600)
    world.drop("letters/1.parquet", letters("abb"))
    world.settle()
    return table


def die_between_parts(storage: MemoryStorage, table_id: str, shard: str) -> str:
    """Begin to upload a shard, as a run does that dies then."""
    return storage.begin_upload(shard_path(table_id, shard)).path


def left(storage: MemoryStorage) -> list[str]:
    return [upload.path for upload in storage.list_uploads("")]


def prove(world: World, table: Table) -> Proof:
    request = purge_request(table.schema, "letter = 'x'")
    return prove_purge(world.services, table, request)


def test_an_audit_deletes_what_was_sent_of_shards_whose_run_died_and_of_no_other(
    world: World, storage: MemoryStorage, table: Table
) -> None:
    die_between_parts(storage, table.id, "old-0")
    elsewhere = die_between_parts(storage, "another", "old-0")
    world.clock.advance(seconds=3599)
    world.sweep(audit=True)
    assert len(left(storage)) == 2, "it is not old enough"
    young = die_between_parts(storage, table.id, "young-0")
    world.clock.advance(seconds=1)
    world.sweep()
    assert len(left(storage)) == 3, "only an audit lists all"
    world.sweep(audit=True)
    assert left(storage) == [elsewhere, young]


def test_an_upload_is_abandoned_after_a_day_at_the_latest(world: World) -> None:
    patient = world.create("patient", orphan_age_seconds=30 * 24 * 3600)
    assert abandoned_after_ms(patient) == MAX_UPLOAD_MS == 24 * 3600 * 1000


def test_of_a_deleted_table_no_part_of_a_shard_is_left(
    world: World, storage: MemoryStorage, table: Table
) -> None:
    die_between_parts(storage, table.id, "a-0")
    elsewhere = die_between_parts(storage, "another", "a-0")
    world.administer(DeleteTable("gone", "letters"))
    assert left(storage) == [elsewhere]


def test_what_was_sent_of_an_unfinished_shard_may_hold_rows_that_a_purge_removed(
    world: World, storage: MemoryStorage, table: Table
) -> None:
    assert prove(world, table).is_complete
    now_ms = world.clock.now_ms()
    path = die_between_parts(storage, table.id, "a-0")
    proof = prove(world, table)
    assert not proof.is_complete
    (found,) = proof.remains
    assert (found.path, found.rows, found.reason) == (path, None, UNFINISHED)
    assert found.until_ms == now_ms + 3_600_000
    world.clock.advance(seconds=3600)
    world.sweep(audit=True)
    assert prove(world, table).is_complete


def test_a_shard_that_is_completed_while_a_proof_lists_is_not_missed(
    world: World, storage: MemoryStorage, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    (upload,) = [storage.begin_upload(shard_path(table.id, "a-0"))]
    plain = storage.list

    def complete_first(prefix: str) -> Iterator[StoredObject]:
        if prefix == data_prefix(table.id):
            yield from plain(prefix)
            storage.abort_uploads([upload])  # its object comes after this listing
        else:
            yield from plain(prefix)

    monkeypatch.setattr(storage, "list", complete_first)
    assert {found.path for found in prove(world, table).remains} == {upload.path}


def test_a_folder_leaves_no_upload_unfinished(world: World, tmp_path: Path) -> None:
    assert list(world.storage.list_uploads("")) == []
