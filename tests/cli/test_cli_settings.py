"""Tables are renamed, configured, reset and maintained by command; split points are printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import KeyCodec
from dormouse.keys import Key
from dormouse.schema.schema import Schema
from dormouse.tables.properties import parse_settings
from dormouse_cli.values import parse_properties, parse_split_points, show_split_points
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

ALL_KINDS = Schema.from_json(
    {
        "rowKeyFields": [
            {"name": "text", "type": "StringType"},
            {"name": "number", "type": "LongType"},
            {"name": "bytes", "type": "ByteArrayType"},
            {"name": "time", "type": "TimestampType"},
            {"name": "day", "type": "DateType"},
            {"name": "price", "type": "decimal(38,2)"},
        ]
    }
)
LONGS = st.integers(-(2**63), 2**63 - 1)
DAYS, PRICES = st.integers(-(2**31), 2**31 - 1), st.integers(1 - 10**38, 10**38 - 1)
KEYS = st.tuples(st.text(), LONGS, st.binary(), LONGS, DAYS, PRICES)


def settings(dormouse: Dormouse, *arguments: str) -> dict[str, tuple[object, str]]:
    lines = dormouse(*arguments, "--format", "json").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["property"]: (row["value"], row["set_by"]) for row in rows if "property" in row}


def test_a_renamed_table_answers_under_its_new_name(flights: Dormouse) -> None:
    assert flights("table", "rename", "flights", "journeys").exit_code == 0
    assert flights("query", "journeys", "--count").stdout == "5\n"
    assert flights("status", "flights").exit_code == 3


def test_properties_are_shown_with_who_set_them(flights: Dormouse) -> None:
    assert flights("instance", "set", "compaction_files=7", "gc_delay_seconds=8").exit_code == 0
    changed = settings(flights, "table", "set", "flights", "compaction_files=5")
    assert changed == {"compaction_files": (5, "table")}
    shown = json.loads(flights("table", "show", "flights", "--format", "json").stdout)
    assert shown["properties"]["gc_delay_seconds"] == 8
    assert shown["set_by"]["compaction_files"] == "table"
    assert shown["set_by"]["gc_delay_seconds"] == "instance"
    assert shown["set_by"]["split_threshold_rows"] == "default"
    assert settings(flights, "instance", "show")["compaction_files"] == (7, "instance")
    changed = settings(flights, "table", "unset", "flights", "compaction_files")
    assert changed == {"compaction_files": (7, "instance")}
    changed = settings(flights, "instance", "unset", "compaction_files")
    assert changed == {"compaction_files": (12, "default")}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["table", "set", "flights", "compaction_file=3"], 4, "did you mean compaction_files?"),
        (["table", "set", "flights", "compaction_files"], 4, "name=value"),
        (["table", "set", "flight", "compaction_files=3"], 3, "did you mean flights?"),
        (["query", "flights", "--columns", "fligth"], 4, "did you mean flight?"),
        (["table", "alter", "flights", "--drop-field", "dely"], 4, "did you mean delay?"),
        (["table", "alter", "flights", "--add-field", "x:strng"], 4, "types: int, long, "),
        (["table", "set", "flights", "bloom_columns=dely"], 4, "did you mean delay?"),
        (["dlq", "show", "ingest-jbs"], 3, "did you mean ingest-jobs?"),
        (["jobs", "flights", "--kind", "compation"], 4, "did you mean compaction?"),
        (["ingest", "flights", "-", "--format", "cvs"], 4, "'standard input.cvs' is of no known"),
        (["ingest", "flights", "a.csv", "--format", "csv"], 4, "give - for standard input"),
        (
            ["ingest", "flights", "a.csv", "--create", "--property", "csv_seperator=;"],
            4,
            "did you mean csv_separator?",
        ),
        (["table", "unset", "flights", "colour"], 4, "no property 'colour'"),
        (["instance", "set", "state_store=dynamodb"], 4, "cannot change"),
        (["table", "rename", "flights", "../up"], 4, "cannot be called"),
        (["split", "flights", "0"], 3, "no partition '0'"),
        (["split", "flights", "root"], 4, "has 5 rows, and is split from 1,000,000,000 on"),
        (["splits", "estimate", "rows.csv", "--partitions", "0", "--schema", "schema.json"], 2, ""),
        (["splits", "estimate", "no.csv", "--partitions", "2", "--schema", "schema.json"], 3, "no"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_could(
    flights: Dormouse, arguments: list[str], code: int, said: str
) -> None:
    result = flights(*arguments)
    assert result.exit_code == code, result.output
    assert said in result.stderr


def test_a_reset_prompts_first_and_says_what_is_lost(flights: Dormouse) -> None:
    refused = flights("table", "reinitialise", "flights", input="\n")
    assert refused.exit_code == 1
    lost = "Its 5 rows in 1 shard are lost; its 1 leaf partitions stay. [y/N]"
    assert lost in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
    Path("splits.txt").write_text("AB\nUA\n")
    arguments = ("--splits", "splits.txt", "--force")
    assert flights("table", "reinitialise", "flights", *arguments).exit_code == 0
    assert flights("query", "flights", "--count").stdout == "0\n"
    assert flights("splits", "export", "flights").stdout == "AB\nUA\n"
    assert flights("table", "reinitialise", "flights", input="y\n").exit_code == 0
    assert flights("splits", "export", "flights").stdout == "AB\nUA\n"
    one = flights("table", "reinitialise", "flights", "--delete-partitions", input="y\n")
    assert "its 3 leaf partitions become 1. [y/N]" in one.stderr
    assert flights("splits", "export", "flights").stdout == ""


def test_a_file_without_split_points_leaves_a_single_partition(flights: Dormouse) -> None:
    Path("splits.txt").write_text("AB\nUA\n")
    Path("none.txt").write_text("")
    for splits, shown in (("splits.txt", "AB\nUA\n"), ("none.txt", "")):
        arguments = ("table", "reinitialise", "flights", "--splits", splits, "--force")
        assert flights(*arguments).exit_code == 0
        assert flights("splits", "export", "flights").stdout == shown


def test_a_reset_table_gets_the_schema_of_a_file_with_split_points_of_it(flights: Dormouse) -> None:
    shown = json.loads(flights("table", "show", "flights", "--format", "json").stdout)["schema"]
    keys = shown["rowKeyFields"]
    Path("schema.json").write_text(json.dumps({**shown, "rowKeyFields": keys[::-1]}))
    Path("splits.txt").write_text("10\n")
    empty = ("table", "reinitialise", "flights", "--schema", "schema.json")
    wrong = flights(*empty, "--splits", "rows.csv", "--force")
    assert (wrong.exit_code, "line 1" in wrong.stderr) == (4, True)
    found = flights(*empty, "--splits", "splits.txt", input="y\n")
    assert "its 1 leaf partitions become 2. It gets another schema." in found.stderr
    assert flights("splits", "export", "flights").stdout == "10\n"
    assert flights("ingest", "flights", "rows.csv", "--again", "--wait").exit_code == 0
    assert flights("query", "flights", "--key", "flight=12,carrier=AA", "--count").stdout == "1\n"
    unfit = flights("table", "reinitialise", "flights", "--schema", "text.json", "--force")
    assert unfit.exit_code == 3, "there is no such file"
    Path("text.json").write_text(json.dumps({"rowKeyFields": keys}))
    unfit = flights("table", "reinitialise", "flights", "--schema", "text.json", "--force")
    assert (unfit.exit_code, "delete the partitions" in unfit.stderr) == (4, True)
    assert flights("query", "flights", "--count").stdout == "5\n"


def test_a_table_is_compacted_split_and_cleaned_on_request(
    flights: Dormouse, memory: InMemory
) -> None:
    Path("more.csv").write_text("carrier,flight,at,delay\nAA,1,2013-01-01T11:00:00Z,\n")
    flights("ingest", "flights", "more.csv", "--wait")
    flights("table", "offline", "flights")
    result = flights("compact", "flights")
    assert "0 compactions of table flights started" in result.stderr
    result = flights("compact", "flights", "--all", "--wait")
    assert (result.exit_code, "1 compaction of" in result.stderr) == (0, True)
    assert len(memory.instance.table("flights").state().unreferenced) == 2
    assert "0 shards" in flights("gc", "flights").stderr
    memory.world.clock.advance(seconds=1000)
    assert "2 shards" in flights("gc", "flights").stderr
    result = flights("split", "flights", "--forced", "--wait")
    assert (result.exit_code, "1 split of" in result.stderr) == (0, True)
    assert len(flights("splits", "export", "flights").stdout.splitlines()) == 1
    assert flights("query", "flights", "--count").stdout == "6\n"


def test_the_properties_of_csv_hold_for_estimates_tables_and_files(dormouse: Dormouse) -> None:
    Path("schema.json").write_text(
        json.dumps(
            {
                "rowKeyFields": [{"name": "k", "type": "LongType"}],
                "valueFields": [{"name": "v", "type": "DoubleType", "nullable": True}],
            }
        )
    )
    Path("rows.csv").write_text("".join(f"{n};-9999\n" for n in range(100)))
    settings = ("csv_separator=;", "csv_header=no", "csv_null=-9999")
    given = [part for setting in settings for part in ("--property", setting)]
    wanted = ("--partitions", "2", "--schema", "schema.json")
    assert dormouse("splits", "estimate", "rows.csv", *wanted).exit_code == 4
    found = dormouse("splits", "estimate", "rows.csv", *wanted, *given)
    assert (found.exit_code, found.stdout) == (0, "50\n")
    assert dormouse("table", "add", "t", "--schema", "schema.json", *given).exit_code == 0
    assert dormouse("ingest", "t", "rows.csv", "--wait").exit_code == 0
    row = dormouse("query", "t", "--key", "k=7", "--format", "json").stdout
    assert json.loads(row) == {"k": 7, "v": None}


def test_estimated_splits_make_a_table_whose_leaves_are_equal(
    flights: Dormouse, memory: InMemory
) -> None:
    lines = [f"c{n % 100:03d},{n},2013-01-01T00:00:00Z,1" for n in range(1000)]
    Path("big.csv").write_text("\n".join(["carrier,flight,at,delay", *lines]) + "\n")
    found = flights("splits", "estimate", "big.csv", "--partitions", "4", "--schema", "schema.json")
    assert found.exit_code == 0, found.output
    assert [json.loads(line)[0] for line in found.stdout.splitlines()] == ["c025", "c050", "c075"]
    Path("splits.txt").write_text(found.stdout)
    flights("table", "add", "big", "--schema", "schema.json", "--splits", "splits.txt")
    assert flights("splits", "export", "big").stdout == found.stdout
    flights("ingest", "big", "big.csv", "--wait")
    state = memory.instance.table("big").state()
    assert [state.rows_in(leaf.id) for leaf in state.partitions.leaves()] == [250] * 4


def test_fewer_partitions_than_requested_are_reported(flights: Dormouse) -> None:
    arguments = ("--partitions", "9", "--schema", "schema.json")
    found = flights("splits", "estimate", "rows.csv", *arguments)
    assert "5 partitions instead of 9: rows with equal keys" in found.stderr
    assert len(found.stdout.splitlines()) == 4


@given(st.lists(KEYS, unique=True, max_size=5), st.integers(1, 5))
def test_split_points_are_read_as_they_were_shown(keys: list[Key], parts: int) -> None:
    points = sorted({key[:parts] for key in keys})
    shown = show_split_points(points, ALL_KINDS)
    found = parse_split_points(shown.encode(), ALL_KINDS)
    assert [KeyCodec(ALL_KINDS).from_python(point) for point in found] == points


def test_a_property_of_more_digits_than_any_number_has_is_refused_as_one() -> None:
    for digits, found in ((5000, "whole number"), (30, "must be at most")):
        settings = parse_properties([f"gc_delay_seconds={'9' * digits}"])
        with pytest.raises(InvalidRequestError, match=found):
            parse_settings(settings)


def test_rules_that_hide_rows_ask_first_and_say_how_many(flights: Dormouse) -> None:
    rule = "filters=where(delay > 5)"
    for answer, code, rows in (("n\n", 1, "5"), ("y\n", 0, "1")):
        asked = flights("table", "set", "flights", rule, input=answer)
        assert asked.exit_code == code
        assert "would hide 4 of the 5 rows" in asked.output
        assert flights("query", "flights", "--count").stdout.strip() == rows
    hides_nothing = flights("table", "set", "flights", "filters=where(delay > -1000)")
    assert hides_nothing.exit_code == 0, hides_nothing.output
    Path("declared.json").write_text(
        json.dumps({"tables": [{"name": "flights", "properties": {"filters": rule[8:]}}]})
    )
    instance_wide = ("instance", "set", rule)  # hides none: the table has filters of its own
    for *verb, answers, code in (
        ("table", "apply", "declared.json", "y\nn\n", 1),
        (*instance_wide, "", 0),
        ("table", "unset", "flights", "filters", "n\n", 1),
    ):
        assert flights(*verb, input=answers).exit_code == code, verb
        assert flights("query", "flights", "--count").stdout == "4\n"
    flights("table", "unset", "flights", "filters", "--force")
    assert flights("query", "flights", "--count").stdout == "1\n"
    assert flights("instance", "unset", "filters").exit_code == 0
    assert "would hide 4 of the 5" in flights(*instance_wide, input="n\n").output
