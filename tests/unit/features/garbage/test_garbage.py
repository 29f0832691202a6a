"""Garbage: counted, kept while anything needs it, and removed from the state once deleted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dormouse.errors import UnavailableError
from dormouse.features.garbage import candidates
from dormouse.messages.stages import GarbageCandidates, encode
from dormouse.state.jobs import Metric
from dormouse.tables.table import Table
from tests.support.queries import query_rows
from tests.support.world import World, letters

DELAY_SECONDS = 600


def compacted(world: World) -> Table:
    """Return a table whose first four shards are garbage, not yet announced as such."""
    table = world.create(gc_delay_seconds=DELAY_SECONDS)
    for number in range(4):
        world.drop(f"letters/{number}.parquet", letters("abc", at=number))
    while any(m.queue != "gc-candidates" for m in world.queue):
        outgoing = world.queue.popleft()
        if outgoing.queue == "gc-candidates":
            world.queue.append(outgoing)
        else:
            world.queue += world.deliver(outgoing)
    assert len(world.state(table).unreferenced) == 4
    return table


def test_what_was_deleted_is_counted_in_the_job_and_the_metrics(world: World) -> None:
    table = compacted(world)
    world.settle()
    (record,) = [r for r in world.tracker.records(table.id) if r.kind == "garbage"]
    assert (record.state, record.files, record.subject) == ("finished", 4, "4 shards")
    assert world.metrics.total(Metric.SHARDS_DELETED) == 4


def test_a_shard_whose_object_could_not_be_deleted_stays_in_the_state(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compacted(world)
    (message,) = world.queue
    world.clock.advance(seconds=DELAY_SECONDS)

    def busy(paths: Sequence[str]) -> None:
        raise UnavailableError("1 of 4 objects were not deleted")

    with monkeypatch.context() as patch:
        patch.setattr(world.storage, "delete", busy)
        with pytest.raises(UnavailableError):
            world.deliver(message)
    assert len(world.state(table).unreferenced) == 4
    world.deliver(message)
    assert not len(world.state(table).unreferenced)
    assert world.shard_objects(table) == set(world.state(table).shards)


def test_who_reads_an_earlier_version_finds_its_shards_until_the_delay_is_over(
    world: World,
) -> None:
    table = compacted(world)
    compacted_ms = world.state(table).time_ms
    world.clock.advance(seconds=1)
    store = world.services.store(table)
    before = store.at(version=world.state(table).version - 2)
    assert before.jobs or len(before.references["root"]) == 4
    (message,) = world.queue
    world.clock.ms = compacted_ms + DELAY_SECONDS * 1000 - 1
    (waiting,) = world.deliver(message)
    assert waiting.delay_seconds == 1
    read = query_rows(
        world.storage,
        table,
        before,
        [],
        now_ms=world.clock.now_ms(),
        scratch=world.services.scratch,
        memory_bytes=64 * 1024 * 1024,
    )
    assert read.reader.read_all().num_rows > 0
    world.clock.ms += 1
    assert world.deliver(waiting) == []
    assert not len(world.state(table).unreferenced)


def test_shards_some_of_which_another_delivery_deleted_are_not_left_to_the_sweep(
    world: World,
) -> None:
    table = compacted(world)
    (message,) = world.queue
    world.queue.clear()
    world.clock.advance(seconds=DELAY_SECONDS)
    some = candidates(table, world.state(table), sorted(world.state(table).unreferenced)[:2])
    world.before_next_commit(lambda: world.deliver(some[0]))
    world.queue += world.deliver(message)
    assert len(world.state(table).unreferenced) == 2
    world.settle()
    assert not len(world.state(table).unreferenced)
    assert world.shard_objects(table) == set(world.state(table).shards)
    found = {r.state for r in world.tracker.records(table.id) if r.kind == "garbage"}
    assert found == {"finished"}


def test_a_hundred_thousand_candidates_travel_in_messages_of_a_thousand(world: World) -> None:
    table = world.create()
    shards = [f"{number:032x}-0" for number in range(100_000)]
    messages = candidates(table, world.state(table), shards)
    assert len(messages) == 100
    named = [
        s for m in messages if isinstance(m.message, GarbageCandidates) for s in m.message.shards
    ]
    assert named == shards
    assert max(len(encode(m.message)) for m in messages) < 64 * 1024


def test_shards_nobody_committed_are_counted_too(world: World) -> None:
    table = world.create(orphan_age_seconds=60)
    world.storage.put(f"{table.id}/data/{0:032x}-0.parquet", b"left by a job that died")
    world.age_objects(seconds=0)
    world.clock.advance(seconds=61)
    world.sweep(audit=True)
    (record,) = [r for r in world.tracker.records(table.id) if r.kind == "garbage"]
    assert (record.state, record.subject) == ("finished", "1 shards nobody committed")
    assert world.metrics.total(Metric.SHARDS_DELETED) == 1
    assert world.shard_objects(table) == set()
