"""The flow from a dropped file to a query, with every message delivered twice, late, or lost."""

from __future__ import annotations

import pytest

from dormouse.features.batch_files import batch_files
from dormouse.features.compaction import compact
from dormouse.features.ingest import ingest
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CreateTable, RenameTable
from dormouse.messages.stages import (
    CompactionJob,
    IngestJob,
    OutboundMessage,
    PartitionSplits,
    TableChanged,
)
from dormouse.ports import NO_TABLE
from dormouse.state.state import AssignJob
from tests.support.world import LETTERS, Crash, World, letters, letters_file


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (str(row["letter"]), int(str(row["at"]))))


@pytest.mark.parametrize("twice", [False, True])
def test_every_row_dropped_is_found_once_however_often_messages_come(
    world: World, twice: bool
) -> None:
    table = world.create(split_threshold_rows=8, gc_delay_seconds=60)
    rows = [row for i in range(8) for row in letters("thequickbrownfox", at=100 * i)]
    for i in range(8):
        world.drop(f"letters/{i}.parquet", rows[16 * i : 16 * (i + 1)])
    world.settle(twice=twice)
    assert world.rows(table) == in_order(rows)
    state = world.state(table)
    assert len(list(state.partitions.leaves())) > 4
    assert not len(state.jobs)


def test_shards_that_were_merged_are_deleted_after_the_delay_and_no_other(world: World) -> None:
    table = world.create(gc_delay_seconds=3600)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
    world.settle()
    state = world.state(table)
    assert world.shard_objects(table) == set(state.shards)
    assert len(state.shards) == 1


def test_a_shard_still_referenced_by_the_other_leaf_is_kept(world: World) -> None:
    table = world.create(splits=[("m",)], gc_delay_seconds=0)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("az", at=10 * i))
    world.settle()
    assert world.rows(table) == in_order([r for i in range(4) for r in letters("az", at=10 * i)])
    assert world.shard_objects(table) == set(world.state(table).shards)


def test_a_file_notified_twice_is_ingested_once_even_in_different_jobs(world: World) -> None:
    table = world.create()
    first = world.drop("letters/1.parquet", letters("ab"))
    second = world.drop("letters/2.parquet", letters("cd"))
    world.notify(second, first)
    world.notify(first)
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["a", "b", "c", "d"]


def test_a_job_that_lost_a_source_to_another_job_ingests_the_rest(world: World) -> None:
    table = world.create()
    first = world.sources.drop("letters/1.parquet", letters_bytes("ab"))
    second = world.sources.drop("letters/2.parquet", letters_bytes("cd"))
    (both,) = batch_files(world.services, [first, second])
    (alone,) = batch_files(world.services, [first])
    job = both.message
    assert isinstance(job, IngestJob)

    def other_job_lands() -> None:
        world.deliver(alone)

    world.before_next_commit(other_job_lands)
    assert ingest(world.services, job) == [OutboundMessage("table-changes", TableChanged(table.id))]
    assert [row["letter"] for row in world.rows(table)] == ["a", "b", "c", "d"]
    # Its role deletes no shard, so those of the rejected commit wait for the audit.
    assert len(world.shard_objects(table) - set(world.state(table).shards)) == 1


def test_what_a_rejected_ingest_wrote_never_counts_and_goes_with_the_orphans(world: World) -> None:
    table = world.create()
    sources = [world.sources.drop(f"letters/{n}.parquet", letters_bytes("ab")) for n in range(2)]
    (both,) = batch_files(world.services, sources)
    (alone,) = batch_files(world.services, sources[:1])
    world.before_next_commit(lambda: world.deliver(alone))
    world.deliver(both)
    assert len(world.shard_objects(table)) == 3
    rebuild(world.services, table)
    rebuilt = world.services.tables.get(table.id)
    assert rebuilt is not None
    assert [row["letter"] for row in world.rows(rebuilt)] == ["a", "a", "b", "b"]
    world.age_objects(seconds=table.properties.orphan_age_seconds - 60)
    world.sweep(audit=True)
    assert len(world.shard_objects(table)) == 3, "it may be of a commit yet to come"
    world.age_objects(seconds=table.properties.orphan_age_seconds + 60)
    world.sweep(audit=True)
    assert world.shard_objects(table) == set(world.state(rebuilt).shards)
    assert [row["letter"] for row in world.rows(rebuilt)] == ["a", "a", "b", "b"]


