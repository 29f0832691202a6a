"""Purges: no matching row is left, in the table or in any object, whatever goes on meanwhile."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.features.administration import administer
from dormouse.features.batch_files import batch_files
from dormouse.features.compaction import compact
from dormouse.features.purge import REQUEST, request_purge
from dormouse.features.purge_rows import prove_purge
from dormouse.features.rebuild import rebuild
from dormouse.keys import encode_key
from dormouse.messages.requests import CompactTable, PurgeRows, ReinitialiseTable
from dormouse.messages.stages import (
    CompactionJob,
    OutboundMessage,
    PartitionSplits,
    SelectionMessage,
)
from dormouse.ports import Storage
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.state.state import AssignJob, ReleaseJob
from dormouse.storage import FolderStorage
from dormouse.stored.decoding import encode_stored
from dormouse.stored.paths import DELETIONS, PURGES
from tests.support.depth import calls_in_turn
from tests.support.instances import InMemory
from tests.support.purges import purge_request
from tests.support.world import Crash, World, letters, letters_file
from tests.unit.features.purges import filled, in_table, stored

SELECTIONS = [("letter = 'b'", ()), ("", ("b",)), ("letter >= 'b' AND note LIKE 'b%'", ())]


@pytest.mark.parametrize(("where", "keys"), SELECTIONS)
@pytest.mark.parametrize("splits", [(), [("b",), ("m",)]])
def test_no_matching_row_is_left_in_the_table_nor_in_any_object(
    world: World, where: str, keys: tuple[str, ...], splits: list[tuple[object, ...]]
) -> None:
    table = filled(world, "abcz", "bbbb", "acxz", "xyb", splits=splits)
    before = world.shard_objects(table)
    purge = world.purge(table, where, *keys)
    world.settle()
    assert in_table(world, table) == "aaccxxyzz"
    assert stored(world, table) == list("aaccxxyzz")
    assert world.shard_objects(table) & before, "shards without such rows stay as they are"
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, record.rows) == ("finished", 6)
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


@pytest.mark.parametrize(("where", "keys"), SELECTIONS)
def test_the_rows_are_hidden_at_once_until_the_purge_ends(
    world: World, where: str, keys: tuple[str, ...]
) -> None:
    table = filled(world, "abcz", "bbbb", "xy")
    clean = world.shard_objects(table)
    world.purge(table, where, *keys)
    assert in_table(world, table) == "acxyz"
    assert len(stored(world, table)) == 10
    world.drop("letters/late.parquet", letters("a", at=500))
    world.settle()
    assert in_table(world, table) == "aacxyz"
    assert world.shard_objects(table) & clean, "no other shard was rewritten to forget it"
    assert not world.state(table).deletions
    assert not list(world.storage.list(DELETIONS.prefix(table.id)))


def test_a_purge_of_many_keys_hides_them_by_several_deletions(world: World) -> None:
    table = filled(world, "abc")
    keys = tuple(f"{n:x>300}" for n in range(200))
    world.purge(table, "", "b", *keys)
    hidden = world.state(table).deletions
    assert (in_table(world, table), len(hidden) > 1) == ("ac", True)
    world.settle()
    assert (stored(world, table), world.state(table).deletions) == (["a", "c"], ())


def test_a_shard_with_references_in_several_partitions_is_rewritten_in_all_of_them(
    world: World,
) -> None:
    table = filled(world, "abyz", "acxz", split_threshold_rows=6)
    world.deliver(OutboundMessage("partition-splits", PartitionSplits(table.id, 0, ("root",))))
    state = world.state(table)
    assert max(state.reference_counts.values()) == 2
    world.purge(table, "letter = 'b'")
    world.settle()
    assert in_table(world, table) == "aacxyzz"
    assert stored(world, table) == list("aacxyzz")


def test_one_job_rewrites_a_shard_of_many_leaves_and_counts_the_rows_of_each(world: World) -> None:
    """Leaves that a compaction took, or holds, are not its: those beside them share few jobs."""
    splits = [(letter,) for letter in "bcdefgh"]
    table = world.create(
        splits=splits, ingest_file_strategy="one_reference_per_leaf", gc_delay_seconds=60
    )
    world.set_online(table, False)
    world.drop("letters/0.parquet", letters("aabbcddefgghh"))
    world.settle()
    (shard,) = world.state(table).shards
    leaf = world.state(table).partitions.leaf_containing
    store = world.new_store(table)
    store.commit(AssignJob("merge", leaf(encode_key(("c",))).id, (shard,)), generation=0)
    compact(world.services, CompactionJob(table.id, 0, "merge"))
    store.commit(AssignJob("busy", leaf(encode_key(("f",))).id, (shard,)), generation=0)
    world.queue.clear()
    world.purge(table, "letter = 'd'")
    world.queue += world.deliver(world.queue.popleft())
    state = world.state(table)
    jobs = [job for job in state.jobs.values() if job.purge_id]
    spans = sorted(str(state.partitions.get(job.partition).range) for job in jobs)
    assert spans == ["[-∞, c)", "[d, e)", "[e, f)", "[g, ∞)"]
    store.commit(ReleaseJob("busy"), generation=0)
    world.settle()
    assert stored(world, table) == list("aabbcefgghh")
    found = Counter[str]()
    for reference in world.state(table).all_references():
        found[reference.partition] += reference.rows
        assert reference.exact
    assert found == Counter(leaf(encode_key((each,))).id for each in "aabbcefgghh")


@pytest.mark.parametrize(
    ("most_shards", "spans"),
    [
        (1, ["[-∞, b)", "[b, c)", "[c, d)", "[d, e)", "[e, f)", "[f, g)", "[g, h)", "[h, ∞)"]),
        (3, ["[-∞, c)", "[c, e)", "[e, g)", "[g, ∞)"]),
        (8, ["[-∞, ∞)"]),
    ],
)
def test_few_jobs_rewrite_the_small_shards_of_many_leaves(
    world: World, monkeypatch: pytest.MonkeyPatch, most_shards: int, spans: list[str]
) -> None:
    """Up to so many bytes as `most_shards` have; each leaf still knows its rows."""
    splits = [(letter,) for letter in "bcdefgh"]
    table = filled(
        world, "aabbccddeeffgghh", splits=splits, ingest_file_strategy="one_file_per_leaf"
    )
    sizes = [shard.size_bytes for shard in world.state(table).shards.values()]
    assert len(sizes) == 8
    monkeypatch.setattr("dormouse.features.purge.JOINED_BYTES", most_shards * max(sizes))
    world.purge(table, f"at IN {tuple(range(0, 16, 2))}")
    world.queue += world.deliver(world.queue.popleft())
    state = world.state(table)
    found = [state.partitions.get(job.partition).range for job in state.jobs.values()]
    assert sorted(map(str, found)) == spans
    world.settle()
    assert stored(world, table) == list("abcdefgh")
    state = world.state(table)
    held = sorted(
        (str(state.partitions.get(r.partition).range), r.rows, r.exact)
        for r in state.all_references()
    )
    assert held == [(str(leaf.range), 1, True) for leaf in state.partitions.leaves()]


def test_the_output_of_a_compaction_that_ran_meanwhile_is_caught(world: World) -> None:
    table = filled(world, "ab", "bc", "cd")
    inputs = tuple(sorted(world.state(table).shards))[:2]
    assigned = AssignJob("compaction", "root", inputs)
    world.services.store(table).commit(assigned, generation=0)
    world.purge(table, "letter = 'b'")
    for _ in range(3):  # it can but wait
        message = world.queue.popleft()
        world.queue += world.deliver(message)
    assert len(stored(world, table)) == 6
    world.queue.append(OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "compaction")))
    world.settle()
    assert stored(world, table) == list("accd")
    assert in_table(world, table) == "accd"


def test_a_split_between_the_assignment_and_the_rewriting_is_harmless(world: World) -> None:
    table = filled(world, "abyz", "abcz", split_threshold_rows=6)
    world.purge(table, "note LIKE 'b%'")
    world.queue += world.deliver(world.queue.popleft())
    assert any(job.purge_id for job in world.state(table).jobs.values())
    world.deliver(OutboundMessage("partition-splits", PartitionSplits(table.id, 0, ("root",))))
    assert len(world.state(table).partitions) == 3
    world.settle()
    assert in_table(world, table) == "aacyzz"
    assert stored(world, table) == list("aacyzz")


def test_rows_that_come_after_a_purge_was_accepted_stay_whenever_it_ends(world: World) -> None:
    table = filled(world, "ab", "bc")
    purge = world.purge(table, "letter = 'b'")
    late = world.sources.drop("letters/late.parquet", letters_file(letters("bd", at=500)))
    (ingest,) = batch_files(world.services, [late])

    def land() -> None:
        world.deliver(ingest)

    world.before_next_commit(land)
    world.settle()
    assert in_table(world, table) == "abcd"
    assert stored(world, table) == list("abcd")
    assert not world.state(table).deletions
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, record.rows) == ("finished", 2)


def test_a_merge_of_rows_from_before_and_after_a_purge_removes_those_from_before(
    world: World,
) -> None:
    table = filled(world, "ab", "bc")
    world.purge(table, "letter = 'b'")
    step = world.queue.popleft()
    world.queue.clear()
    world.drop("letters/late.parquet", letters("bd", at=500))
    world.administer(CompactTable("c", table.name, all=True))
    world.settle()
    assert stored(world, table) == list("abcd")
    world.queue.append(step)
    world.settle()
    assert (in_table(world, table), stored(world, table)) == ("abcd", list("abcd"))
    assert not world.state(table).deletions


def test_a_purge_goes_on_after_a_rebuild_and_later_rows_stay(world: World) -> None:
    table = filled(world, "ab", "bc")
    world.clock.advance(seconds=1)
    world.purge(table, "letter = 'b'")
    steps = list(world.queue)
    world.queue.clear()
    world.clock.advance(seconds=1)
    world.drop("letters/late.parquet", letters("bd", at=500))
    while world.queue and world.queue[0].queue != "table-changes":
        world.queue += world.deliver(world.queue.popleft())
    rebuild(world.services, table)
    table = world.tables.by_id[table.id]
    assert in_table(world, table) == "abcd"
    world.queue += steps
    world.settle()
    assert (in_table(world, table), stored(world, table)) == ("abcd", list("abcd"))


def test_a_purge_that_is_refused_since_too_many_deletions_wait_removes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world, "ab")
    monkeypatch.setattr("dormouse.features.delete_rows.MAX_DELETIONS", 0)
    request = PurgeRows("purge-1", table.name, SelectionMessage(where="letter = 'b'"))
    with pytest.raises(InvalidRequestError, match="deletions"):
        administer(world.services, request)
    assert list(world.storage.list(PURGES.prefix(table.id))) == []
    world.clock.advance(seconds=24 * 3600)
    world.sweep()
    world.settle()
    assert stored(world, table) == list("ab")


def test_rows_ingested_after_a_purge_stay_when_its_request_is_redelivered(world: World) -> None:
    table = filled(world, "ab", "bc")
    request = PurgeRows("purge", table.name, SelectionMessage(where="letter = 'b'"))
    world.administer(request)
    world.settle()
    world.drop("letters/late.parquet", letters("b", at=500))
    world.settle()
    world.clock.advance(seconds=2 * 24 * 3600)  # the state knows its commits no more
    world.delete_job_record("purge")
    world.administer(request)
    world.queue += request_purge(world.services, table, request).messages  # if that is forgotten
    world.settle()
    assert in_table(world, table) == "abc"
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


@pytest.mark.parametrize("twice", [False, True])
def test_a_table_in_use_loses_the_matching_rows_and_no_other(world: World, twice: bool) -> None:
    table = world.create(gc_delay_seconds=60, split_threshold_rows=8)
    for number in range(6):
        world.drop(f"letters/{number}.parquet", letters("thequickbrownfox", at=100 * number))
        if number == 3:
            world.purge(table, "letter IN ('o', 'q')")
    world.settle(twice=twice)
    world.purge(table, "letter IN ('o', 'q')")
    world.settle(twice=twice)
    expected = sorted("thequickbrownfox" * 6)
    kept = [letter for letter in expected if letter not in "oq"]
    assert in_table(world, table) == "".join(kept)
    assert stored(world, table) == kept


def test_a_reset_table_ends_its_purge_and_keeps_what_came_after(world: World) -> None:
    table = filled(world, "ab")
    purge = world.purge(table, "letter = 'b'")
    administer(world.services, ReinitialiseTable("empty", table.name))
    world.clock.advance(seconds=1)
    world.drop("letters/new.parquet", letters("bd", at=900))
    world.settle()
    assert in_table(world, table) == "bd"
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, record.reason) == ("finished", "the table was reset since")
    assert list(world.storage.list(PURGES.prefix(table.id))) == []


def test_a_column_that_means_another_now_ends_the_purge_and_removes_nothing(world: World) -> None:
    table = filled(world, "ab", "bc")
    purge = world.purge(table, "note = 'b1'")
    world.queue += world.deliver(world.queue.popleft())
    fields = [*table.schema.keys, Field("note", Primitive.STRING, nullable=True, id=99)]
    other = Schema(tuple(fields[:1]), tuple(fields[1:2]), tuple(fields[2:]), next_field_id=100)
    world.tables.by_id[table.id] = replace(table, schema=other)
    world.settle()
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, "column 'note' is not the same" in record.reason) == ("failed", True)
    assert stored(world, table) == list("abc"), "the job had begun, for the column of before"
    assert not len(world.state(table).jobs)


@dataclass
class Dying:
    """A storage that kills the process at its `left`-th call from now."""

    inner: FolderStorage
    left: int

    def __getattr__(self, name: str) -> object:
        found = getattr(self.inner, name)
        if name in ("get", "put", "upload", "open", "list", "delete"):
            self.left -= 1
            if self.left == 0:
                raise Crash
        return found


@pytest.mark.parametrize("commits", range(1, 4))
def test_a_death_before_any_commit_is_made_good_by_the_redelivery(
    world: World, commits: int
) -> None:
    table = filled(world, "abb", "bc", splits=[("b",)])
    world.purge(table, "letter = 'b'")
    for _ in range(commits - 1):
        world.before_next_commit(lambda: None)
    world.before_next_commit(world.crash)
    deaths = 0
    while world.queue:
        message = world.queue.popleft()
        world.clock.advance(seconds=message.delay_seconds)
        try:
            world.queue += world.deliver(message)
        except Crash:
            deaths += 1
            world.queue.append(message)
    assert deaths == 1
    assert in_table(world, table) == "ac"
    assert stored(world, table) == list("ac")


def test_a_death_at_any_call_of_the_storage_is_made_good_by_the_redelivery(tmp_path: Path) -> None:
    for call in calls_in_turn(1):
        world = World(tmp_path / str(call))
        table = filled(world, "abb", "bc", splits=[("b",)])
        world.purge(table, "letter = 'b'")
        dying = Dying(world.storage, call)
        alive = world.services
        world.services = replace(alive, storage=cast(Storage, dying))
        while world.queue:
            message = world.queue.popleft()
            world.clock.advance(seconds=message.delay_seconds)
            try:
                world.queue += world.deliver(message)
            except Crash:
                world.services = alive
                world.queue += world.deliver(message)
        assert in_table(world, table) == "ac"
        world.services = alive  # who sweeps is another process
        world.clock.advance(seconds=3600)
        world.sweep()
        world.settle()
        assert stored(world, table) == list("ac")
        if dying.left > 0:
            assert call > 10, "it was to die more often"
            return


def test_a_job_whose_purge_failed_leaves_the_hidden_rows_out(world: World) -> None:
    table = filled(world, "ab", "bc")
    purge = world.purge(table, "letter = 'b'")
    world.queue += world.deliver(world.queue.popleft())
    world.storage.delete([PURGES.path(table.id, purge)])
    world.settle()
    assert not len(world.state(table).jobs)
    assert stored(world, table) == list("ac")


@pytest.mark.parametrize(
    ("where", "keys", "reason"),
    [
        ("", (), "either by a condition or by keys"),
        ("letter = 'a'", (("a",),), "either by a condition or by keys"),
        ("colour = 'red'", (), "colour"),
        ("letter = 1", (), "cannot be compared"),
        ("letter", (), "a condition is needed there"),
        ("1 = 1; DROP TABLE x", (), "; is not allowed there"),
        ("", (("a", 1, 2),), "key 1 has 3 parts"),
        ("", (("a",), (1,)), "key 2: 1 is not a value of letter"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_kept(
    world: World, where: str, keys: tuple[tuple[object, ...], ...], reason: str
) -> None:
    table = filled(world, "ab")
    request = PurgeRows("purge-1", table.name, SelectionMessage(where=where, keys=keys))
    with pytest.raises(InvalidRequestError, match=reason):
        administer(world.services, request)
    assert list(world.storage.list(PURGES.prefix(table.id))) == []
    record = world.job_record("purge-1")
    assert record is not None
    assert record.state == "refused"


@pytest.mark.parametrize(
    "other", [{"columns": ("note",)}, {"ranges": ((("a",), None),)}, {"limit": 1}, {"as_of": 1}]
)
def test_a_purge_that_selects_by_anything_else_too_is_refused(
    world: World, other: dict[str, Any]
) -> None:
    table = filled(world, "ab")
    selection = SelectionMessage(where="letter = 'a'", **other)
    with pytest.raises(InvalidRequestError, match="and nothing else"):
        administer(world.services, PurgeRows("purge-1", table.name, selection))


def test_of_a_table_that_aggregates_only_whole_groups_can_be_purged(world: World) -> None:
    table = filled(world, "ab", "bc", aggregations="last(note)")
    with pytest.raises(InvalidRequestError, match="cannot select rows by at, note"):
        administer(
            world.services,
            PurgeRows("purge-1", table.name, SelectionMessage(where="note = 'b1' OR at > 3")),
        )
    world.purge(table, "letter = 'b'")
    world.settle()
    assert stored(world, table) == list("ac")


def test_a_purge_by_several_keys_counts_and_removes_the_rows_below_each(world: World) -> None:
    table = filled(world, "aabcd")
    request = purge_request(table.schema, keys=(("a",), ("c",)))
    assert prove_purge(world.services, table, request).rows == 3
    world.purge(table, "", "a", "c")
    world.settle()
    assert in_table(world, table) == "bd"
    assert stored(world, table) == list("bd")


def test_a_purge_removes_nan_infinity_and_numbers_between_whole_ones_as_it_says(
    world: World,
) -> None:
    instance = InMemory.over(world).instance
    values = [-math.inf, 0.0, -0.0, math.inf, math.nan, -math.nan, None]
    rows = pa.table({"n": range(len(values)), "g": pa.array(values, pa.float64())})
    table = instance.create_table("g", "n:long, g:double?", row_keys=["n"], split_points=[(5,)])
    left = list(range(len(values)))
    table.ingest(rows).wait()
    for where, removed in [
        ("isnan(g) AND n > 4.5", [5]),
        ("g IN ('-inf', 0, 'NaN')", [0, 1, 2, 4]),
    ]:
        assert table.count(where=where) == len(removed)
        table.purge(where).wait()
        left = [number for number in left if number not in removed]
        assert table.query().to_arrow()["n"].to_pylist() == left


def test_a_purge_that_an_earlier_release_stored_is_not_taken_for_done(world: World) -> None:
    table = filled(world, "ab")
    purge = world.purge(table, "letter = 'b'")
    path = PURGES.path(table.id, purge)
    request = REQUEST.get(world.storage, path)
    assert request is not None
    body = msgspec.to_builtins(request)
    del body["deletions"]
    Earlier = msgspec.defstruct("Earlier", [(name, Any) for name in body])
    world.storage.delete([path])
    world.storage.put(path, encode_stored(REQUEST.name, 1, path, Earlier(**body)))
    with pytest.raises(CorruptDataError, match="is not the request of a purge"):
        world.settle()
    record = world.tracker.get(table.id, purge)
    assert record is None or record.state != "finished"
