"""The steps of a purge: whatever is lost, late or damaged, one follows until all is done."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from dormouse.errors import CorruptDataError
from dormouse.features import purge_rows as purge_stage
from dormouse.features.compaction import compact
from dormouse.features.purge import load_matches
from dormouse.features.purge_rows import RowMatcher, purge_rows
from dormouse.messages.stages import CompactionJob, PurgeStep
from dormouse.state.jobs import JobEvent, Tracked
from dormouse.state.partitions import ROOT
from dormouse.state.state import AssignJob, ReleaseJob
from dormouse.stored.paths import PURGES, shard_path
from tests.support.depth import is_whole
from tests.support.world import Crash, World, letters
from tests.unit.features.purges import filled, in_table, stored


def test_what_was_assigned_but_never_sent_is_sent_by_the_sweep(world: World) -> None:
    table = filled(world, "ab", "bc", job_retry_seconds=600)
    world.purge(table, "letter = 'b'")
    step = world.queue.popleft()
    world.queue.clear()  # that the table changed
    world.deliver(step)  # dies before it sends
    world.queue += world.deliver(step)
    assert {message.queue for message in world.queue} == {"purges"}
    world.clock.advance(seconds=601)
    world.sweep()
    world.settle()
    assert stored(world, table) == list("ac")


def test_the_sweep_goes_on_with_a_purge_whose_messages_were_lost(world: World) -> None:
    table = filled(world, "ab", "bc", job_retry_seconds=600)
    world.purge(table, "letter = 'b'")
    world.queue.clear()
    world.age_objects(seconds=0)
    world.clock.advance(seconds=601)
    world.sweep()
    world.settle()
    assert stored(world, table) == list("ac")


@pytest.mark.parametrize("patience_seconds", [0, 1, 60])
def test_a_purge_of_a_table_with_little_patience_goes_on_by_itself_until_the_next_sweep(
    world: World, patience_seconds: int
) -> None:
    table = filled(world, "ab", "bc", job_retry_seconds=patience_seconds)
    shards = tuple(sorted(r.shard for r in world.state(table).all_references()))
    world.new_store(table).commit(AssignJob("others", ROOT, shards), generation=0)
    world.purge(table, "letter = 'b'")
    world.queue.pop()  # that the table changed
    for _ in range(20):
        world.clock.advance(seconds=15)
        world.queue += world.deliver(world.queue.popleft())
        assert [message.queue for message in world.queue] == ["purges"]
    world.new_store(table).commit(ReleaseJob("others"), generation=0)
    world.settle()
    assert stored(world, table) == list("ac")


DAYS = 8 if is_whole() else 3


def test_a_purge_that_waits_for_long_is_not_looked_after_by_more_and_more_steps(
    world: World,
) -> None:
    table = filled(world, "ab", "bc")
    shards = tuple(sorted(r.shard for r in world.state(table).all_references()))
    stuck = AssignJob("stuck", ROOT, shards)
    world.new_store(table).commit(stuck, generation=0)
    world.purge(table, "letter = 'b'")
    world.age_objects(seconds=0)
    steps = deque(world.queue)
    for hour in range(24 * DAYS):
        world.clock.advance(seconds=60 * 60)
        world.queue.clear()
        world.sweep(audit=hour % 24 == 0)
        steps += [message for message in world.queue if message.queue == "purges"]
        for _ in range(len(steps)):
            steps += [m for m in world.deliver(steps.popleft()) if m.queue == "purges"]
        assert 1 <= len(steps) <= 5
    world.new_store(table).commit(ReleaseJob("stuck"), generation=0)
    world.queue = steps
    world.settle()
    assert stored(world, table) == list("ac")


def test_a_step_ends_in_time_and_the_next_goes_on_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_stage, "STEP_SECONDS", 0)
    table = filled(world, *("abc" for _ in range(10)))
    purge = world.purge(table, "letter = 'b'")
    world.queue.clear()
    step = PurgeStep(table.id, purge)
    looked_at = []
    for _ in range(3):
        *_, again = purge_rows(world.services, step)
        looked_at.append(len(load_matches(world.services, table.id, purge)))
    assert looked_at == [4, 8, 10]
    assert again.delay_seconds > 0


@pytest.mark.parametrize("place", [0, 5])
def test_a_purge_is_not_finished_by_a_step_that_had_no_time_for_all_shards(
    world: World, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_stage, "STEP_SECONDS", 0)
    table = filled(world, *("ab" if number == place else "ac" for number in range(6)))
    purge = world.purge(table, "letter = 'b'")
    while world.queue:
        outgoing = world.queue.popleft()
        if isinstance(outgoing.message, PurgeStep):
            world.queue += purge_rows(world.services, outgoing.message)
        else:
            world.queue += world.deliver(outgoing)
        world.clock.advance(seconds=outgoing.delay_seconds)
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, record.rows) == ("finished", 1)
    assert stored(world, table) == list("aaaaaaccccc")


def test_a_shard_that_was_merged_and_collected_just_then_is_looked_for_in_its_outputs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, "ab", "bc")
    purge = world.purge(table, "letter = 'b'")
    whole = RowMatcher.count

    def merged_meanwhile(self: RowMatcher, *args: Any, **named: Any) -> int:
        monkeypatch.setattr(RowMatcher, "count", whole)
        store = world.new_store(table)
        shards = tuple(sorted(store.current().shards))
        store.commit(AssignJob("merge", ROOT, shards), generation=0)
        compact(world.services, CompactionJob(table.id, 0, "merge"))
        world.storage.delete([shard_path(table.id, shard) for shard in shards])
        return whole(self, *args, **named)

    monkeypatch.setattr(RowMatcher, "count", merged_meanwhile)
    monkeypatch.setattr(purge_stage, "COUNTED_AT_ONCE", 1)
    world.settle()
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert record.state == "finished"
    assert in_table(world, table) == "ac"


def test_a_purge_whose_last_step_dies_before_its_record_is_recorded_by_the_redelivery(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, "ab")
    purge = world.purge(table, "letter = 'z'")
    step, whole = world.queue[0], world.tracker.record

    def dies(job: Tracked, event: JobEvent, at_ms: int) -> None:
        if event.state == "finished":
            raise Crash
        whole(job, event, at_ms)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(world.tracker, "record", dies)
        world.settle()
    world.queue.append(step)
    world.settle()
    found = world.tracker.get(table.id, purge)
    assert found is not None
    assert found.state == "finished"
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


def test_rows_that_come_after_a_purge_stay_though_its_last_step_died_before_it_was_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, "ab")
    world.purge(table, "letter = 'b'")
    step = world.queue[0]
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr("dormouse.features.purge.delete_purge", lambda *_: world.crash())
        world.settle()
    world.drop("letters/late.parquet", letters("b", at=500))
    world.settle()
    world.queue.append(step)
    world.settle()
    assert in_table(world, table) == "ab"
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


def test_a_damaged_shard_keeps_no_other_from_being_purged(world: World) -> None:
    table = filled(world, "ab", "bc", "bd", "be", "bf", "bg")
    shard = min(world.state(table).shards)
    path = world.folder / "data" / shard_path(table.id, shard)
    sound = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"not a Parquet file at all".ljust(len(sound)))
    purge = world.purge(table, "letter = 'b'")
    step = world.queue.popleft()
    world.queue.clear()  # that the table changed
    with pytest.raises(CorruptDataError, match=shard):
        for message in purge_rows(world.services, cast(PurgeStep, step.message)):
            world.queue.append(message)
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert record.state == "failed"
    assert {message.queue for message in world.queue} == {"compaction-jobs"}
    world.settle()
    path.write_bytes(sound)
    assert len(stored(world, table)) == 7, "one of six is left with what it has"
    world.queue.append(step)
    world.settle()
    assert stored(world, table) == list("acdefg")
