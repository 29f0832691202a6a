"""Readers of Iceberg keep the shards that they may have found; a publisher that is stuck stops
deletion, and a purge reaches what was published.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from dormouse.features.garbage.collect_garbage import MAX_DELAY_SECONDS
from dormouse.features.garbage.garbage import is_following
from dormouse.features.publishing.collect_iceberg import READERS_MS, list_replaced
from dormouse.features.sweep.measure import current_metrics
from dormouse.iceberg.reachable import show_metadata
from dormouse.messages import GarbageCandidates, OutboundMessage, TableChanged
from dormouse.model.metrics import Metric
from dormouse.requests import CollectGarbage
from dormouse.tables.table import Table
from tests.support.world import World, letters
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


def compacted(world: World) -> tuple[Table, list[OutboundMessage]]:
    """Return a published table of which two shards were just compacted, which is not published
    yet, and the messages about these.
    """
    table = world.create(**PUBLISHED, **IN_PAIRS)
    held = without(world, "gc-candidates", "compaction-jobs")
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abc", at=number))
        held += without(world, "gc-candidates", "compaction-jobs")
    assert len(published_files(world, table)) == 2
    world.clock.advance(seconds=5)
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


def test_orphans_stay_while_readers_have_versions_of_a_state_before_a_rebuild(
    world: World,
) -> None:
    table, _ = compacted(world)
    record = record_of(world, table)
    newest = record.newest
    assert newest is not None
    state = world.state(table)
    earlier = replace(newest, state_id=f"{table.id}/earlier", published_ms=0)
    world.publications.kept[table.id] = replace(record, checkpoints=(earlier,))
    assert not is_following(world.services, table, state)
    world.publications.kept[table.id] = replace(
        record, checkpoints=(replace(newest, published_ms=0),)
    )
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


def test_nothing_that_was_published_before_a_purge_is_listed_or_kept_after_it(
    world: World,
) -> None:
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
    return list(show_metadata(world.storage.get(metadata), metadata).versions)


@pytest.mark.parametrize("iceberg", ["on", "off"])
def test_a_planned_table_is_published_if_it_is_to_be(world: World, iceberg: str) -> None:
    table = world.create(iceberg=iceberg)
    sent = world.deliver(OutboundMessage("table-changes", TableChanged(table.id)))
    assert [m.queue for m in sent] == (["iceberg-changes"] if iceberg == "on" else [])
