"""Members of structs that come, go and get other names: rows from before have what is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.messages.requests import DeleteRows
from dormouse.messages.stages import CompactionJob, OutboundMessage, SelectionMessage
from dormouse.schema.schema import Field, parse_schema
from dormouse.schema.types import parse_type_text
from dormouse.state.state import AssignJob
from dormouse.tables.table import Table
from tests.support.world import World
from tests.unit.features.tables.test_evolved_types import compact, drop, keys, read

SHAPES = [
    ("struct<a:int?,b:string?>?", "p", lambda each: each),
    ("list<struct<a:int?,b:string?>>?", "p.element", lambda each: [each, None]),
    ("map<string,struct<a:int?,b:string?>>?", "p.value", lambda each: [("x", each), ("y", None)]),
    (
        "list<map<string,list<struct<a:int?,b:string?>>>>?",
        "p.element.value.element",
        lambda each: [[("x", [each])], []],
    ),
]


def made(world: World, schema: str, **properties: Any) -> Table:
    return world.create("t", parse_schema(schema, ["k"]), gc_delay_seconds=0, **properties)


def new(name: str, kind: str) -> Field:
    return Field(name, parse_type_text(kind), nullable=True)


def values(world: World, table: Table) -> list[object]:
    found = read(world, table)["p"].to_pylist()
    assert read(world, table, look_up=False)["p"].to_pylist() == found
    return found


@pytest.mark.parametrize(("kind", "path", "within"), SHAPES)
def test_rows_from_before_have_the_values_of_the_members_they_had(
    world: World, kind: str, path: str, within: Any
) -> None:
    table = made(world, f"k:int, p:{kind}")
    old = within({"a": 1, "b": "x"})
    drop(world, table, "1", [{"k": 1, "p": old}, {"k": 2, "p": None}])
    table = world.alter(
        table,
        drop=[f"{path}.a"],
        rename={f"{path}.b": "c"},
        add=[new(f"{path}.a", "int"), new(f"{path}.d", "list<string>")],
    )
    drop(world, table, "2", [{"k": 3, "p": within({"a": 7, "c": "y", "d": ["z"]})}])
    table = world.alter(table, types={f"{path}.a": "long"})
    drop(world, table, "3", [{"k": 4, "p": within({"a": 2**40, "c": "y", "d": None})}])
    expected = [
        within({"c": "x", "a": None, "d": None}),
        None,
        within({"c": "y", "a": 7, "d": ["z"]}),
        within({"c": "y", "a": 2**40, "d": None}),
    ]
    assert values(world, table) == expected
    assert keys(world, table, "p IS NOT NULL AND k > 1", look_up=False) == [3, 4]
    compact(world, table)
    assert len(world.state(table).shards) == 1
    assert values(world, table) == expected


def test_a_condition_reads_a_member_under_the_name_it_has_now(world: World) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>?")
    drop(world, table, "1", [{"k": 1, "p": {"a": 1, "b": 2}}, {"k": 2, "p": None}])
    table = world.alter(table, rename={"p.a": "b", "p.b": "a"})
    drop(world, table, "2", [{"k": 3, "p": {"b": 1, "a": 3}}])
    for look_up in (False, True):
        assert keys(world, table, "p['b'] = 1", look_up=look_up) == [1, 3]
        assert keys(world, table, "p['a'] = 2", look_up=look_up) == [1]
        assert keys(world, table, "p['a'] IS NULL", look_up=look_up) == [2]


def delete(world: World, where: str) -> None:
    world.administer(DeleteRows(world.ids.new(), "t", SelectionMessage(where=where)))
    world.settle()


CHANGES: list[Mapping[str, Any]] = [
    {"rename": {"p.a": "z"}},
    {"rename": {"p.a": "b", "p.b": "a"}},
    {"drop": ["p.a"]},
    {"drop": ["p.a"], "add": [new("p.a", "int")]},
    {"types": {"p.a": "long"}},
    {"add": [new("p.c", "int")]},
    {"drop": ["p"]},
    {"drop": ["p"], "add": [new("p", "struct<a:int?>")]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_rows_deleted_by_a_member_stay_deleted_whatever_becomes_of_it(
    world: World, change: Mapping[str, Any]
) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>?")
    old = [{"k": k, "p": {"a": k, "b": 9}} for k in (1, 2, 3)]
    drop(world, table, "1", old)
    delete(world, "p['a'] = 2")
    table = world.alter(table, **change)
    drop(world, table, "2", [{"k": 4}])
    for look_up in (False, True):
        assert keys(world, table, look_up=look_up) == [1, 3, 4]
        assert read(world, table, look_up=look_up).schema.names == [
            f.name for f in table.schema.fields
        ]
    compact(world, table)
    assert keys(world, table) == [1, 3, 4]
    assert not world.state(table).deletions


@pytest.mark.parametrize(
    ("kind", "where", "path", "within"),
    [
        ("list<struct<a:int?,b:int?>>?", "p[1]['a'] = 2", "p.element", lambda each: [each]),
        ("map<string,struct<a:int?,b:int?>>?", "p['x']['a'] = 2", "p.value", lambda e: [("x", e)]),
    ],
)
@pytest.mark.parametrize("change", ["drop", "rename", "widen"])
def test_rows_deleted_by_a_member_within_a_list_or_map_stay_deleted(
    world: World, kind: str, where: str, path: str, within: Any, change: str
) -> None:
    table = made(world, f"k:int, p:{kind}")
    drop(world, table, "1", [{"k": k, "p": within({"a": k, "b": 9})} for k in (1, 2, 3)])
    delete(world, where)
    changes: dict[str, Any] = {
        "drop": {"drop": [f"{path}.a"]},
        "rename": {"rename": {f"{path}.a": "b", f"{path}.b": "a"}},
        "widen": {"types": {f"{path}.a": "long"}},
    }
    table = world.alter(table, **changes[change])
    left = {"drop": {"b": 9}, "rename": {"b": 1, "a": 9}, "widen": {"a": 1, "b": 9}}[change]
    for look_up in (False, True):
        found = read(world, table, look_up=look_up)
        assert found["k"].to_pylist() == [1, 3]
        assert found["p"][0].as_py() == within(left)
    compact(world, table)
    assert keys(world, table) == [1, 3]
    assert values(world, table)[0] == within(left)


def test_a_purge_by_a_member_removes_no_row_by_another_one(world: World) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>?")
    drop(world, table, "1", [{"k": k, "p": {"a": k, "b": 3 - k}} for k in (1, 2)])
    purge = world.purge(table, "p['a'] = 2")
    world.queue += world.deliver(world.queue.popleft())
    table = world.alter(table, rename={"p.a": "b", "p.b": "a"})
    world.settle()
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert (record.state, "'p' is not the same" in record.reason) == ("failed", True)
    assert keys(world, table) == [1], "what was to be purged stays hidden"


def test_a_purge_by_a_member_removes_rows_from_before_and_after(world: World) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:string?>?")
    drop(world, table, "1", [{"k": k, "p": {"a": k, "b": "secret"}} for k in (1, 2)])
    table = world.alter(table, rename={"p.b": "c"}, types={"p.a": "long", "k": "long"})
    drop(world, table, "2", [{"k": 2**40, "p": {"a": 2**40, "c": "secret"}}, {"k": 3, "p": None}])
    purge = world.purge(table, "p['c'] = 'secret' AND p['a'] > 1")
    world.settle()
    record = world.tracker.get(table.id, purge)
    assert record is not None
    assert record.state == "finished", record.reason
    assert keys(world, table) == [1, 3]


def test_a_job_from_before_a_deletion_keeps_the_member_that_the_deletion_names(
    world: World,
) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>?")
    for number in (1, 2):
        drop(world, table, str(number), [{"k": number, "p": {"a": number, "b": 9}}])
    state = world.state(table)
    (leaf,) = state.partitions.leaves()
    inputs = tuple(r.shard for r in state.references_in(leaf.id))
    world.services.store(table).commit(AssignJob("job", leaf.id, inputs), generation=0)
    delete(world, "p['a'] = 2")
    table = world.alter(table, drop=["p.a"])
    world.queue.append(OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "job")))
    world.settle()
    assert keys(world, table) == [1]
    compact(world, table)
    assert keys(world, table) == [1]


def test_a_member_that_a_filter_reads_is_not_exchanged(world: World) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>?", filters="where(p['a'] > 1)")
    drop(world, table, "1", [{"k": k, "p": {"a": k, "b": 0}} for k in (1, 2)])
    with pytest.raises(InvalidRequestError, match="other members"):
        world.alter(table, rename={"p.a": "b", "p.b": "a"})
    table = world.alter(table, add=[new("p.c", "int")], types={"p.a": "long"})
    drop(world, table, "2", [{"k": 3, "p": {"a": 2**40, "b": 0, "c": 1}}])
    assert keys(world, table) == keys(world, table, look_up=False) == [2, 3]


def test_the_latest_row_has_its_members_and_a_tombstone_none(world: World) -> None:
    table = made(world, "k:int, p:struct<a:int?,b:int?>", keep="latest")
    drop(world, table, "1", [{"k": k, "p": {"a": k, "b": 0}} for k in (1, 2, 3)])
    table = world.alter(table, add=[new("p.c", "int")], drop=["p.b"])
    drop(world, table, "2", [{"k": 2, "p": {"a": 5, "c": 6}}])
    delete(world, "k = 3")
    expected = [{"k": 1, "p": {"a": 1, "c": None}}, {"k": 2, "p": {"a": 5, "c": 6}}]
    assert world.rows(table) == expected
    compact(world, table)
    assert world.rows(table) == expected


@pytest.mark.parametrize("kept", ["first", "last"])
def test_whole_rows_are_kept_of_groups_whose_members_changed(world: World, kept: str) -> None:
    schema = parse_schema("k:int, s:int, p:struct<a:int?,b:int?>", ["k"], ["s"])
    table = world.create("t", schema, aggregations=f"{kept}(p)", gc_delay_seconds=0)
    drop(world, table, "1", [{"k": 1, "s": 1, "p": {"a": 1, "b": 2}}])
    table = world.alter(table, rename={"p.b": "c"}, types={"s": "long", "p.a": "long"})
    drop(world, table, "2", [{"k": 1, "s": 2**33, "p": {"a": 2**33, "c": 4}}])
    expected = {"a": 1, "c": 2} if kept == "first" else {"a": 2**33, "c": 4}
    assert [row["p"] for row in world.rows(table)] == [expected]
    compact(world, table)
    assert [row["p"] for row in world.rows(table)] == [expected]
