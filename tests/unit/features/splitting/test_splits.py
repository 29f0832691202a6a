"""Splits over time: trees come to rest, whatever the keys, and no row is lost on the way."""

from __future__ import annotations

import pytest

from dormouse.errors import DamagedShardError
from dormouse.features.planning import plan_table
from dormouse.features.splitting import split_partition
from dormouse.keys import KeyRange, encode_key
from dormouse.messages.stages import PartitionSplits, TableChanged
from dormouse.state.state import SplitPartition
from dormouse.stored.paths import shard_path
from tests.support.damage import rewrite
from tests.support.queries import count_rows
from tests.support.world import World


def rows(*keys: str) -> list[dict[str, object]]:
    return [{"letter": key, "at": at, "note": None} for at, key in enumerate(keys)]


@pytest.mark.parametrize("files", [1, 5])
@pytest.mark.parametrize("state_after", ["ingest", "twice"])
def test_a_hundred_rows_with_threshold_twenty_end_in_a_balanced_tree_at_rest(
    world: World, files: int, state_after: str
) -> None:
    table = world.create(split_threshold_rows=20)
    keys = [f"{number:03d}" for number in range(100)]
    for number in range(files):
        world.drop(f"letters/{number}.parquet", rows(*keys[number::files]))
    world.settle(twice=state_after == "twice")
    state = world.state(table)
    leaves = list(state.partitions.leaves())
    assert len(leaves) == 8
    assert {len([*state.partitions.ancestors(leaf.id)]) for leaf in leaves} == {3}
    assert all(8 <= len(world.rows(table, leaf.range)) < 20 for leaf in leaves)
    assert [row["letter"] for row in world.rows(table)] == keys
    assert list(plan_table(world.services, TableChanged(table.id))) == [], "it is at rest"


def test_skewed_keys_are_split_beside_the_key_that_most_rows_share(world: World) -> None:
    table = world.create(split_threshold_rows=20)
    world.drop("letters/1.parquet", rows("a", *"m" * 60, "n", "z"))
    world.settle()
    state = world.state(table)
    hot = next(
        leaf for leaf in state.partitions.leaves() if leaf.range.contains(encode_key(("m",)))
    )
    assert [row["letter"] for row in world.rows(table, hot.range)] == ["m"] * 60
    assert len(world.rows(table)) == 63
    world.queue += plan_table(world.services, TableChanged(table.id))
    world.settle(limit=3)
    assert world.state(table).version == state.version, "what is asked again changes nothing"


def test_a_leaf_of_one_hot_key_is_left_alone_and_its_job_says_why(world: World) -> None:
    """Shards that span leaves make it look larger than one key, so a split is asked for."""
    table = world.create(
        splits=[("m",), ("n",)],
        split_threshold_rows=20,
        ingest_file_strategy="one_reference_per_leaf",
        compaction_files=100,
        compaction_strategy="batch",
    )
    world.drop("letters/1.parquet", rows("a", *"m" * 60, "z"))
    world.settle()
    state = world.state(table)
    (hot,) = (leaf for leaf in state.partitions.leaves() if leaf.range.contains(encode_key(("m",))))
    assert (hot.range.min, hot.range.max) == (("m",), ("n",))
    record = world.tracker.get(table.id, f"split-{hot.id}")
    assert record is not None
    assert (record.state, record.reason) == ("finished", "not split: all its rows share one key")
    assert len(world.rows(table)) == 62


def test_no_split_is_requested_for_a_table_of_one_key(world: World) -> None:
    table = world.create(split_threshold_rows=20)
    for number in range(3):
        world.drop(f"letters/{number}.parquet", rows(*"m" * 30))
    world.settle()
    assert len(world.state(table).partitions) == 1
    assert list(plan_table(world.services, TableChanged(table.id))) == []


def test_after_splits_references_have_moved_to_the_leaves_whose_rows_their_shards_hold(
    world: World,
) -> None:
    table = world.create(split_threshold_rows=10, compaction_strategy="batch", compaction_files=2)
    for number in range(4):
        world.drop(f"letters/{number}.parquet", rows(*(f"{n:02d}" for n in range(number, 40, 4))))
    world.settle()
    state = world.state(table)
    assert all(state.partitions.get(r.partition).is_leaf for r in state.all_references())
    assert sum(reference.rows for reference in state.all_references()) == 40
    for leaf in state.partitions.leaves():
        shards = [state.shards[r.shard] for r in state.references_in(leaf.id)]
        assert shards and all(leaf.range.overlaps_span(s.low, s.high) for s in shards)
        assert 0 < len(world.rows(table, leaf.range)) < 10
    assert world.shard_objects(table) == set(state.shards)
    assert len(world.rows(table, KeyRange(("10",), ("20",)))) == 10


def test_no_leaf_is_split_by_the_keys_of_another_shard(world: World) -> None:
    table = world.create()
    world.set_online(table, False)
    for name in ("ab", "yz"):
        world.drop(f"letters/{name}.parquet", rows(*name))
        world.settle()
    first, second = (
        world.folder / "data" / shard_path(table.id, shard)
        for shard in sorted(world.state(table).shards)
    )
    rewrite(first, second.read_bytes())
    asked = PartitionSplits(table.id, 0, ("root",), forced=True)
    with pytest.raises(ExceptionGroup) as failed:
        list(split_partition(world.services, asked))
    (error,) = failed.value.exceptions
    assert isinstance(error, DamagedShardError)
    assert error.path == shard_path(table.id, first.stem)


def test_a_split_overtaken_by_another_of_the_same_leaf_is_not_recorded_as_finished(
    world: World,
) -> None:
    table = world.create()
    world.set_online(table, False)
    world.drop("letters/1.parquet", rows(*"abcdef"))
    world.settle()
    store = world.new_store(table)
    other = SplitPartition("root", encode_key(("b",)))
    world.before_next_commit(lambda: store.commit(other, generation=0))
    list(split_partition(world.services, PartitionSplits(table.id, 0, ("root",), forced=True)))
    record = world.tracker.get(table.id, "split-root")
    assert record is not None
    assert record.reason.startswith("not split: ")
    assert [leaf.range.min for leaf in world.state(table).partitions.leaves()] == [(), ("b",)]


def test_rows_that_a_split_only_estimated_are_counted_as_they_are(world: World) -> None:
    table = world.create()
    world.set_online(table, False)
    world.drop("letters/0.parquet", rows("a", "b", "c", "d", "e", "z"))
    world.settle()
    world.new_store(table).commit(SplitPartition("root", encode_key(("m",))), generation=0)
    state = world.state(table)
    assert not all(reference.exact for reference in state.all_references())
    for leaf in state.partitions.leaves():
        counted = count_rows(
            world.storage,
            table,
            state,
            [leaf.range],
            now_ms=0,
            scratch=world.folder / "scratch",
            memory_bytes=2**26,
        )
        assert counted == len(world.rows(table, leaf.range))