def test_a_split_between_reading_the_tree_and_the_commit_is_harmless(world: World) -> None:
    table = world.create(split_threshold_rows=4)
    world.drop("letters/0.parquet", letters("abcdef"))
    ingested = world.queue.popleft()
    world.deliver(ingested)
    late = world.sources.drop("letters/1.parquet", letters_bytes("aaffzz"))
    (job,) = batch_files(world.services, [late])

    def split() -> None:
        world.deliver(OutboundMessage("partition-splits", PartitionSplits(table.id, 0, ("root",))))

    world.before_next_commit(split)
    world.deliver(job)
    assert len(list(world.state(table).partitions.leaves())) == 2
    assert [r["letter"] for r in world.rows(table)] == sorted("abcdefaaffzz")


def test_a_bad_file_is_refused_with_its_reason_and_its_neighbours_are_ingested(
    world: World,
) -> None:
    table = world.create()
    bad = world.sources.drop("letters/bad.parquet", b"not parquet at all")
    good = world.sources.drop("letters/good.parquet", letters_bytes("xy"))
    world.notify(bad, good)
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["x", "y"]
    refused = world.tracker.get(table.id, bad.id)
    assert refused is not None
    assert (refused.state, refused.subject) == ("refused", "letters/bad.parquet")
    assert "Parquet" in refused.reason
    assert "letters/bad.parquet" in world.sources.objects, "nothing is lost"
    assert set(world.state(table).sources) == {good.id}


def test_a_refused_file_is_ingested_when_it_is_mended_and_dropped_again(world: World) -> None:
    table = world.create()
    world.drop("letters/1.csv", b"letter,when\na,1\n")
    world.settle()
    assert world.rows(table) == []
    world.drop("letters/1.csv", b"letter,at,note\na,1,hello\n")
    world.settle()
    assert world.rows(table) == [{"letter": "a", "at": 1, "note": "hello"}]


def test_a_file_without_rows_is_remembered_and_adds_nothing(world: World) -> None:
    table = world.create()
    source = world.drop("letters/empty.parquet", [])
    world.settle()
    state = world.state(table)
    assert source.id in state.sources
    assert not len(state.shards)


def test_a_file_overwritten_before_it_was_ingested_counts_in_its_new_form_only(
    world: World,
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("a"))
    world.drop("letters/1.parquet", letters("b"))
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == ["b"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("numbers/1.parquet", "no table 'numbers'"),
        ("1.parquet", "names no table"),
        ("letters/\x01.parquet", "control characters"),
    ],
)
def test_a_file_that_belongs_to_no_table_is_recorded_and_stays(
    world: World, key: str, reason: str
) -> None:
    world.create()
    source = world.drop(key, letters("a"))
    assert not world.queue
    refused = world.tracker.get(NO_TABLE, source.id)
    assert refused is not None
    assert reason in refused.reason
    assert key in world.sources.objects


def test_an_offline_table_ingests_but_is_neither_compacted_nor_split(world: World) -> None:
    table = world.create(split_threshold_rows=2)
    world.set_online(table, False)
    for i in range(5):
        world.drop(f"letters/{i}.parquet", letters("abc", at=i))
    world.settle()
    state = world.state(table)
    assert (len(state.shards), len(state.partitions)) == (5, 1)
    world.set_online(table, True)
    world.settle()
    assert len(world.state(table).partitions) > 1


def test_a_compaction_whose_message_was_lost_is_sent_again_by_the_sweep(world: World) -> None:
    table = world.create(job_retry_seconds=600)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("abc", at=i))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue != "compaction-jobs":
            world.queue += world.deliver(outgoing)
    assert len(world.state(table).jobs) == 1
    world.sweep()
    world.settle()
    assert len(world.state(table).jobs) == 1, "the job may still be running"
    world.clock.advance(seconds=601)
    world.sweep()
    world.settle()
    assert len(world.state(table).jobs) == 0
    assert len(world.rows(table)) == 12


