from __future__ import annotations

import json
from pathlib import Path

import pytest

from dormouse.schema.schema import Schema
from tests.cli.conftest import FLIGHTS, Dormouse
from tests.support.instances import InMemory


@pytest.fixture
def schema(dormouse: Dormouse) -> str:
    Path("schema.json").write_text(json.dumps(FLIGHTS))
    return "schema.json"


def test_a_table_is_made_with_splits_and_properties_and_shown(
    dormouse: Dormouse, schema: str
) -> None:
    Path("splits.txt").write_text('AA\n["B6", 10]\n["B6", 20]\nUA\n')
    result = dormouse(
        *("table", "add", "flights", "--schema", schema, "--splits", "splits.txt"),
        *("--property", "compaction_files=5", "--property", "compaction_strategy=batch"),
    )
    assert result.exit_code == 0, result.output
    shown = json.loads(dormouse("table", "show", "flights", "--format", "json").stdout)
    assert Schema.from_json(shown["schema"]) == Schema.from_json(FLIGHTS)
    assert shown["properties"]["compaction_files"] == 5
    assert shown["properties"]["compaction_strategy"] == "batch"
    status = json.loads(dormouse("status", "flights", "--format", "json").stdout)
    assert (status["partitions"], status["leaf_partitions"]) == (9, 5)
    for text in ("carrier", "long", "sort key", "value, nullable", "compaction_files"):
        assert text in dormouse("table", "show", "flights").stdout


@pytest.mark.parametrize(
    ("splits", "reason"),
    [
        ("B\nA\n", "line 2: A does not come after"),
        ("A\nA\n", "line 2: A does not come after"),
        ("A\n\nB\n", "line 2 is empty"),
        ('["A", "x"]\n', "line 1: key 'flight': 'x' is not"),
        ('["A", 1, 2]\n', "line 1: it has a value for 'at', which is a sort key"),
        ('["A", 1, 2, 3]\n', "line 1 has 4 values for 2 row keys"),
        ('["A", 1.5]\n', "line 1: 1.5 cannot be part of a key"),
    ],
)
def test_bad_split_points_are_reported_by_line_and_make_no_table(
    dormouse: Dormouse, schema: str, splits: str, reason: str
) -> None:
    Path("splits.txt").write_text(splits)
    result = dormouse("table", "add", "x", "--schema", schema, "--splits", "splits.txt")
    assert result.exit_code == 4
    assert reason in result.stderr
    assert dormouse("table", "show", "x").exit_code == 3


@pytest.mark.parametrize(
    ("kind", "lines", "first"),
    [
        ("IntType", "-5\n10\n", -5),
        ("LongType", "5\r\n10\r\n", 5),
        ("TimestampType", "2013-01-01T00:00:00Z\n1400000000000000\n", 1_356_998_400_000_000),
        ("DateType", "1970-01-02\n2013-01-01\n", 1),
        ("DateType", "-3\n20130101\n", -3),
        ("StringType", " a b\nc\n", " a b"),
        ("ByteArrayType", "AP8=\n/w==\n", b"\0\xff"),
    ],
)
def test_split_points_of_every_key_type(
    dormouse: Dormouse, memory: InMemory, kind: str, lines: str, first: object
) -> None:
    Path("schema.json").write_text(json.dumps({"rowKeyFields": [{"name": "k", "type": kind}]}))
    Path("splits.txt").write_bytes(lines.encode())
    result = dormouse("table", "add", "x", "--schema", "schema.json", "--splits", "splits.txt")
    assert result.exit_code == 0, result.output
    leaves = list(memory.instance.table("x").state().partitions.leaves())
    assert len(leaves) == 3
    assert leaves[0].range.max == (first,)


def test_tables_are_listed_taken_offline_and_put_online(dormouse: Dormouse, schema: str) -> None:
    dormouse("table", "add", "flights", "--schema", schema)
    assert dormouse("table", "offline", "flights").exit_code == 0
    (listed,) = dormouse("table", "list", "--format", "json").stdout.splitlines()
    assert json.loads(listed)["online"] is False
    dormouse("table", "online", "flights")
    assert "flights" in dormouse("table", "list").stdout
    assert json.loads(dormouse("table", "list", "--format", "json").stdout)["online"] is True


