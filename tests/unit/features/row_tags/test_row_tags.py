"""Row tags stay with just the rows that they were given to, whatever becomes of their shards."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.features.copying import copy_table
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import (
    CompactTable,
    DeleteRows,
    IngestFiles,
    RestoreVersion,
    SetProperties,
    SplitPartitions,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.ports import Cache
from dormouse.query.rows import hidden_rows
from dormouse.schema import row_tags
from dormouse.schema.row_tags import tags_of, with_tags
from dormouse.tables.table import Table
from tests.support.instances import InMemory
from tests.support.world import World, letters, letters_file


def drop(world: World, text: str, *, at: int = 0, name: str = "", **tags: str) -> None:
    key = f"letters/{name or text + str(at)}.parquet"
    world.drop(with_tags(key, tags), letters(text, at=at))
    world.settle()


def compact(world: World) -> None:
    world.administer(CompactTable(world.ids.new(), "letters", all=True))
    world.settle()


def delete(world: World, where: str) -> None:
    request = DeleteRows(world.ids.new(), "letters", SelectionMessage(where=where))
    world.administer(request)
    world.settle()


def opened(world: World) -> TableHandle:
    return InMemory.over(world).instance.table("letters")


def found(world: World, where: str) -> str:
    rows = opened(world).query(where=where).read_all().to_pylist()
    return "".join(row["letter"] for row in rows)


def listed(world: World) -> dict[tuple[tuple[str, str], ...], int]:
    return {tuple(each.tags.items()): each.rows for each in opened(world).row_tags()}


def sets(world: World, table: Table) -> list[list[Mapping[str, str]]]:
    state = world.state(table)
    live = [shard for shard in state.shards.values() if state.reference_counts.get(shard.id)]
    texts = sorted((row_tags.texts_of(shard.tags) or ["?"]) for shard in live)
    return [[tags_of(text) for text in each] for each in texts]


@pytest.fixture
def table(world: World) -> Table:
    made = world.create(compaction_files=100)
    drop(world, "abc", day="1", shop="x y")
    drop(world, "cd", at=10, day="2")
    drop(world, "ae", at=20)
    return made


DAY_1 = "tag('day') = '1'"
CASES = {
    DAY_1: "abc",
    "tag('day') IN ('1', '2')": "abccd",
    "tag('day') <> '1'": "cd",
    "tag('day') IS NULL": "ae",
    "tag('day') = '1' AND letter > 'a'": "bc",
    "tag('day') = '2' OR letter = 'e'": "cde",
    "tag('shop') = 'x y'": "abc",
    "tag('shop') LIKE 'x%'": "abc",
    "tag('Day') = '1'": "",
    "NOT (tag('day') = '1')": "cd",
}


def check(world: World) -> None:
    for where, wanted in CASES.items():
        assert found(world, where) == wanted, where
        assert opened(world).count(where=where) == len(wanted), where
    one = (("day", "1"), ("shop", "x y"))
    assert listed(world) == {(): 2, one: 3, (("day", "2"),): 2}
    assert opened(world).query().read_all().column_names == ["letter", "at", "note"]


def test_conditions_find_rows_by_their_tags_before_and_after_compactions_and_splits(
    world: World, table: Table
) -> None:
    check(world)
    assert len(sets(world, table)) == 3
    compact(world)
    assert len(sets(world, table)) == 1
    check(world)
    drop(world, "z", day="2")
    delete(world, "letter = 'z'")
    world.administer(SplitPartitions(world.ids.new(), "letters", forced=True))
    world.settle()
    check(world)
    compact(world)
    check(world)


def test_a_shard_whose_rows_have_the_same_tags_has_no_column_of_them(world: World) -> None:
    table = world.create(compaction_files=100)
    drop(world, "ab", day="1")
    drop(world, "cd", day="1")
    compact(world)
    assert sets(world, table) == [[{"day": "1"}]]
    (file,) = opened(world).files()
    assert "_tags" not in pq.read_schema(file.uri.removeprefix("file://")).names
    drop(world, "z")
    compact(world)
    (file,) = opened(world).files()
    assert "_tags" in pq.read_schema(file.uri.removeprefix("file://")).names


def test_shards_without_a_wanted_tag_are_not_read(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = opened(world).query(where=DAY_1)
    result.read_all()
    assert len(result.reads.shards) == 1
    assert opened(world).query(where="tag('day') = '3'").read_all().num_rows == 0


def test_a_deletion_by_a_tag_hides_just_its_rows_and_compactions_drop_them_unread(
    world: World, table: Table
) -> None:
    before = world.state(table)
    delete(world, DAY_1)
    assert world.names(table) == "acde"
    result = opened(world).query()
    result.read_all()
    assert len(result.reads.shards) == 2
    assert opened(world).count() == 4
    drop(world, "b", at=50, name="later", day="1", shop="x y")
    assert found(world, DAY_1) == "b"
    assert "".join(str(r["letter"]) for r in world.rows(table, state=before)) == "aabccde"
    compact(world)
    assert world.names(table) == "abcde"
    assert world.state(table).deletions == ()
    assert listed(world)[(("day", "1"), ("shop", "x y"))] == 1


def test_a_deletion_by_a_tag_of_some_rows_of_a_shard_leaves_the_others(
    world: World, table: Table
) -> None:
    compact(world)
    delete(world, "tag('day') = '1' AND letter = 'b'")
    assert found(world, DAY_1) == "ac"
    delete(world, "tag('day') IN ('2', '7')")
    assert (world.names(table), opened(world).count()) == ("aace", 4)
    compact(world)
    assert (world.names(table), world.state(table).rows) == ("aace", 4)
    assert found(world, DAY_1) == "ac"


def test_more_different_tags_than_a_shard_lists_are_kept(world: World) -> None:
    table = world.create(compaction_files=100)
    for n in range(40):
        drop(world, "ab", at=n, name=f"f{n}", n=f"{n:030}")
    compact(world)
    assert sets(world, table) == [[{"?": ""}]], "they are not listed"
    assert found(world, f"tag('n') = '{7:030}'") == "ab"
    assert len(listed(world)) == 40
    delete(world, f"tag('n') = '{7:030}'")
    assert opened(world).count() == 78
    compact(world)
    assert (opened(world).count(), len(listed(world))) == (78, 39)


def test_tags_of_a_request_and_of_folders_are_joined_and_contradictions_are_refused(
    world: World,
) -> None:
    table = world.create()
    world.sources.drop("else/where/tag.day=1/a.parquet", letters_file(letters("a")))
    world.sources.drop("else/where/tag.day=2/b.parquet", letters_file(letters("b")))
    tags = {"day": "1", "shop": "x"}
    world.administer(IngestFiles("i", "letters", ("else/where",), tags=tags))
    world.settle()
    assert listed(world) == {(("day", "1"), ("shop", "x")): 1}
    refused = [r for r in world.tracker.kept.values() if r.state == "refused"]
    assert [r.subject for r in refused] == ["else/where/tag.day=2/b.parquet"]
    assert "another value" in refused[0].reason
    with pytest.raises(InvalidRequestError):
        world.administer(IngestFiles("j", "letters", ("else/where",), tags={"a b": "1"}))
    assert world.names(table) == "a"


def test_a_file_whose_folders_say_no_tags_is_refused_and_the_others_of_its_job_are_not(
    world: World,
) -> None:
    table = world.create(ingest_batch_min_files=3)
    for key in ("tag.day=1/a", "tag.day=/b", "tag.x=1/tag.x=2/c"):
        source = world.sources.drop(f"letters/{key}.parquet", letters_file(letters(key[-1])))
        world.notify(source)
    world.settle()
    assert (world.names(table), found(world, DAY_1)) == ("a", "a")
    reasons = [r.reason for r in world.tracker.kept.values() if r.state == "refused"]
    assert len(reasons) == 2 and all("folder of the file" in reason for reason in reasons)


def test_files_of_one_job_keep_their_own_tags(world: World) -> None:
    table = world.create(ingest_batch_min_files=3)
    sources = [
        world.sources.drop(with_tags(f"letters/{c}.parquet", tags), letters_file(letters(c)))
        for c, tags in (("a", {"n": "1"}), ("b", {"n": "2"}), ("c", {}))
    ]
    world.notify(*sources)
    world.settle()
    assert len(world.state(table).shards) == 1
    assert sets(world, table) == [[{}, {"n": "1"}, {"n": "2"}]]
    assert [found(world, f"tag('n') = '{n}'") for n in "12"] == ["a", "b"]


def test_a_copy_a_rebuild_and_a_restored_version_have_the_same_tags(
    world: World, table: Table, tmp_path: Path
) -> None:
    version = world.state(table).version
    opened(world).tag(version, "kept")
    other = World(tmp_path / "other")
    copy_table(world.services, table, world.sources.bucket, other.services, "letters")
    check(other)
    compact(world)
    delete(world, DAY_1)
    drop(world, "x", day="9")
    world.administer(RestoreVersion("r", "letters", version))
    world.settle()
    check(world)
    compact(world)
    newest = world.tables.get(table.id)
    assert newest is not None
    for _ in range(2):
        rebuild(world.services, newest)
        newest = world.tables.get(table.id)
        assert newest is not None
        check(world)
        drop(world, "y", day="5")
        delete(world, "tag('day') = '5'")
        compact(world)


def test_a_purge_leaves_the_tags_of_other_rows(world: World, table: Table) -> None:
    compact(world)
    world.purge(table, "letter = 'a'")
    world.settle()
    assert found(world, "tag('day') IS NOT NULL") == "bccd"
    assert sum(listed(world).values()) == 5


def test_an_export_selects_rows_by_tags(world: World, table: Table) -> None:
    compact(world)
    world.export(table, "out", where="tag('day') = '2'")
    world.settle()
    (file,) = [f for f in world.results.list("out") if f.path.endswith(".parquet")]
    exported = pq.read_table(world.folder / "results" / file.path)
    assert exported.column_names == ["letter", "at", "note"]
    assert exported.column("letter").to_pylist() == ["c", "d"]


def test_the_latest_row_of_a_key_has_its_own_tags_and_no_older_one_comes_back(world: World) -> None:
    world.create(keep="latest", compaction_files=100)
    drop(world, "ab", at=0, day="1")
    drop(world, "b", at=5, day="2")
    for _ in range(2):
        assert found(world, DAY_1) == "a"
        assert found(world, "tag('day') = '2'") == "b"
        assert listed(world) == {(("day", "1"),): 1, (("day", "2"),): 1}
        compact(world)
    delete(world, "tag('day') = '2'")
    for _ in range(2):
        assert found(world, "true") == "a", "the older row of b does not come back"
        compact(world)


def test_rows_that_are_made_of_several_have_no_tags(world: World) -> None:
    world.create(aggregations="first(note)")
    drop(world, "a", day="1")
    drop(world, "b")
    assert found(world, "true") == "b"
    (reason,) = [r.reason for r in world.tracker.kept.values() if r.state == "refused"]
    assert "aggregations" in reason
    with pytest.raises(InvalidRequestError, match="aggregations"):
        found(world, DAY_1)
    with pytest.raises(InvalidRequestError):
        delete(world, DAY_1)


def test_tags_of_a_table_that_aggregates_later_are_given_up_without_harm(
    world: World, table: Table
) -> None:
    delete(world, DAY_1)
    world.administer(SetProperties("p", "letters", {"aggregations": "last(note)"}))
    world.settle()
    assert world.names(table) == "acde" or found(world, "true") == "acde"
    compact(world)
    assert found(world, "true") == "acde"
    assert sets(world, table) == [[{}]]


def test_filters_of_a_table_and_purges_take_no_tags(world: World, table: Table) -> None:
    with pytest.raises(InvalidRequestError, match="not known here"):
        world.administer(SetProperties("p", "letters", {"filters": f"where({DAY_1})"}))
    with pytest.raises(InvalidRequestError, match="not known here"):
        world.purge(table, DAY_1)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_a_row_has_the_tags_of_its_file(world: World, seed: int) -> None:
    chosen = random.Random(seed)
    world.create(compaction_files=100, split_threshold_rows=40)
    kept: dict[tuple[str, int], str] = {}
    for n in range(25):
        match chosen.randrange(5):
            case 0 | 1 | 2:
                text = "".join(chosen.choices("abcdefgh", k=chosen.randrange(1, 6)))
                day = chosen.choice(["", "1", "2", "3"])
                drop(world, text, at=100 * n, name=f"f{n}", **({"day": day} if day else {}))
                kept |= {(c, 100 * n + i): day for i, c in enumerate(text)}
            case 3:
                compact(world)
            case 4:
                day, low = chosen.choice("123"), chosen.choice(["", "d"])
                delete(world, f"tag('day') = '{day}'" + (f" AND letter > '{low}'" if low else ""))
                kept = {k: d for k, d in kept.items() if d != day or (low and k[0] <= low)}
        rows = opened(world).query().read_all().to_pylist()
        assert {(r["letter"], r["at"]) for r in rows} == set(kept)
        for day in "123":
            rows = opened(world).query(where=f"tag('day') = '{day}'").read_all().to_pylist()
            assert {(r["letter"], r["at"]) for r in rows} == {
                k for k, d in kept.items() if d == day
            }
        counts = {dict(tags).get("day", ""): rows for tags, rows in listed(world).items()}
        days = list(kept.values())
        assert counts == {day: days.count(day) for day in {*days}}


def test_readers_of_iceberg_are_told_which_rows_deletions_by_tags_hide(
    world: World, table: Table
) -> None:
    drop(world, "f", at=60, name="f", day="3")
    compact(world)
    drop(world, "gh", at=70)
    for where in ("tag('day') = '3'", "tag('day') IS NULL AND letter = 'g'", "tag('shop') = 'x y'"):
        world.administer(DeleteRows(world.ids.new(), "letters", SelectionMessage(where=where)))
    world.queue.clear()
    state = world.state(table)
    hidden = {
        shard.rows: len(list(hidden_rows(world.storage, table, shard, state.deletions, Cache())))
        for shard in state.shards.values()
        if state.reference_counts.get(shard.id)
    }
    assert hidden == {8: 4, 2: 1}
    assert world.names(table) == "acdeh"


def test_shards_that_a_deletion_hides_as_a_whole_are_dropped_by_the_next_sweep(
    world: World, table: Table
) -> None:
    delete(world, DAY_1)
    assert world.state(table).rows == 7
    world.sweep()
    world.settle()
    assert world.state(table).rows == 4, "no compaction was asked for"
    assert world.state(table).deletions == ()
