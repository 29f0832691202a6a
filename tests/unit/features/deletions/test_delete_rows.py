"""Deletions: which rows they hide, from whom, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from time import process_time

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.features.copying import copy_table
from dormouse.features.delete_rows import delete_rows, load_notes, parse_delete
from dormouse.features.rebuild import rebuild
from dormouse.features.requests import Kind
from dormouse.messages.requests import (
    CompactTable,
    DeleteRows,
    PurgeRows,
    ReinitialiseTable,
    RestoreVersion,
    SetProperties,
)
from dormouse.messages.stages import CompactionJob, OutboundMessage, SelectionMessage
from dormouse.schema.schema import Field, parse_schema
from dormouse.schema.types import Primitive
from dormouse.state.rules import MAX_DELETIONS
from dormouse.state.state import AssignJob
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters
from tests.unit.features.rebuild.test_rebuild import lose_state


def drop(world: World, text: str, name: str = "") -> None:
    name = name or text
    world.drop(f"letters/{name}.parquet", letters(text))
    world.settle()


def delete(world: World, where: str = "", *keys: str, request_id: str = "") -> None:
    selection = SelectionMessage(where=where, keys=tuple((key,) for key in keys))
    world.administer(DeleteRows(request_id or world.ids.new(), "letters", selection))
    world.settle()


def compact(world: World) -> None:
    world.administer(CompactTable(world.ids.new(), "letters", all=True))
    world.settle()


@pytest.fixture
def table(world: World) -> Table:
    made = world.create()
    drop(world, "abcdef")
    return made


def test_rows_are_hidden_and_those_that_come_later_are_not(world: World, table: Table) -> None:
    before = world.state(table)
    delete(world, "letter IN ('b', 'd')")
    assert world.names(table) == "acef"
    drop(world, "bx")
    assert world.names(table) == "abcefx"
    delete(world, "", "x", "a")
    assert world.names(table) == "bcef"
    assert "".join(str(row["letter"]) for row in world.rows(table, state=before)) == "abcdef"


def test_a_compaction_leaves_them_out_and_the_deletion_is_forgotten(
    world: World, table: Table
) -> None:
    delete(world, "letter = 'b'")
    (deletion,) = world.state(table).deletions
    assert [note.deletion for note in load_notes(world.services, table.id)] == [deletion]
    compact(world)
    state = world.state(table)
    assert (state.rows, state.deletions, world.names(table)) == (5, (), "acdef")
    drop(world, "b")
    delete(world, "letter = 'c'")
    world.sweep(audit=True)
    (left,) = world.state(table).deletions
    assert [note.deletion for note in load_notes(world.services, table.id)] == [left]
    assert world.names(table) == "abdef"


def test_a_job_that_was_assigned_before_leaves_nothing_out_and_its_output_is_hidden(
    world: World, table: Table
) -> None:
    drop(world, "gh")
    state = world.state(table)
    (leaf,) = state.partitions.leaves()
    inputs = tuple(r.shard for r in state.references_in(leaf.id))
    world.services.store(table).commit(AssignJob("job", leaf.id, inputs), generation=0)
    world.administer(DeleteRows("d", "letters", SelectionMessage(where="letter = 'g'")))
    world.deliver_all_but("compaction-jobs")
    assert world.names(table) == "abcdefh"
    world.queue.append(OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "job")))
    world.settle()
    state = world.state(table)
    assert (state.rows, world.names(table), len(state.deletions)) == (8, "abcdefh", 1)


def test_a_repeated_request_deletes_nothing_that_came_in_between(
    world: World, table: Table
) -> None:
    delete(world, "letter = 'b'", request_id="again")
    drop(world, "b", "more")
    delete(world, "letter = 'b'", request_id="again")
    assert world.names(table) == "abcdef"
    compact(world)
    delete(world, "letter = 'b'", request_id="again")
    assert world.names(table) == "abcdef"


@pytest.mark.parametrize("days", [0, 2])
@pytest.mark.parametrize(
    ("verb", "more"),
    [(DeleteRows, ""), (DeleteRows, " AND now() > DATE '2020-01-01'"), (PurgeRows, "")],
)
def test_a_request_that_died_after_its_commit_hides_nothing_that_came_in_between(
    world: World, table: Table, days: int, verb: type[DeleteRows | PurgeRows], more: str
) -> None:
    """A dead letter is redriven when compactions have applied the deletion, and it is forgotten."""
    request = verb("late", table.name, SelectionMessage(where=f"letter = 'b'{more}"))
    world.after_next_commit(world.crash)
    with pytest.raises(Crash):
        world.administer(request)
    world.late_hooks.clear()
    compact(world)
    assert (world.names(table), world.state(table).deletions) == ("acdef", ())
    world.clock.advance(seconds=days * 24 * 60 * 60 + 60)
    drop(world, "b", "more")
    world.administer(request)
    world.settle()
    assert world.names(table) == "abcdef"


def test_old_deletions_are_applied_by_a_sweep_and_young_ones_are_not(
    world: World, table: Table
) -> None:
    delete(world, "letter = 'b'")
    world.sweep()
    world.settle()
    assert world.state(table).rows == 6
    world.clock.advance(seconds=table.properties.deletion_age_seconds)
    world.sweep()
    world.settle()
    world.sweep()
    world.settle()
    state = world.state(table)
    assert (state.rows, state.deletions, world.names(table)) == (5, (), "acdef")


def test_no_sweep_rewrites_for_a_deletion_if_the_table_says_so(world: World, table: Table) -> None:
    world.administer(SetProperties("p", "letters", {"deletion_age_seconds": 0}))
    delete(world, "letter = 'b'")
    world.clock.advance(seconds=10 * table.properties.deletion_age_seconds)
    world.sweep()
    world.settle()
    assert world.state(table).rows == 6


def test_a_deletion_of_keys_that_no_shard_has_is_forgotten_at_once(
    world: World, table: Table
) -> None:
    delete(world, "letter > 'x'")
    assert world.state(table).deletions == ()


@pytest.mark.parametrize(
    ("where", "keys", "says"),
    [
        ("", (), "either by a condition or by keys"),
        ("letter = 'a'", ("a",), "either by a condition or by keys"),
        ("size > 1", (), "no column 'size'"),
        ("letter = ", (), "line 1"),
        ("letter = 'a'; drop table x", (), "line 1"),
        ("", ("a",) * 1001, "at most 1,000 keys"),
        ("note = '" + "x" * 20_000 + "'", (), "characters"),
        ("wide IS NULL", (), "characters of types"),
    ],
)
def test_what_cannot_be_deleted_is_refused_and_changes_nothing(
    world: World, table: Table, where: str, keys: tuple[str, ...], says: str
) -> None:
    members = ",".join(f"{'m' * 60}{n}:long" for n in range(300))
    (wide,) = parse_schema(f"k:long, wide:struct<{members}>?", ["k"]).values
    world.alter(table, add=[replace(wide, id=0, nested_ids=())])
    version = world.state(table).version
    with pytest.raises(InvalidRequestError, match=says):
        delete(world, where, *keys)
    assert world.state(table).version == version


def test_an_unknown_table_is_refused(world: World) -> None:
    with pytest.raises(NotFoundError):
        delete(world, "letter = 'a'")


def test_keys_that_are_longer_than_those_of_rows_can_be_named(world: World, table: Table) -> None:
    delete(world, f"letter < '{'b' * 5000}'")
    assert world.names(table) == "cdef"
    delete(world, "", *("d" * 100 + str(n) for n in range(40)), "d")
    assert world.names(table) == "cef"


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("int", 2**31 - 1),
        ("long", 2**63 - 1),
        ("time", "23:59:59.999999"),
        ("decimal(18,0)", "9" * 18),
        ("decimal(38,0)", "9" * 38),
    ],
)
def test_of_the_greatest_key_of_a_type_single_rows_are_deleted(
    world: World, kind: str, most: object
) -> None:
    """The end of its range is no value of the type."""
    table = world.create("ends", parse_schema(f"k:{kind}, n:long", ["k"], ["n"]))
    world.drop("ends/1.csv", f"k,n\n{most},1\n{most},2\n{most},3\n".encode())
    world.settle()
    for selection in (SelectionMessage(keys=((most, 2),)), SelectionMessage(where="n = 3")):
        world.administer(DeleteRows(world.ids.new(), "ends", selection))
        world.settle()
    assert [row["n"] for row in world.rows(table)] == [1]


def test_each_of_many_deletions_hides_its_rows(world: World, table: Table) -> None:
    drop(world, "abcdefghijklmnopqrstuvwxyz", "more")
    for letter in "zcbyxapqrwv":
        delete(world, f"letter = '{letter}' AND note IS NOT NULL")
    assert world.names(table) == "ddeeffghijklmnostu"
    compact(world)
    assert world.names(table) == "ddeeffghijklmnostu"


def test_a_note_that_is_there_is_not_put_again(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(world, "letter = 'a'")
    put: list[str] = []
    monkeypatch.setattr(Kind, "put", lambda _, storage, path, body: put.append(path))
    delete(world, "letter = 'b'")
    assert len({path for path in put if "/deletions/" in path}) == 1


def test_only_so_many_deletions_may_wait_to_be_applied(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.state.rules.MAX_DELETIONS", 2)
    delete(world, "letter = 'a'")
    delete(world, "letter = 'b'")
    with pytest.raises(InvalidRequestError, match=f"{MAX_DELETIONS:,} deletions"):
        delete(world, "letter = 'c'")
    compact(world)
    delete(world, "letter = 'c'")
    assert world.names(table) == "def"


def test_of_rows_that_are_aggregated_only_whole_groups_are_deleted(world: World) -> None:
    schema = parse_schema("k:long, n:long", ["k"])
    table = world.create("sums", schema, aggregations="sum(n)")
    with pytest.raises(InvalidRequestError, match="cannot select rows by n"):
        world.administer(DeleteRows("d", "sums", SelectionMessage(where="n = 3")))
    world.drop("sums/1.jsonl", b'{"k": 1, "n": 3}\n{"k": 2, "n": 1}\n')
    world.settle()
    world.administer(DeleteRows("e", "sums", SelectionMessage(where="k = 1")))
    world.settle()
    world.drop("sums/2.jsonl", b'{"k": 1, "n": 4}\n')
    world.settle()
    assert world.rows(table) == [{"k": 1, "n": 4}, {"k": 2, "n": 1}]
    world.administer(CompactTable("c", "sums", all=True))
    world.settle()
    assert world.rows(table) == [{"k": 1, "n": 4}, {"k": 2, "n": 1}]


def test_a_reset_forgets_deletions_and_a_restored_version_has_its_own(
    world: World, table: Table
) -> None:
    delete(world, "letter = 'b'")
    one = world.state(table)
    delete(world, "letter = 'c'")
    world.administer(RestoreVersion("r", "letters", one.version))
    world.settle()
    assert world.names(table) == "acdef"
    world.administer(RestoreVersion("s", "letters", one.version - 1))
    world.settle()
    assert world.names(table) == "abcdef"
    world.administer(ReinitialiseTable("i", "letters"))
    world.settle()
    drop(world, "abc", "after")
    assert world.names(table) == "abc"


def test_a_column_that_a_deletion_names_can_be_renamed_and_dropped(
    world: World, table: Table
) -> None:
    delete(world, "note = 'b1' OR note IS NULL")
    left = world.names(table)
    assert left != "abcdef"
    renamed = world.alter(table, rename={"note": "remark"})
    added = world.alter(renamed, add=[Field("note", Primitive.STRING, nullable=True)])
    assert world.names(added) == left
    dropped = world.alter(added, drop=["remark"])
    assert world.names(dropped) == left
    compact(world)
    assert (world.names(dropped), world.state(dropped).rows) == (left, len(left))


@pytest.mark.parametrize("where", ["note IS NULL", "note = 'b1'", "note IS NOT NULL"])
def test_a_job_that_was_assigned_before_writes_no_shard_without_a_column_that_a_deletion_names(
    world: World, table: Table, where: str
) -> None:
    state = world.state(table)
    (leaf,) = state.partitions.leaves()
    inputs = tuple(r.shard for r in state.references_in(leaf.id))
    world.services.store(table).commit(AssignJob("job", leaf.id, inputs), generation=0)
    delete(world, where)
    left = world.names(table)
    dropped = world.alter(table, drop=["note"])
    world.queue.append(OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "job")))
    world.settle()
    assert world.names(dropped) == left
    compact(world)
    assert (world.names(dropped), world.state(dropped).rows) == (left, len(left))


def test_a_rebuilt_state_hides_what_the_lost_one_hid(world: World, table: Table) -> None:
    delete(world, "letter = 'b'")
    world.clock.advance(seconds=1)
    drop(world, "bx")
    delete(world, "letter = 'x' OR letter = 'c'")
    world.clock.advance(seconds=1)
    drop(world, "xy")
    assert world.names(table) == "abdefxy"
    rebuild(world.services, table)
    rebuilt = world.services.tables.get(table.id)
    assert rebuilt is not None
    assert world.names(rebuilt) == "abdefxy"
    compact(world)
    assert world.names(rebuilt) == "abdefxy"


def test_a_rebuild_does_not_hide_what_a_restore_brought_back(world: World, table: Table) -> None:
    version = world.state(table).version
    world.clock.advance(seconds=1)
    delete(world, "letter = 'b'")
    world.administer(RestoreVersion("r", "letters", version))
    world.settle()
    restored = world.services.tables.get(table.id)
    assert restored is not None
    rebuild(world.services, restored)
    rebuilt = world.services.tables.get(table.id)
    assert rebuilt is not None
    assert world.names(rebuilt) == "abcdef"


@pytest.mark.parametrize("by", ["copy", "rebuild"])
def test_a_rebuild_knows_which_rows_of_a_restored_version_came_after_its_deletions(
    world: World, table: Table, by: str
) -> None:
    """The deletions of that version have the time of the copy or rebuild that the version is of."""
    delete(world, "letter = 'a'")
    world.clock.advance(seconds=1)
    drop(world, "a", "more")
    world.clock.advance(seconds=1)
    if by == "copy":
        report, messages = copy_table(world.services, table, "bucket", world.services, "other")
        world.queue += messages
        table = report.table
    else:
        rebuild(world.services, table)
        table = newest(world, table)
    version = world.state(table).version
    world.administer(SetProperties("p", table.name, {"compaction_files": 100}))
    world.drop(f"{table.name}/later.parquet", letters("x"))
    world.settle()
    world.administer(RestoreVersion("r", table.name, version))
    world.settle()
    world.clock.advance(seconds=1)
    world.drop(f"{table.name}/latest.parquet", letters("y"))
    world.settle()
    rebuild(world.services, newest(world, table))
    assert world.names(newest(world, table)) == "abcdefy"


def newest(world: World, table: Table) -> Table:
    found = world.services.tables.get(table.id)
    assert found is not None
    return found


def test_a_rebuild_refuses_a_damaged_note(world: World, table: Table) -> None:
    delete(world, "letter = 'b'")
    (stored,) = world.storage.list(f"{table.id}/deletions/")
    world.storage.delete([stored.path])
    world.storage.put(stored.path, b"{}")
    with pytest.raises(CorruptDataError, match="note of a deletion"):
        rebuild(world.services, table)


def test_a_copy_has_the_deletions(world: World, table: Table) -> None:
    drop(world, "gh")
    delete(world, "letter = 'g' OR letter = 'a'")
    world.clock.advance(seconds=1)
    drop(world, "a", "more")
    report, _ = copy_table(world.services, table, "bucket", world.services, "other")
    assert world.names(report.table) == "abcdefh"
    lose_state(world, report.table)  # before a sweep has noted what hides rows
    rebuild(world.services, report.table)
    rebuilt = world.services.tables.get(report.table.id)
    assert rebuilt is not None
    assert world.names(rebuilt) == "abcdefh"


def test_a_rebuild_hides_no_rows_that_came_after_many_deletions_of_one_moment(
    world: World, table: Table
) -> None:
    """Numbers of so many commits in a millisecond are ahead of the clock."""
    for n in range(50):
        selection = SelectionMessage(where=f"letter = 'b' AND at < {100 + n}")
        delete_rows(world.services, table, DeleteRows(world.ids.new(), "letters", selection))
    world.clock.ms += 1
    drop(world, "b")
    lose_state(world, table)
    rebuild(world.services, table)
    rebuilt = world.services.tables.get(table.id)
    assert rebuilt is not None
    assert world.names(rebuilt) == "abcdef"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DELETE FROM t", ("t", "true")),
        ('delete from "a ""b" where x = \'where\' ; ', ('a "b', f"{26 * ' '}x = 'where'")),
        ("\n DELETE\nFROM\tt\nWHERE\na\nOR b", ("t", "\n       \n    \t \n     \na\nOR b")),
        ("-- old\nDELETE/**/FROM t; -- WHERE a", ("t", "true")),
        ("delete from t where a = ';--' -- z;\n;", ("t", f"{20 * ' '}a = ';--' -- z;")),
    ],
)
def test_a_delete_in_sql_has_a_table_and_a_condition(text: str, found: tuple[str, str]) -> None:
    assert parse_delete(text) == found


@pytest.mark.parametrize("principal", ["", "local"])
def test_a_delete_in_sql_is_not_for_callers_with_rights_of_their_own(
    principal: str, tmp_path: Path
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("t", "k:long", row_keys=["k"])
        with pytest.raises(InvalidRequestError, match="for this process"):
            instance.sql("DELETE FROM t", principal=principal)


def test_comments_without_an_end_take_no_time_with_their_square() -> None:
    began = process_time()
    assert parse_delete("DELETE FROM t WHERE a " + "/* " * 80_000)[0] == "t"
    assert process_time() - began < 5


def test_a_delete_in_sql_says_where_its_condition_is_wrong(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("t", "k:long", row_keys=["k"])
        with pytest.raises(InvalidRequestError, match="line 2, column 21"):
            instance.sql("-- old\nDELETE FROM t WHERE x = 1;")


@pytest.mark.parametrize(
    "text",
    [
        *("DELETE t", "DELETE FROM t USING u", "DELETE FROM t WHERE", "DELETE FROM tWHERE a"),
        *(
            "DELETE FROM t; DELETE FROM u",
            "DELETE FROM t WHERE a; SELECT 1",
            "DELETE FROM t WHERE -- a",
        ),
    ],
)
def test_another_delete_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="no DELETE"):
        parse_delete(text)


@pytest.mark.parametrize(
    ("kind", "key", "beyond"),
    [("date", -719468, 2**31 - 1), ("timestamp", -719468 * 86_400_000_000, 2**63 - 1)],
)
def test_a_key_that_no_text_can_name_is_refused_where_rows_come_and_where_they_go(
    kind: str, key: int, beyond: int, tmp_path: Path
) -> None:
    (tmp_path / "old.csv").write_text("at\n0000-03-01\n")
    with Instance.open(tmp_path / "mice", background=False) as mice:
        table = mice.create_table("t", f"at:{kind}", row_keys=["at"])
        with pytest.raises(RefusedSourceError, match=r"line 2, column 'at'.*years 1 to 9999"):
            table.ingest(tmp_path / "old.csv")
        for refused, number in product((table.delete, table.purge), (key, beyond)):
            with pytest.raises(InvalidRequestError, match="beyond the years 1 to 9999") as error:
                refused(keys=[number])
            assert "0001-01-01" in error.value.hint
