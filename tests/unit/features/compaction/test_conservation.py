"""No compaction loses a row silently: not in whole shards, not after splits, not in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from dormouse.errors import ContendedError, InvalidRequestError, InvariantError
from dormouse.features import compaction as compact_stage
from dormouse.features import compaction as compacting
from dormouse.features.checking import Damage, acknowledge, check
from dormouse.features.compaction import compact
from dormouse.keys import KeyRange, encode_key
from dormouse.messages.requests import SetProperties
from dormouse.messages.stages import CompactionJob
from dormouse.query.rows import count_slices
from dormouse.rows import aggregation
from dormouse.rows.predicates import Predicate
from dormouse.shards import parquet
from dormouse.shards.reading import Slice
from dormouse.state.state import (
    AssignJob,
    DisputeReason,
    DisputeShards,
    ResolveDisputes,
    SplitPartition,
    dispute_id,
)
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.trees import part
from tests.support.world import World, letters

WORDS = "abcdefghijklmnop"
Batches = Iterator[pa.RecordBatch]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 3)


@made_once
def split_table(world: World, words: str = WORDS, **properties: object) -> tuple[Table, list[str]]:
    """Return a table of one shard that is split at "i", and a job for each half of it."""
    table = world.create(**properties)
    world.drop("letters/1.parquet", letters(words))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue == "ingest-jobs":
            world.deliver(outgoing)
    store = world.new_store(table)
    (shard,) = store.current().shards
    store.commit(SplitPartition("root", encode_key(("i",))), generation=0)
    jobs = [world.ids.new() for _ in range(2)]
    for job, leaf in zip(jobs, (part("", "i"), part("i")), strict=True):
        store.commit(AssignJob(job, leaf, (shard,)), generation=0)
    return table, jobs


def run(world: World, table: Table, job: str, **options: Any) -> None:
    compact(world.services, CompactionJob(table.id, 0, job), **options)


def without_first_row(batches: Batches) -> Batches:
    for number, batch in enumerate(batches):
        yield batch if number else batch.slice(1)


def with_first_row_twice(batches: Batches) -> Batches:
    for number, batch in enumerate(batches):
        yield batch
        if not number:
            yield batch.slice(batch.num_rows - 1)


@pytest.mark.parametrize("spoil", [without_first_row, with_first_row_twice])
@pytest.mark.parametrize("step", ["merged_rows", "apply_row_rules"])
def test_a_merge_that_loses_or_repeats_one_row_of_a_split_shard_commits_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, spoil: Callable[[Batches], Batches]
) -> None:
    table, jobs = split_table(world)
    before = world.state(table)
    whole = getattr(compacting, step)
    with monkeypatch.context() as patch:
        patch.setattr(compacting, step, lambda *args, **named: spoil(whole(*args, **named)))
        with pytest.raises(InvariantError, match="nothing was committed"):
            run(world, table, jobs[1])
    assert world.state(table) == before
    for job in jobs:  # what the broken run left does not keep a sound one from its end
        run(world, table, job)
    world.settle()
    assert [row["letter"] for row in world.rows(table)] == list(WORDS)
    assert not len(world.state(table).disputed)


def test_an_output_that_lost_a_row_on_its_way_to_storage_is_not_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, jobs = split_table(world)
    before, whole = world.state(table), compacting.write_shards

    def lossy(storage: object, rows: Batches, *args: Any, **named: Any) -> object:
        return whole(storage, without_first_row(rows), *args, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(compacting, "write_shards", lossy)
        with pytest.raises(InvariantError, match="kept 8 and wrote 7; nothing was committed"):
            run(world, table, jobs[1])
    assert world.state(table) == before


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ({"filters": "where(at < 12)"}, (Predicate, "apply")),
        ({"aggregations": "last(note)"}, (aggregation, "aggregate_groups")),
    ],
    ids=str,
)
def test_a_row_that_a_rule_drops_without_counting_it_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch, rule: dict[str, str], step: tuple[object, str]
) -> None:
    table, jobs = split_table(world, words="aabcddefghhijjklmmnopp")
    world.administer(SetProperties("s", table.name, rule))
    whole = getattr(*step)
    for job in jobs:
        with monkeypatch.context() as patch:
            patch.setattr(*step, lambda *args, **named: without_first_row(whole(*args, **named)))
            with pytest.raises(InvariantError, match="nothing was committed"):
                run(world, table, job)
        run(world, table, job)
    world.settle()
    assert not len(world.state(table).disputed)


def test_a_row_that_a_purge_drops_without_counting_it_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters(WORDS))
    world.settle()
    whole = compact_stage.apply_row_rules
    with monkeypatch.context() as patch:
        patch.setattr(compact_stage, "apply_row_rules", lambda *a: without_first_row(whole(*a)))
        world.purge(table, "letter = 'c'")
        with pytest.raises(InvariantError, match="nothing was committed"):
            world.settle()
    assert world.state(table).rows == len(WORDS)
    assert [row["letter"] for row in world.rows(table)] == [w for w in WORDS if w != "c"]


def disputed_table(world: World) -> tuple[Table, str, list[str]]:
    """Return a table whose shard is disputed: the second job and its count lost the same two
    rows."""
    table, jobs = split_table(world)
    (shard,) = world.state(table).shards

    whole = compacting.merged_rows

    def lossy(*args: Any, **named: Any) -> Batches:
        return without_first_row(without_first_row(whole(*args, **named)))

    def few(*_: object) -> tuple[tuple[str, int], ...]:
        return ((shard, 6),)

    run(world, table, jobs[0])
    assert world.state(table).taken[shard][0].rows == 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact_stage, "count_rows_taken", few)
        patch.setattr(compacting, "merged_rows", lossy)
        run(world, table, jobs[1])
    return table, shard, jobs


def test_rows_lost_by_who_counts_as_wrongly_dispute_the_shard_at_its_last_reference(
    world: World,
) -> None:
    table, shard, jobs = disputed_table(world)
    state = world.state(table)
    assert state.disputed[shard].reason is DisputeReason.ROWS_LOST
    assert state.jobs_in_dispute(shard) == sorted(jobs)
    record = world.tracker.get(table.id, dispute_id(shard))
    assert record is not None
    assert (record.state, record.subject) == ("failed", shard)
    named = ", ".join(sorted(jobs))
    assert record.reason == f"rows_lost: jobs took 14 of its 16 rows: {named}"


def test_check_counts_again_and_says_which_job_took_too_few(world: World) -> None:
    table, shard, jobs = disputed_table(world)
    (finding,) = check(world.services, table).findings
    assert (finding.damage, finding.subject) == (Damage.ROWS_LOST, shard)
    assert finding.detail == (
        f"jobs took 14 of its 16 rows: job {jobs[1]} took 6 of 8 in partition "
        f"{part('i')}; correct: {jobs[0]}"
    )


def test_check_of_a_disputed_shard_whose_object_is_gone_still_names_its_jobs(world: World) -> None:
    table, shard, jobs = disputed_table(world)
    world.storage.delete([shard_path(table.id, shard)])
    (finding,) = check(world.services, table).findings
    assert all(job in finding.detail for job in jobs)


def test_what_a_person_acknowledges_is_collected_after_its_delay(world: World) -> None:
    table, shard, _ = disputed_table(world)
    world.queue += acknowledge(world.services, table, [shard])
    assert not check(world.services, table).findings
    assert shard in world.shard_objects(table), "the delay begins with the decision"
    record = world.tracker.get(table.id, dispute_id(shard))
    assert record is not None and record.state == "finished"
    world.settle()
    assert shard not in world.shard_objects(table)
    assert shard not in world.state(table).shards


def test_only_a_dispute_that_there_is_can_be_acknowledged(world: World) -> None:
    table, shard, _ = disputed_table(world)
    with pytest.raises(InvalidRequestError, match="no dispute over shard 'other'"):
        acknowledge(world.services, table, [shard, "other"])
    assert shard in world.state(table).disputed


def test_a_dispute_that_another_process_resolved_meanwhile_is_contended(world: World) -> None:
    table, shard, _ = disputed_table(world)
    store = world.new_store(table)
    other = next(each for each in store.current().shards if each != shard)
    store.commit(DisputeShards((other,), DisputeReason.BYTES_DAMAGED, "job"), generation=0)
    found = store.current().disputed
    both = ResolveDisputes(tuple((each, found[each].since_ms) for each in (shard, other)))
    world.before_next_commit(lambda: store.commit(both, generation=0))
    with pytest.raises(ContendedError, match="nothing was resolved"):
        acknowledge(world.services, table, [shard])


def test_a_disputed_shard_outlives_every_collection(world: World) -> None:
    table, shard, _ = disputed_table(world)
    for _ in range(3):
        world.clock.advance(seconds=10 * 24 * 3600)
        world.settle()
        world.sweep(audit=True)
        world.settle()
    assert shard in world.shard_objects(table)
    assert shard in world.state(table).disputed


@pytest.mark.parametrize(
    ("rule", "rows"), [({"filters": "where(at < 12)"}, 12), ({"aggregations": "last(note)"}, 16)]
)
def test_rows_that_a_rule_removes_are_counted_and_dispute_nothing(
    world: World, rule: dict[str, str], rows: int
) -> None:
    table, jobs = split_table(world, words="aabcddefghhijjklmmnopp")
    world.administer(SetProperties("s", table.name, rule))
    for job in jobs:
        run(world, table, job)
    assert not len(world.state(table).disputed)
    assert world.state(table).rows == rows


def test_counts_at_any_border_are_those_of_the_rows(world: World) -> None:
    table, _ = split_table(world, words="aabbbbbbccddddddefghiijjjklmmmmmmmmmnop")
    (shard,) = world.state(table).shards.values()
    rows = "aabbbbbbccddddddefghiijjjklmmmmmmmmmnop"
    for low in sorted({*rows, "", "0", "bb", "q"}):
        for high in [*sorted({*rows, "bb", "q"}), None]:
            span = KeyRange((low,), None if high is None else (high,))
            if high is None or low < high:
                (found,) = count_slices(world.storage, table, [Slice(shard, span)])
                wanted = sum(low <= letter and (high is None or letter < high) for letter in rows)
                assert found == wanted, (low, high)
