"""What is published follows the table, and its readers keep what they found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dormouse.errors import ContendedError, UnavailableError
from dormouse.features import publishing
from dormouse.features.publish_iceberg import publish_iceberg
from dormouse.features.publishing import READERS_MS, reachable
from dormouse.features.tables import create_table
from dormouse.iceberg.metadata import read_previous
from dormouse.messages.requests import CreateTable, PublishIceberg, ReinitialiseTable, SetProperties
from dormouse.messages.stages import TableChanged
from dormouse.schema.schema import Schema
from dormouse.state.versions import PublicationRecord
from dormouse.storage import root_uri
from dormouse.stored.paths import iceberg_prefix, shard_path
from dormouse.tables.table import Table
from tests.support.world import LETTERS, Crash, World, letters

DELAY_SECONDS = 600
PUBLISHED = {"iceberg": "on", "gc_delay_seconds": DELAY_SECONDS}


def drop(world: World, text: str, at: int = 0) -> None:
    """Ingest and publish rows; no shard is collected, which would take time."""
    world.drop(f"letters/{text}-{at}.parquet", letters(text, at=at))
    world.deliver_all_but("gc-candidates")


def record_of(world: World, table: Table) -> PublicationRecord:
    record = world.publications.get(table.id)
    assert record is not None
    return record


def published_files(world: World, table: Table, metadata: str = "") -> set[str]:
    """Return the data files that the newest snapshot of metadata names."""
    path = metadata or record_of(world, table).metadata
    previous = read_previous(path, world.storage.get)
    return {path for each in previous.data_manifests for path in previous.files(each)}


def shards_of(world: World, table: Table) -> set[str]:
    counts = world.state(table).reference_counts
    return {shard_path(table.id, shard) for shard, n in counts.items() if n}


def publish(world: World, table: Table) -> None:
    assert publish_iceberg(world.services, TableChanged(table.id)) == []


def test_a_commit_is_published(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    assert published_files(world, table) == shards_of(world, table)
    drop(world, "xyz", at=10)
    assert published_files(world, table) == shards_of(world, table)
    newest = record_of(world, table).newest
    assert newest is not None
    assert newest.covers(table.state_id, world.state(table))


def test_a_table_is_published_when_it_is_created(world: World) -> None:
    request = CreateTable("create", "letters", LETTERS.to_json(), dict(PUBLISHED))
    world.administer(request)
    world.settle()
    (table,) = world.tables.all()
    assert published_files(world, table) == set()
    world.publications.delete(table.id)  # as if the message had been lost
    world.queue += create_table(world.services, request)
    world.settle()
    assert published_files(world, table) == set()


def test_nothing_is_published_of_a_table_unless_it_is_asked_for(world: World) -> None:
    table = world.create()
    drop(world, "abc")
    publish(world, table)
    assert world.publications.get(table.id) is None
    assert not list(world.storage.list(iceberg_prefix(table.id)))


def test_a_run_with_nothing_new_puts_nothing(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    before, record = objects(world, table), record_of(world, table)
    publish(world, table)
    assert (objects(world, table), record_of(world, table)) == (before, record)


def objects(world: World, table: Table) -> set[str]:
    return {stored.path for stored in world.storage.list(iceberg_prefix(table.id))}


def test_a_commit_that_readers_cannot_see_moves_the_version_alone(world: World) -> None:
    table = world.create(**PUBLISHED)
    for number in range(4):
        drop(world, "abc", at=number)
    world.clock.advance(seconds=10)
    metadata, before = record_of(world, table).metadata, world.state(table).version
    world.purge(table, "letter = 'z'")  # no row has it
    world.settle()
    publish(world, table)
    newest = record_of(world, table).newest
    assert newest is not None and newest.version == world.state(table).version >= before
    assert published_files(world, table, metadata) == published_files(world, table)


def test_a_renamed_column_is_published_without_a_commit(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    before = record_of(world, table).metadata
    world.alter(table, rename={"note": "remark"})
    world.settle()
    assert record_of(world, table).metadata != before
    assert b"remark" in world.storage.get(record_of(world, table).metadata)


def test_two_publishers_at_once_converge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    replace, rivals = world.publications.replace, [1, 2]

    def raced(table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        if rivals:
            rivals.pop()
            drop(world, "q", at=100 + len(rivals))
            publish(world, table)
        return replace(table_id, old, new)

    drop_without_publishing(world, "xyz")
    monkeypatch.setattr(world.publications, "replace", raced)
    publish(world, table)
    assert published_files(world, table) == shards_of(world, table)


def drop_without_publishing(world: World, text: str) -> None:
    world.drop(f"letters/{text}.parquet", letters(text, at=50))
    world.deliver_all_but("iceberg-changes")


def test_a_publisher_that_always_loses_asks_to_come_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(**PUBLISHED)
    drop_without_publishing(world, "abc")
    monkeypatch.setattr(world.publications, "replace", lambda *_: False)
    with pytest.raises(ContendedError, match="others keep publishing"):
        publish(world, table)


def test_a_slow_publisher_does_not_undo_a_newer_schema(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    get, hooks = world.tables.get, [lambda: world.alter(table, rename={"note": "remark"})]

    def late(table_id: str) -> Table | None:
        found = get(table_id)
        if hooks:
            hooks.pop()()
            publish(world, table)
        return found

    monkeypatch.setattr(world.tables, "get", late)
    publish(world, table)
    assert b"remark" in world.storage.get(record_of(world, table).metadata)


def test_a_run_that_is_cut_off_is_made_up_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(**PUBLISHED)
    drop_without_publishing(world, "abc")

    def refused(path: str, body: bytes) -> bool:
        raise UnavailableError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(world.storage, "put", refused)
        with pytest.raises(UnavailableError):
            publish(world, table)
    assert record_of(world, table) == PublicationRecord()
    publish(world, table)
    assert published_files(world, table) == shards_of(world, table)


def lose_metadata(world: World, table: Table) -> None:
    world.storage.delete([record_of(world, table).metadata])


def lose_record(world: World, table: Table) -> None:
    world.publications.delete(table.id)


def lose_all(world: World, table: Table) -> None:
    world.storage.delete(sorted(objects(world, table)))


@pytest.mark.parametrize("lose", [lose_metadata, lose_record, lose_all])
def test_what_is_lost_is_published_again_with_the_next_change(
    world: World, lose: Callable[[World, Table], None]
) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    drop(world, "def", at=10)
    before = record_of(world, table).sequence
    lose(world, table)
    drop(world, "xyz", at=20)
    assert published_files(world, table) == shards_of(world, table)
    assert lose is lose_all or record_of(world, table).sequence > before


def test_all_is_published_again_on_request(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    lose_metadata(world, table)
    world.administer(PublishIceberg("again", "letters", all=True))
    world.settle()
    assert published_files(world, table) == shards_of(world, table)
    assert record_of(world, table).again == ""


def test_a_reset_publishes_no_rows(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    world.administer(ReinitialiseTable("reset", "letters"))
    world.settle()
    assert published_files(world, table) == set()


def test_nothing_is_published_while_a_reset_is_under_way(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    before = record_of(world, table)
    world.before_next_commit(world.crash)
    other = Schema(LETTERS.row_keys, LETTERS.sort_keys, ())
    with pytest.raises(Crash):
        world.administer(ReinitialiseTable("reset", "letters", schema=other.to_json()))
    publish(world, table)
    assert record_of(world, table) == before


def test_what_was_published_is_withdrawn_and_deleted_after_the_delay(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    world.administer(SetProperties("off", "letters", {"iceberg": "off"}))
    world.settle()
    assert record_of(world, table).metadata == ""
    assert objects(world, table)
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 1)
    world.sweep(audit=True)
    assert not objects(world, table)


def wait(world: World, seconds: int) -> None:
    world.clock.advance(seconds=seconds)
    world.age_objects(seconds=seconds)


def test_the_audit_withdraws_what_a_default_turned_off(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    kept = world.tables.by_id[table.id]
    world.tables.by_id[table.id] = kept.with_settings({}, {})
    world.sweep(audit=True)
    world.settle()
    assert record_of(world, table).metadata == ""


def test_objects_are_collected_once_no_reader_can_have_found_them(world: World) -> None:
    table = world.create(**PUBLISHED)
    for number in range(3):
        drop(world, "abc", at=number)
        world.clock.advance(seconds=5)
    found = record_of(world, table).metadata
    needed = reachable(world.storage.get, [found])
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 60)
    drop(world, "xyz", at=30)
    world.sweep(audit=True)
    assert needed <= objects(world, table)  # it is old, but readers found it a moment ago
    wait(world, DELAY_SECONDS + 2 * READERS_MS // 1000)
    publish(world, table)
    world.sweep(audit=True)
    newest = record_of(world, table).metadata
    assert newest != found
    assert found not in objects(world, table)
    assert published_files(world, table) == shards_of(world, table)


def test_a_sweep_collects_only_what_is_worth_to_look_for(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    drop(world, "xyz", at=9)
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 1)
    drop(world, "uvw", at=19)
    world.settle()
    before = objects(world, table)
    world.sweep()
    assert objects(world, table) == before
    wait(world, 2 * (DELAY_SECONDS + READERS_MS // 1000))
    world.sweep()
    assert objects(world, table) < before


def test_a_deleted_table_leaves_nothing(world: World) -> None:
    table = world.create(**PUBLISHED)
    drop(world, "abc")
    world.delete(table)
    world.settle()
    assert world.publications.get(table.id) is None
    assert not objects(world, table)


def test_the_metadata_of_a_folder_names_files_by_uris_with_a_scheme(world: World) -> None:
    """A path alone is refused by some readers of Iceberg; people are shown paths."""
    table = world.create(**PUBLISHED)
    drop(world, "ab")
    folder = world.storage.uri
    file = publishing.published_metadata(world.services, table)
    text = world.storage.get(file.path).decode()
    assert file.root == root_uri(world.storage) == f"file://{folder}"
    assert text.count(folder) == text.count(f"file://{folder}") > 0
    shown = [each.uri for each in publishing.published_files(world.services, table)]
    assert shown
    assert all(uri.startswith(f"{folder}/") for uri in shown)
