"""Readers of Iceberg keep the shards that they may have found; a publisher that is stuck stops
deletion, and a purge reaches what was published.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from dormouse.errors import CorruptDataError
from dormouse.features.garbage import MAX_DELAY_SECONDS, is_following
from dormouse.features.measure import current_metrics
from dormouse.features.publishing import (
    READERS_MS,
    collect_iceberg,
    list_replaced,
    problems,
    reachable,
)
from dormouse.features.sweep import sweep
from dormouse.iceberg.metadata import MetadataFile
from dormouse.messages.requests import CollectGarbage, SetProperties
from dormouse.messages.stages import GarbageCandidates, OutboundMessage, TableChanged
from dormouse.state.jobs import Metric
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters
from tests.unit.features.publishing.test_publish_iceberg import (
    DELAY_SECONDS,
    PUBLISHED,
    objects,
    publish,
    published_files,
    record_of,
    shards_of,
    wait,
)

IN_PAIRS = {"compaction_strategy": "batch", "compaction_files": 2}


def compacted(world: World, *, later: int = 5) -> tuple[Table, list[OutboundMessage]]:
    """Return a published table of which two shards were just compacted, so many seconds `later`,
    which is not published yet, and the messages about these.
    """
    table = world.create(**PUBLISHED, **IN_PAIRS)
    held = without(world, "gc-candidates", "compaction-jobs")
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abc", at=number))
        held += without(world, "gc-candidates", "compaction-jobs")
    assert len(published_files(world, table)) == 2
    world.clock.advance(seconds=later)
    world.queue = deque(m for m in held if m.queue == "compaction-jobs")
    garbage = without(world, "gc-candidates", "iceberg-changes")
    assert len(world.state(table).unreferenced) == 2
    return table, [m for m in garbage if m.queue == "gc-candidates"]


def without(world: World, *queues: str) -> list[OutboundMessage]:
    """Deliver all messages but those of some queues, and return these."""
    held: list[OutboundMessage] = []
    while world.queue:
        message = world.queue.popleft()
        if message.queue in queues:
            held.append(message)
        else:
            world.clock.advance(seconds=message.delay_seconds)
            world.queue += world.deliver(message)
    return held


def deliver(world: World, messages: list[OutboundMessage]) -> list[OutboundMessage]:
    return [sent for message in messages for sent in world.deliver(message)]


def test_a_shard_stays_for_the_delay_after_readers_found_what_replaced_it(world: World) -> None:
    table, garbage = compacted(world)
    world.clock.advance(seconds=60)
    publish(world, table)
    world.clock.advance(seconds=DELAY_SECONDS - 30)
    again = deliver(world, garbage)
    assert len(world.state(table).unreferenced) == 2
    assert all(m.delay_seconds == MAX_DELAY_SECONDS for m in again)
    assert {m.queue for m in again} == {"gc-candidates"}
    world.clock.advance(seconds=31)
    deliver(world, again)
    assert not len(world.state(table).unreferenced)
    assert published_files(world, table) == shards_of(world, table)


def test_a_stuck_publisher_stops_deletion_and_no_reader(world: World) -> None:
    table, garbage = compacted(world)
    found = published_files(world, table)
    for _ in range(20):
        world.clock.advance(seconds=DELAY_SECONDS)
        garbage = deliver(world, garbage)
        world.queue += garbage
        world.administer(CollectGarbage(world.ids.new(), "letters"))
        garbage = list(without(world, "gc-candidates", "iceberg-changes", "table-changes"))
        garbage = [m for m in garbage if m.queue == "gc-candidates"]
        sent = [m for m in swept(world) if isinstance(m.message, GarbageCandidates)]
        assert sent == []
        assert found <= {o.path for o in world.storage.list(table.id)}
    publish(world, table)
    world.clock.advance(seconds=DELAY_SECONDS)
    assert [m for m in swept(world) if isinstance(m.message, GarbageCandidates)]
    deliver(world, garbage)
    assert not len(world.state(table).unreferenced)


def swept(world: World) -> list[OutboundMessage]:
    """Return what a sweep sends."""
    world.sweep()
    sent = list(world.queue)
    world.queue.clear()
    return sent


def test_orphans_stay_while_readers_have_versions_of_a_state_before_a_rebuild(world: World) -> None:
    table, _ = compacted(world)
    record = record_of(world, table)
    newest = record.newest
    assert newest is not None
    state = world.state(table)
    earlier = replace(newest, state_id=f"{table.id}/earlier", published_ms=0)
    before = replace(record, checkpoints=(earlier,))
    assert world.publications.replace(table.id, record, before)
    assert not is_following(world.services, table, state)
    again = replace(record, checkpoints=(replace(newest, published_ms=0),))
    assert world.publications.replace(table.id, before, again)
    assert is_following(world.services, table, state)
    world.publications.delete(table.id)
    assert is_following(world.services, table, state)


def test_how_far_readers_are_behind_is_measured(world: World) -> None:
    table, _ = compacted(world)
    world.clock.advance(seconds=100)
    world.drop("letters/later.parquet", letters("xyz"))
    without(world, "iceberg-changes", "gc-candidates", "compaction-jobs")
    assert current_metrics(world.services, table)[Metric.ICEBERG_LAG_SECONDS] == 100
    publish(world, table)
    assert current_metrics(world.services, table)[Metric.ICEBERG_LAG_SECONDS] == 0
    world.clock.advance(seconds=100)
    assert current_metrics(world.services, table)[Metric.ICEBERG_LAG_SECONDS] == 0


def test_a_table_that_is_not_published_has_no_lag(world: World) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    assert Metric.ICEBERG_LAG_SECONDS not in current_metrics(world.services, table)


def test_nothing_that_was_published_before_a_purge_is_listed_or_kept_after_it(world: World) -> None:
    table = world.create(**PUBLISHED)
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    before = objects(world, table)
    purge = world.purge(table, "letter = 'b'")
    held = without(world, "iceberg-changes", "gc-candidates")
    assert record_of(world, table).again == "purged", purge
    assert set(list_replaced(world.services, table)) == objects(world, table)
    world.queue += held
    world.settle()
    assert record_of(world, table).again == ""
    assert before <= set(list_replaced(world.services, table))
    assert published_files(world, table) == shards_of(world, table)
    newest = record_of(world, table).metadata
    assert len(set(list_of_versions(world, newest))) == 1
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 1)
    publish(world, table)
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 1)
    world.sweep(audit=True)
    assert not before & objects(world, table)
    assert list_replaced(world.services, table) == []


def list_of_versions(world: World, metadata: str) -> list[int]:
    return list(MetadataFile.read(metadata, world.storage.get).versions)


@pytest.mark.parametrize("iceberg", ["on", "off"])
def test_a_planned_table_is_published_if_it_is_to_be(world: World, iceberg: str) -> None:
    table = world.create(iceberg=iceberg)
    sent = world.deliver(OutboundMessage("table-changes", TableChanged(table.id)))
    assert [m.queue for m in sent] == (["iceberg-changes"] if iceberg == "on" else [])


def orphans_of_a_crash(world: World, table: Table) -> set[str]:
    """Have a publisher die before it replaces the record; return what it has put."""
    before = objects(world, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.publications, "replace", lambda *_: world.crash())
        with pytest.raises(Crash):
            publish(world, table)
    return objects(world, table) - before


def long_published(world: World) -> Table:
    """Return a table with a change that is not published, whose metadata is old."""
    table = world.create(**PUBLISHED)
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    world.drop("letters/2.parquet", letters("def", at=10))
    without(world, "iceberg-changes", "gc-candidates", "compaction-jobs")
    return table


def age(world: World) -> None:
    wait(world, DELAY_SECONDS + READERS_MS // 1000 + 1)


def test_what_a_publisher_relies_on_stays_though_another_put_it_long_ago(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = long_published(world)
    assert orphans_of_a_crash(world, table)
    age(world)
    get, rivals = world.publications.get, [lambda: publish(world, table)]

    def raced(table_id: str) -> object:
        found = get(table_id)
        if rivals:
            rivals.pop()()
        return found

    monkeypatch.setattr(world.publications, "get", raced)
    collect_iceberg(world.services, table, at_once=True)
    assert not rivals
    assert list(problems(world.services, table)) == []


@pytest.mark.parametrize("then", ["published", "withdrawn"])
def test_what_a_publisher_that_died_has_put_is_deleted_after_another_has_published(
    world: World, then: str
) -> None:
    table = long_published(world)
    orphans = orphans_of_a_crash(world, table)
    if then == "withdrawn":
        world.administer(SetProperties("off", "letters", {"iceberg": "off"}))
    else:
        world.drop("letters/3.parquet", letters("x", at=20))
    world.settle()
    age(world)
    publish(world, table)
    age(world)
    collect_iceberg(world.services, table, at_once=True)
    newest = record_of(world, table).metadata
    assert objects(world, table) == reachable(world.storage.get, [newest] if newest else [])
    assert (not newest) == (then == "withdrawn")
    assert orphans


def test_a_slow_publisher_whose_metadata_names_what_is_gone_stops_no_collection(
    world: World,
) -> None:
    table = long_published(world)
    before = objects(world, table)
    newest = record_of(world, table).metadata
    world.drop("letters/3.parquet", letters("xyz", at=20))
    world.settle()
    age(world)
    publish(world, table)
    age(world)
    late = newest.replace("metadata.json", "late.metadata.json")
    world.storage.put(late, world.storage.get(newest).replace(b"-snap-", b"-gone-"))
    world.sweep(audit=True)
    assert newest in before - objects(world, table)
    assert late in objects(world, table)
    assert list(problems(world.services, table)) == []


def test_metadata_that_was_current_for_a_moment_is_kept_for_its_readers(world: World) -> None:
    table = world.create(**PUBLISHED)
    metadata = []
    for number in range(4):
        world.drop(f"letters/{number}.parquet", letters("abc", at=number))
        without(world, "gc-candidates", "compaction-jobs")
        metadata.append(record_of(world, table).metadata)
        world.clock.advance(seconds=1)
    checkpoints = {each.metadata for each in record_of(world, table).checkpoints}
    left_out = [each for each in metadata if each not in checkpoints]
    assert left_out and metadata.index(left_out[0]) > 0
    world.age_objects(seconds=DELAY_SECONDS + READERS_MS // 1000 + 1)  # put long before
    collect_iceberg(world.services, table, at_once=True)
    assert set(left_out) <= objects(world, table)


def test_a_sweep_does_all_else_though_what_is_published_is_damaged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = compacted(world)
    world.drop("letters/missed.parquet", letters("m", at=30))
    world.queue.clear()  # its message is lost

    def damaged(table_id: str) -> None:
        raise CorruptDataError("the record is damaged")

    monkeypatch.setattr(world.publications, "get", damaged)
    world.clock.advance(seconds=2 * DELAY_SECONDS)
    sent = []
    with pytest.raises(CorruptDataError, match="the record"):
        for message in sweep(world.services, table, audit=True):
            sent.append(message)
    assert "ingest-jobs" in {message.queue for message in sent}


def test_a_shard_stays_that_was_replaced_in_the_millisecond_of_the_published_version(
    world: World,
) -> None:
    table, garbage = compacted(world, later=0)
    world.clock.advance(seconds=2 * DELAY_SECONDS)
    deliver(world, garbage)
    assert len(world.state(table).unreferenced) == 2
    assert published_files(world, table) <= {o.path for o in world.storage.list(table.id)}