def test_deleting_asks_first_and_no_is_the_answer_unless_said_otherwise(flights: Dormouse) -> None:
    refused = flights("table", "delete", "flights", input="\n")
    assert refused.exit_code == 1
    assert "Its 5 rows in 1 shard are lost. [y/N]" in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
    assert flights("table", "delete", "flights", input="y\n").exit_code == 0
    assert flights("table", "show", "flights").exit_code == 3
    assert flights("table", "delete", "flights", "--force").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["table", "add", "../x", "--schema", "schema.json"], 4, "cannot be called"),
        (["table", "add", "x", "--schema", "none.json"], 3, "cannot read 'none.json'"),
        (["table", "add", "x"], 2, "--schema"),
        (["table", "add", "x", "--schema", "schema.json", "--property", "colour=red"], 4, "colour"),
        (["table", "add", "x", "--schema", "schema.json", "--property", "colour"], 4, "name=value"),
        (["status", "nothing"], 3, "there is no table 'nothing'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_own_exit_code(
    dormouse: Dormouse, schema: str, arguments: list[str], code: int, reason: str
) -> None:
    result = dormouse(*arguments)
    assert result.exit_code == code
    assert reason in result.stderr
    assert "Traceback" not in result.output


def test_a_name_that_is_taken_is_refused(dormouse: Dormouse, schema: str) -> None:
    assert dormouse("table", "add", "flights", "--schema", schema).exit_code == 0
    again = dormouse("table", "add", "flights", "--schema", schema)
    assert again.exit_code == 4
    assert "already" in again.stderr


def test_columns_are_added_dropped_and_renamed_and_shown(flights: Dormouse) -> None:
    result = flights(
        *("table", "alter", "flights", "--rename-field", "delay=late"),
        *("--add-field", "gates:list<string>", "--add-field", "cost:decimal(38,2)"),
    )
    assert result.exit_code == 0, result.output
    for text in ("late", "list<string>", "decimal(38,2)", "value, nullable"):
        assert text in result.stdout
    rows = flights("query", "flights", "--key", "carrier=UA", "--format", "json").stdout
    assert json.loads(rows)["late"] == 2.5
    field = json.dumps({"name": "a:b", "type": "DateType", "nullable": True})
    again = flights(
        *("table", "alter", "flights", "--drop-field", "gates", "--add-field", field),
        *("--format", "json"),
    )
    names = [column["name"] for column in json.loads(again.stdout)["valueFields"]]
    assert names == ["late", "cost", "a:b"]


def test_a_unit_is_set_shown_and_taken_away(flights: Dormouse) -> None:
    Path("rows.csv").write_text("carrier,flight,at\nZZ,1,1356998400\n")
    assert flights("ingest", "flights", "rows.csv", "--wait").exit_code == 4
    changed = flights("table", "alter", "flights", "--unit", "at=seconds")
    assert changed.exit_code == 0
    assert "timestamp, numbers in seconds" in changed.output
    Path("again.csv").write_text("carrier,flight,at\nZZ,1,1356998400\n")
    assert flights("ingest", "flights", "again.csv", "--wait").exit_code == 0
    row = flights("query", "flights", "--key", "carrier=ZZ,flight=1", "--format", "json").stdout
    assert json.loads(row)["at"] == "2013-01-01T00:00:00Z"
    changed = flights("table", "alter", "flights", "--unit", "at=none")
    assert "numbers in" not in changed.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the request has no change"),
        (["--add-field", "gate"], "name:type"),
        (["--add-field", "gate:text"], "there is no type 'text'"),
        (["--add-field", "{"], "not valid JSON"),
        (["--add-field", "delay:long"], "two columns 'delay'"),
        (["--drop-field", "carrier"], "is a key"),
        (["--rename-field", "delay"], "old=new"),
        (["--unit", "at"], "column=unit"),
        (["--unit", "at=seconds", "--unit", "at=none"], "two units"),
        (["--unit", "delay=seconds"], "cannot have numbers"),
        (["--rename-field", "delay=a", "--rename-field", "delay=b"], "renamed twice"),
    ],
)
def test_an_alteration_that_cannot_be_is_explained(
    flights: Dormouse, arguments: list[str], reason: str
) -> None:
    result = flights("table", "alter", "flights", *arguments)
    assert result.exit_code == 4
    assert reason in result.output


def test_what_lies_there_of_no_known_table_is_listed_by_its_id(
    dormouse: Dormouse, flights: Dormouse, memory: InMemory
) -> None:
    nothing = dormouse("table", "unregistered")
    assert nothing.exit_code == 0
    table_id = memory.instance.table("flights").table.id
    memory.world.age_objects(seconds=2 * 24 * 3600)
    lost = memory.world.tables.by_id.pop(table_id)
    listed = dormouse("table", "unregistered", "--format", "json")
    assert listed.exit_code == 1
    found = json.loads(listed.stdout)
    assert found["id"] == table_id
    assert found["objects"] == len(list(memory.world.storage.list(f"{table_id}/")))
    memory.world.tables.by_id[table_id] = lost
    assert dormouse("table", "unregistered").exit_code == 0
