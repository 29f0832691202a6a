"""rebuild: the new state has every row once, or the rebuild is refused and names the shards."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.errors import ContendedError, CorruptDataError, NotFoundError
from dormouse.features.checking import check
from dormouse.features.compaction import compact
from dormouse.features.rebuild import preview_rebuild, rebuild
from dormouse.keys import encode_key
from dormouse.messages.stages import GarbageCandidates, OutboundMessage
from dormouse.state.state import ExtendTree
from dormouse.stored.paths import RUN_MARKERS, data_prefix, shard_path
from dormouse.tables.table import Table
from tests.support.depth import examples
from tests.support.trees import LEFT
from tests.support.world import Crash, World, letters
from tests.unit.features.histories import History

seen: Counter[str] = Counter()


def lose_state(world: World, table: Table) -> None:
    """Lose the DynamoDB items and the objects of the state."""
    world.pages.lose()
    world.storage.delete([o.path for o in world.storage.list(f"{table.id}/state/")])


def rebuild_now(world: World, table: Table) -> Table:
    _, messages = rebuild(world.services, table)
    world.queue += messages
    found = world.tables.get(table.id)
    assert found is not None
    return found


def without_state(world: World, table: Table) -> Table:
    lose_state(world, table)
    return rebuild_now(world, table)


@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_at_any_moment_of_any_history_a_rebuild_has_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    history = History(Random(seed), tmp_path_factory.mktemp("history"))
    for _ in range(120):
        history.step()
    history.lose_and_rebuild()
    history.settle()
    seen.update(checkpoints=history.checkpoints, refused=history.ambiguous)
    print(f"{seen['checkpoints']} checkpoints, 0 wrong, {seen['refused']} refused as ambiguous")


@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_at_any_moment_of_any_history_with_restores_a_rebuild_has_what_is_not_undone(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    history = History(Random(seed), tmp_path_factory.mktemp("history"), restores=0.06)
    for _ in range(80):
        history.step()
    history.lose_and_rebuild()
    history.settle()


def test_the_rebuilt_state_is_the_lost_one_with_partitions_references_and_sources(
    world: World,
) -> None:
    table = world.create(splits=[("h",), ("p",)])
    for i in range(6):
        world.drop(f"letters/{i}.parquet", letters("thequickbrown", at=100 * i))
    world.settle()
    before = world.state(table)
    after = world.state(without_state(world, table))
    assert after.partitions.by_id == before.partitions.by_id
    assert set(after.sources) == set(before.sources)
    assert {(r.partition, r.shard) for r in after.all_references()} == {
        (r.partition, r.shard) for r in before.all_references()
    }
    assert after.rows == before.rows


def test_rows_of_a_shard_that_was_merged_in_one_of_its_leaves_are_counted(world: World) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2)
    world.drop("letters/0.parquet", letters("abcdxy"))
    world.settle()
    split = ExtendTree((("root", encode_key(("h",))),))
    world.new_store(table).commit(split, generation=0)
    world.drop("letters/1.parquet", letters("a", at=50))
    world.settle()
    rebuilt = without_state(world, table)
    after = world.state(rebuilt)
    assert sorted((r.rows, r.exact) for r in after.all_references()) == [(2, True), (5, True)]
    assert after.rows == len(world.rows(rebuilt)) == 7


def test_splits_that_no_shard_shows_are_repeated_when_due(world: World) -> None:
    table = world.create(split_threshold_rows=8)
    world.drop("letters/0.parquet", letters("abcdefghijklmnop"))
    world.settle()
    leaves = list(world.state(table).partitions.leaves())
    table = without_state(world, table)
    assert len(world.state(table).partitions) == 1
    world.settle()
    assert list(world.state(table).partitions.leaves()) == leaves


def test_a_rebuilt_table_is_consistent_and_can_be_used(world: World) -> None:
    table = world.create(split_threshold_rows=8, gc_delay_seconds=60)
    sources = [world.drop(f"letters/{i}.parquet", letters("abcdefgh", at=10 * i)) for i in range(4)]
    world.settle()
    table = without_state(world, table)
    assert check(world.services, table).findings == ()
    world.notify(*sources)
    world.sweep(audit=True)
    world.drop("letters/9.parquet", letters("xyz", at=90))
    world.settle(twice=True)
    assert len(world.rows(table)) == 4 * 8 + 3
    assert check(world.services, table).findings == ()
    again = without_state(world, table)
    assert len(world.rows(again)) == 4 * 8 + 3


def deliver_without_collection(world: World, table: Table) -> None:
    """Deliver everything but the collection of garbage."""
    while world.queue:
        message = world.queue.popleft()
        if message.queue != "gc-candidates":
            world.queue += world.deliver(message)


def test_shards_that_wait_for_collection_do_not_count_and_are_collected(world: World) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2, gc_delay_seconds=60)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
    deliver_without_collection(world, table)
    assert len(world.shard_objects(table)) == 7
    table = without_state(world, table)
    assert len(world.rows(table)) == 12
    state = world.state(table)
    assert len(state.unreferenced) == 6
    world.clock.advance(seconds=121)
    world.sweep()
    world.settle()
    assert world.shard_objects(table) == set(world.state(table).shards)
    assert len(world.rows(table)) == 12


def test_rows_of_an_object_that_outlived_the_shard_it_was_merged_into_do_not_count(
    world: World,
) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2, gc_delay_seconds=60)
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
    deliver_without_collection(world, table)
    (middle,) = set(world.state(table).shards) - set(world.state(table).unreferenced)
    world.drop("letters/2.parquet", letters("abc", at=20))
    deliver_without_collection(world, table)
    world.clock.advance(seconds=61)
    world.deliver(OutboundMessage("gc-candidates", GarbageCandidates(table.id, 0, (middle,))))
    assert middle not in world.shard_objects(table)
    assert len(world.rows(without_state(world, table))) == 9


def test_a_run_whose_last_shard_was_merged_and_collected_is_known_by_its_successors(
    world: World,
) -> None:
    table = world.create(
        splits=[("m",)], compaction_strategy="batch", compaction_files=2, gc_delay_seconds=60
    )
    world.drop("letters/0.parquet", letters("az"))
    world.settle()
    for i in range(1, 6):
        world.drop(f"letters/{i}.parquet", letters("z", at=10 * i))
        world.settle()
    state = world.state(table)
    (first,) = (r.shard for r in state.references_in(LEFT))
    assert first.replace("-0", "-1") not in world.shard_objects(table)
    table = without_state(world, table)
    assert Counter(str(r["letter"]) for r in world.rows(table)) == {"a": 1, "z": 6}


def test_a_complete_compaction_that_crashed_before_its_commit_counts(world: World) -> None:
    table = world.create(compaction_strategy="batch", compaction_files=2)
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
    while world.queue[0].queue != "compaction-jobs":
        world.queue += world.deliver(world.queue.popleft())
    message = world.queue[0].message
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        compact(world.services, message)  # type: ignore[arg-type]  # it is a compaction job
    table = without_state(world, table)
    assert len(world.state(table).shards) == 3
    world.settle()
    assert len(world.rows(table)) == 6


def test_an_incomplete_ingest_is_left_out_with_the_reason(world: World) -> None:
    table = world.create(splits=[("m",)], ingest_file_strategy="one_file_per_leaf")
    world.drop("letters/0.parquet", letters("az"))
    job = world.queue[0]
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    (_, last) = sorted(o.path for o in world.storage.list(data_prefix(table.id)))
    world.storage.delete([last])
    lose_state(world, table)
    plan = preview_rebuild(world.services, table)
    ((_, reason),) = plan.left_out
    assert "incomplete" in reason
    table = rebuild_now(world, table)
    world.settle()
    assert len(world.rows(table)) == 2


def test_of_two_complete_runs_with_one_source_one_counts(world: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    job = world.queue[0]
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    world.settle()
    assert len(world.shard_objects(table)) == 2
    assert len(world.rows(without_state(world, table))) == 3


def test_uncommitted_runs_that_share_sources_in_part_are_refused_and_named(world: World) -> None:
    table = world.create()
    for name in ("0", "1", "2"):
        world.drop(f"letters/{name}.parquet", letters("abc", at=10 * int(name)))
    one, two, three = world.sources.list("letters/", since_ms=0)
    world.queue.clear()
    for pair in ((one, two), (two, three)):
        world.notify(*pair)
        world.before_next_commit(world.crash)
        with pytest.raises(Crash):
            world.deliver(world.queue.popleft())
    runs = sorted(str(s).removesuffix("-0") for s in world.shard_objects(table))
    before = world.state(table)
    with pytest.raises(CorruptDataError, match=f"{runs[0]}, {runs[1]} share some sources"):
        rebuild(world.services, table)
    assert world.state(table) == before, "what is refused changes nothing"


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_rebuild_names_a_shard_that_cannot_be_read_and_is_refused(
    world: World, damage: str
) -> None:
    table = world.create()
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
    world.settle()
    first, other = sorted(world.state(table).shards)[:2]
    path = shard_path(table.id, first)
    body = world.storage.get(path)
    world.storage.delete([path])
    other_body = world.storage.get(shard_path(table.id, other))
    world.storage.put(path, body[:-1] if damage == "cut" else other_body)
    with pytest.raises(CorruptDataError, match=first):
        rebuild(world.services, table)
    assert world.tables.get(table.id) == table


def test_a_writer_that_was_delayed_until_after_the_rebuild_cannot_commit_to_the_old_log(
    world: World,
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    world.drop("letters/1.parquet", letters("xyz", at=10))
    job = world.queue.popleft()
    world.before_next_commit(lambda: rebuild_now(world, table))
    with pytest.raises(NotFoundError, match="destroyed"):
        world.deliver(job)
    world.queue.append(job)
    world.settle()
    found = world.tables.get(table.id)
    assert found is not None
    assert len(world.rows(found)) == 6


def test_a_rebuild_that_crashed_can_be_repeated(world: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        rebuild(world.services, table)
    assert len(world.rows(rebuild_now(world, table))) == 3


def test_a_rebuild_that_another_overtook_is_refused(world: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    world.before_next_commit(lambda: rebuild_now(world, table))
    with pytest.raises(ContendedError, match="another process rebuilt"):
        rebuild(world.services, table)
    found = world.tables.get(table.id)
    assert found is not None
    assert len(world.rows(found)) == 3


def test_a_rebuilt_table_can_be_deleted_with_all_its_objects(world: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    world.delete(without_state(world, table))
    assert list(world.storage.list("")) == []


def test_a_table_that_never_had_rows_becomes_an_empty_one(world: World) -> None:
    table = without_state(world, world.create(splits=[("m",)]))
    assert world.rows(table) == []
    world.drop("letters/0.parquet", letters("az"))
    world.settle()
    assert len(world.rows(table)) == 2


def purged_of_a_leaf(world: World) -> Table:
    """A table of one ingest in two leaves, of which one leaf is purged of all its rows."""
    table = world.create(splits=[("m",)], ingest_file_strategy="one_file_per_leaf")
    world.drop("letters/0.parquet", letters("az"))
    world.settle()
    world.purge(table, "", "z")
    return table


def test_a_purged_leaf_stays_empty_and_its_neighbour_keeps_its_rows(world: World) -> None:
    table = purged_of_a_leaf(world)
    while world.queue and world.queue[0].queue != "gc-candidates":
        world.queue += world.deliver(world.queue.popleft())
    assert len(world.shard_objects(table)) == 2
    for _ in range(2):  # before the garbage is collected, and after
        table = without_state(world, table)
        assert [row["letter"] for row in world.rows(table)] == ["a"]
        world.settle()
    assert len(world.shard_objects(table)) == 1
    world.sweep(audit=True)  # its source is still known: it is not ingested again
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["a"]


def test_a_run_marker_is_kept_while_the_state_has_anything_that_it_mentions(world: World) -> None:
    table = purged_of_a_leaf(world)
    world.settle()
    assert run_markers(world, table)
    world.clock.advance(seconds=40 * 24 * 3600)
    world.sweep(audit=True)
    assert run_markers(world, table), "the other shard of the run is still there"
    world.purge(table, "", "a")
    world.settle()
    world.clock.advance(seconds=40 * 24 * 3600)
    world.age_objects(seconds=15 * 24 * 3600)
    world.sweep(audit=True)
    world.settle()
    assert run_markers(world, table), "nothing else has its source if the state is lost"
    world.seal(table)
    world.sweep(audit=True)
    assert not run_markers(world, table)
    assert not world.shard_objects(table)


def run_markers(world: World, table: Table) -> list[str]:
    return [stored.path for stored in world.storage.list(RUN_MARKERS.prefix(table.id))]