def test_garbage_whose_message_was_lost_is_collected_by_the_sweep(world: World) -> None:
    table = world.create(gc_delay_seconds=600)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("abc", at=i))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue != "gc-candidates":
            world.queue += world.deliver(outgoing)
    assert len(world.shard_objects(table)) == 5
    world.clock.advance(seconds=1201)
    world.sweep()
    world.settle()
    assert len(world.shard_objects(table)) == 1


def test_a_file_whose_notification_was_lost_is_found_by_the_audit(world: World) -> None:
    table = world.create()
    world.sources.drop("letters/1.parquet", letters_bytes("a"))
    world.sweep()
    world.settle()
    assert world.rows(table) == []
    world.sweep(audit=True)
    world.settle()
    assert len(world.rows(table)) == 1


def test_files_of_a_deleted_table_do_not_come_back_with_a_new_one_of_its_name(world: World) -> None:
    old = world.create()
    world.drop("letters/1.parquet", letters("a"))
    world.settle()
    queued = world.drop("letters/2.parquet", letters("b"))
    world.delete(old)
    world.settle()
    (refused,) = [r for r in world.tracker.records(NO_TABLE) if r.job_id == queued.id]
    assert "deleted after the file was dropped" in refused.reason
    world.clock.advance(seconds=1)
    world.tracker.kept.clear()
    world.administer(CreateTable("again", "letters", LETTERS.to_json()))
    new = world.tables.named("letters")
    assert new is not None
    world.sweep(audit=True)
    world.settle()
    assert world.rows(new) == []


def test_files_dropped_for_a_table_of_the_same_name_before_are_not_for_a_renamed_one(
    world: World,
) -> None:
    old = world.create("letters")
    world.drop("letters/1.parquet", letters("a"))
    world.settle()
    world.delete(old)
    world.clock.advance(seconds=1)
    new = world.create("newer")
    world.administer(RenameTable("r", "newer", "letters"))
    world.sweep(audit=True)
    world.settle()
    assert world.rows(new) == []
    world.sources.drop("letters/2.parquet", letters_bytes("b"))
    world.sweep(audit=True)
    world.settle()
    assert world.names(new) == "b"


def test_shards_nobody_committed_are_deleted_by_the_audit_when_they_are_old(world: World) -> None:
    table = world.create(orphan_age_seconds=3600)
    world.drop("letters/1.parquet", letters("a"))
    world.settle()
    world.storage.put(f"{table.id}/data/orphan-0.parquet", b"written, never committed")
    world.sweep(audit=True)
    assert "orphan-0" in world.shard_objects(table)
    world.age_objects(seconds=4000)
    world.sweep(audit=True)
    assert world.shard_objects(table) == set(world.state(table).shards)


def test_the_output_of_an_assigned_job_is_kept_for_its_next_run_however_old(world: World) -> None:
    table = world.create(orphan_age_seconds=3600)
    for i in range(2):
        world.drop(f"letters/{i}.parquet", letters("a", at=i))
    world.settle()
    store = world.new_store(table)
    store.commit(AssignJob("job", "root", tuple(store.current().shards)), generation=0)
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        compact(world.services, CompactionJob(table.id, 0, "job"))
    world.age_objects(seconds=4000)
    world.sweep(audit=True)
    world.queue.append(OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "job")))
    world.settle()
    assert len(world.rows(table)) == 2


def test_a_deletion_that_died_half_way_is_ended_by_the_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("a"))
    world.settle()

    def dies(_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(world.storage, "delete", dies)
        world.delete(table)
    world.sweep()
    assert world.tables.get(table.id) is None
    assert not list(world.storage.list(table.id))


def test_a_deleted_table_leaves_nothing_and_its_queued_messages_do_nothing(world: World) -> None:
    table = world.create(split_threshold_rows=4)
    for i in range(4):
        world.drop(f"letters/{i}.parquet", letters("abc", at=i))
    world.deliver(world.queue.popleft())
    world.drop("letters/late.parquet", letters("z"))
    queued = list(world.queue)
    world.delete(table)
    world.queue.extend(queued)
    world.settle(twice=True)
    assert list(world.storage.list("")) == []
    assert world.tables.named("letters") is None


def letters_bytes(text: str) -> bytes:
    return letters_file(letters(text))
