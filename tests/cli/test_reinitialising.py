"""Emptying a table means the same by command, from Python and by message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dormouse.messages.requests import decode_admin
from dormouse.schema.schema import Schema
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

BY_FLIGHT = {
    "rowKeyFields": [{"name": "flight", "type": "LongType"}],
    "valueFields": [{"name": "delay", "type": "DoubleType", "nullable": True}],
}
Points = tuple[tuple[object, ...], ...]
Door = Callable[[Dormouse, InMemory, bool, Points, dict[str, object]], None]


def by_command(
    dormouse: Dormouse, memory: InMemory, deletes: bool, points: Points, schema: dict[str, object]
) -> None:
    arguments = ["--delete-partitions"] if deletes else []
    if points:
        Path("points.txt").write_text("".join(f"{json.dumps(point)}\n" for point in points))
        arguments += ["--splits", "points.txt"]
    if schema:
        Path("new.json").write_text(json.dumps(schema))
        arguments += ["--schema", "new.json"]
    done = dormouse("table", "reinitialise", "flights", "--force", *arguments)
    assert done.exit_code == 0, done.output


def by_python(
    dormouse: Dormouse, memory: InMemory, deletes: bool, points: Points, schema: dict[str, object]
) -> None:
    memory.instance.reinitialise_table(
        "flights",
        points,  # type: ignore[arg-type]
        delete_partitions=deletes,
        schema=Schema.from_json(schema) if schema else None,
    )


def by_message(
    dormouse: Dormouse, memory: InMemory, deletes: bool, points: Points, schema: dict[str, object]
) -> None:
    body: dict[str, object] = {"type": "reinitialise_table", "request_id": "r", "name": "flights"}
    if deletes:
        body["delete_partitions"] = True
    if points:
        body["split_points"] = points
    if schema:
        body["schema"] = schema
    memory.world.administer(decode_admin(json.dumps(body)))


@pytest.mark.parametrize("door", [by_command, by_python, by_message])
@pytest.mark.parametrize(
    ("deletes", "points", "schema", "leaves"),
    [
        (False, (), {}, [(), ("AA",), ("UA", 7)]),
        (True, (), {}, [()]),
        (False, (("B",),), {}, [(), ("B",)]),
        (True, (("B",),), {}, [(), ("B",)]),
        (True, (), BY_FLIGHT, [()]),
        (False, ((9,), (12,)), BY_FLIGHT, [(), (9,), (12,)]),
    ],
)
def test_partitions_stay_unless_they_are_deleted_or_given(
    flights: Dormouse,
    memory: InMemory,
    door: Door,
    deletes: bool,
    points: Points,
    schema: dict[str, object],
    leaves: list[tuple[object, ...]],
) -> None:
    before = memory.instance.reinitialise_table("flights", [("AA",), ("UA", 7)])
    door(flights, memory, deletes, points, schema)
    after = memory.instance.table("flights")
    assert [leaf.range.min for leaf in after.state().partitions.leaves()] == leaves
    assert after.table.generation == before.table.generation + 1
    names = [field.name for field in after.schema.fields]
    assert names == (["flight", "delay"] if schema else ["carrier", "flight", "at", "delay"])
    assert after.count() == 0


def test_a_table_gets_the_schema_that_is_shown_of_another(dormouse: Dormouse) -> None:
    for name, columns in (("flights", "id:long, at:date?"), ("rides", "city:string")):
        keys = columns.partition(":")[0]
        dormouse("table", "add", name, "--schema", columns, "--row-keys", keys)
    shown = dormouse("table", "show", "rides", "--format", "json").stdout
    Path("shown.json").write_text(shown)
    reset = "--delete-partitions", "--force", "--schema", "shown.json"
    for command in (["reinitialise", "flights", *reset], ["add", "walks", *reset[2:]]):
        done = dormouse("table", *command)
        assert done.exit_code == 0, done.output
        again = dormouse("table", "show", command[1], "--format", "json").stdout
        names = [f["name"] for f in json.loads(again)["schema"]["rowKeyFields"]]
        assert names == ["city"]
