"""copy_table: the copy has each row once and all that the source knows."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse.features.batch_files import look_up_sources
from dormouse.features.checking import check
from dormouse.features.copying import copy_table
from dormouse.features.rebuild import rebuild
from dormouse.keys import encode_key
from dormouse.messages.requests import (
    DeleteTable,
    ReinitialiseTable,
    RenameTable,
    RestoreVersion,
    SetDefaults,
)
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.state.sources import Source
from dormouse.state.state import AssignJob, DisputeReason, DisputeShards, ExtendTree, ReplaceShards
from dormouse.tables.table import Table
from tests.support.depth import examples
from tests.support.world import World, letters
from tests.unit.features.copying.copies import busy_table, copied, copy_to, registered
from tests.unit.features.histories import History


def elsewhere(source: Source, name: str) -> Source:
    """Return the source that the same file is in another bucket, dropped for another table."""
    return replace(source, bucket="elsewhere", key=source.key.replace("letters/", f"{name}/"))


def test_rows_partitions_sources_and_schema_are_copied_and_the_source_stays(
    world: World, there: World
) -> None:
    table = busy_table(world)
    before, objects = world.state(table), sorted(o.path for o in world.storage.list(""))
    rows = world.rows(table)
    report = copy_to(world, table, there)
    copy = registered(there, report.table)
    after = there.state(copy)
    assert there.rows(copy) == rows
    assert copy.schema == table.schema
    assert after.partitions.by_id == before.partitions.by_id
    assert set(after.sources) == set(before.sources)
    assert after.all_source_segments == before.all_source_segments
    assert {(r.partition, r.shard, r.rows) for r in after.all_references()} == {
        (r.partition, r.shard, r.rows) for r in before.all_references()
    }
    assert report.version == before.version
    assert check(there.services, copy).findings == ()
    assert world.state(table).version == before.version
    assert sorted(o.path for o in world.storage.list("")) == objects


@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_at_any_moment_of_any_history_a_copy_has_each_row_once_and_can_be_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    history = History(Random(seed), tmp_path_factory.mktemp("history"))
    for _ in range(60):
        history.step()
    world, table = history.world, history.table
    there = World(tmp_path_factory.mktemp("there"))
    there.clock.advance(seconds=world.clock.now_ms() // 1000)
    newest = registered(world, table)
    rows = world.rows(newest)
    copy = registered(there, copy_to(world, newest, there).table)
    assert there.rows(copy) == rows
    assert check(there.services, copy).findings == ()
    there.pages.lose()
    there.storage.delete([o.path for o in there.storage.list(f"{copy.id}/state/{copy.log}/")])
    rebuild(there.services, copy)
    assert there.rows(registered(there, copy)) == rows


def test_files_that_were_ingested_stay_ingested_in_another_bucket_under_another_name(
    world: World, there: World
) -> None:
    table = world.create()
    sources = [world.drop(f"letters/{i}.parquet", letters("ab", at=i)) for i in range(4)]
    world.settle()
    world.seal(table)
    sources.append(world.drop("letters/5.parquet", letters("z")))
    world.settle()
    copy = copied(world, table, there)
    for name, made in (("copies", copy), ("twice", copied(there, copy, there, "twice"))):
        same = [elsewhere(source, name) for source in sources]
        assert not look_up_sources(there.services, made, same).fresh(same)
        other = [elsewhere(source, "others") for source in sources]
        assert look_up_sources(there.services, made, other).fresh(other) == []
        changed = [replace(source, etag="another") for source in same]
        assert look_up_sources(there.services, made, changed).fresh(changed) == changed


def test_a_file_dropped_for_the_copy_is_known_by_its_content_and_new_ones_are_not(
    world: World, there: World
) -> None:
    table = world.create()
    world.drop("letters/may.parquet", letters("ab"))
    world.settle()
    report = copy_to(world, table, there)
    there.sources.bucket = "elsewhere"
    there.drop("copies/may.parquet", letters("ab"))
    there.settle()
    assert there.names(report.table) == "ab"
    there.drop("copies/june.parquet", letters("ab"))
    there.settle()
    assert there.names(report.table) == "aabb"
    there.drop("copies/may.parquet", letters("c"))
    there.settle()
    assert there.names(report.table) == "aabbc"


def test_properties_have_the_same_effect_whatever_the_defaults_of_the_target_are(
    world: World, there: World
) -> None:
    world.administer(SetDefaults("d1", {"filters": "ageOff(at,1000)", "gc_delay_seconds": 77}))
    there.administer(SetDefaults("d2", {"compaction_files": 3, "state_store": "dynamodb"}))
    table = world.create(split_threshold_rows=500)
    copy = copied(world, table, there)
    assert msgspec.structs.replace(copy.properties, state_store="s3") == table.properties
    assert copy.properties.state_store == "dynamodb"
    assert "split_threshold_rows" in copy.own


def test_a_name_that_is_taken_or_cannot_be_is_refused_and_nothing_is_put(
    world: World, there: World
) -> None:
    table = world.create()
    there.create("copies")
    objects = [o.path for o in there.storage.list("")]
    with pytest.raises(AlreadyExistsError, match="'copies' is there already"):
        copy_to(world, table, there)
    with pytest.raises(InvalidRequestError, match="called"):
        copy_table(world.services, table, world.sources.bucket, there.services, "../copies")
    assert [o.path for o in there.storage.list("")] == objects


def test_a_copy_that_is_complete_is_not_copied_again_and_never_passes_for_a_newer_one(
    world: World, there: World
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    copy = copied(world, table, there)
    report = copy_to(world, table, there)
    assert (report.was_complete, report.copied, report.shards) == (True, 0, 1)
    world.drop("letters/1.parquet", letters("d"))
    world.settle()
    with pytest.raises(AlreadyExistsError, match="an earlier version"):
        copy_to(world, table, there)
    assert there.names(copy) == "abc"


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_after_the_copy_was_deleted_or_renamed_the_table_is_copied_once_more(
    world: World, there: World, how: str
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    first = copied(world, table, there)
    if how == "deleted":
        there.administer(DeleteTable("r1", "copies"))
    else:
        there.administer(RenameTable("r1", "copies", "others"))
    there.settle()
    second = copied(world, table, there)
    assert second.id != first.id
    assert there.names(second) == "abc"


def test_jobs_and_splits_under_way_are_not_copied_and_the_copy_goes_on_by_itself(
    world: World, there: World
) -> None:
    table = world.create(compaction_files=100, split_threshold_rows=10**6)
    for i in range(3):
        world.drop(f"letters/{i}.parquet", letters("abcxyz", at=10 * i))
    world.deliver_all_but("table-changes")
    inputs = tuple(sorted(world.state(table).shards))
    world.new_store(table).commit(AssignJob("job", "root", inputs), generation=0)
    copy = copied(world, table, there)
    assert not there.state(copy).jobs
    there.drop("copies/new.parquet", letters("q", at=99))
    there.settle(twice=True)
    assert there.names(copy) == "aaabbbcccqxxxyyyzzz"


def split_shard(world: World) -> tuple[Table, str]:
    """Return a table whose only shard has rows in both leaves, as estimates."""
    table = world.create(compaction_files=100)
    world.drop("letters/0.parquet", letters("abcxyz"))
    world.deliver_all_but("table-changes")
    (shard,) = world.state(table).shards
    return table, shard


SPLIT = ExtendTree((("root", encode_key(("h",))),))


def test_inputs_of_a_job_that_is_older_than_a_split_are_copied(world: World, there: World) -> None:
    table, shard = split_shard(world)
    world.new_store(table).commit(AssignJob("job", "root", (shard,)), SPLIT, generation=0)
    assert {r.partition for r in world.state(table).all_references()} == {"root"}
    assert there.names(copied(world, table, there)) == "abcxyz"


def test_rows_that_a_job_has_taken_from_a_shard_are_not_copied(world: World, there: World) -> None:
    table, shard = split_shard(world)
    world.new_store(table).commit(SPLIT, generation=0)
    left, _ = world.state(table).partitions.leaves()
    taken = AssignJob("job", left.id, (shard,)), ReplaceShards("job", left.id, (shard,), ())
    for transaction in taken:
        world.new_store(table).commit(transaction, generation=0)
    assert world.names(table) == "xyz"
    assert there.names(copied(world, table, there)) == "xyz"


def test_rows_of_leaves_are_counted_where_the_source_estimates_them(
    world: World, there: World
) -> None:
    table = world.create(compaction_files=100)
    world.drop("letters/0.parquet", letters("abcdxy"))
    world.deliver_all_but("table-changes")
    world.new_store(table).commit(SPLIT, generation=0)
    world.drop("letters/1.parquet", letters("a", at=50))
    world.deliver_all_but("table-changes")
    assert sorted(r.rows for r in world.state(table).all_references()) == [1, 3, 3]
    copy = registered(there, copy_to(world, table, there).table)
    found = there.state(copy).all_references()
    assert sorted((r.rows, r.exact) for r in found) == [(1, True), (2, True), (4, True)]


def test_a_table_that_was_emptied_or_altered_is_copied_as_it_is_now(
    world: World, there: World
) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    world.administer(ReinitialiseTable("r", "letters", delete_partitions=True))
    world.settle()
    world.alter(registered(world, table), add=[Field("extra", Primitive.LONG, nullable=True)])
    world.drop("letters/1.parquet", letters("xy"))
    world.settle()
    newest = registered(world, table)
    copy = copied(world, newest, there)
    assert there.rows(copy) == world.rows(newest)
    assert copy.schema == newest.schema
    there.drop("copies/2.parquet", letters("z"))
    there.settle()
    assert there.names(copy) == "xyz"


def test_a_restored_table_is_copied_with_what_a_rebuild_needs(world: World, there: World) -> None:
    """Its shards are of an earlier generation, and count in the copy as in the source."""
    table = world.create(compaction_files=100)
    for number, text in enumerate(("abc", "xyz")):
        world.drop(f"letters/{number}.parquet", letters(text, at=10 * number))
        world.settle()
    world.seal(table)
    version = world.state(table).version
    world.drop("letters/2.parquet", letters("k"))
    world.settle()
    world.administer(RestoreVersion("r", "letters", version))
    world.drop("letters/3.parquet", letters("m", at=30))
    world.settle()
    copy = copied(world, registered(world, table), there)
    assert there.names(copy) == "abcmxyz"
    there.services.store(copy).destroy()
    rebuild(there.services, copy)
    assert there.names(registered(there, copy)) == "abcmxyz"


def test_a_table_with_disputed_shards_is_not_copied(world: World, there: World) -> None:
    table = world.create()
    world.drop("letters/0.parquet", letters("abc"))
    world.settle()
    disputed = DisputeShards(tuple(world.state(table).shards), DisputeReason.BYTES_DAMAGED, "job")
    world.new_store(table).commit(disputed, generation=0)
    with pytest.raises(InvalidRequestError, match="disputed"):
        copy_to(world, table, there)


def test_a_copy_takes_newer_rows_where_the_clock_is_behind(world: World, there: World) -> None:
    table = world.create(keep="latest", compaction_files=2, compaction_strategy="batch")
    world.clock.advance(seconds=3600)
    for at in range(2):
        world.drop(f"letters/{at}.parquet", letters("ab", at=at))
        world.settle()
    assert [shard.rows for shard in world.state(table).shards.values()] == [2], "merged"
    copy = copied(world, table, there)
    there.drop("copies/new.parquet", letters("b", at=7))
    there.settle()
    assert [row["at"] for row in there.rows(copy)] == [1, 7]
