"""Tables are made and changed until they are as a file says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Dormouse

DECLARED = """
tables:
  - name: flights
    schema: schema.json
    properties: {compaction_files: 5, gc_delay_seconds: 60}
    online: false
  - name: days
    schema:
      rowKeyFields: [{name: day, type: DateType}]
      valueFields: [{name: note, type: StringType, nullable: true}]
    splits: [2013-01-01, 2014-01-01]
"""


@pytest.fixture
def declared(flights: Dormouse) -> Dormouse:
    schema = json.loads(Path("schema.json").read_text())
    schema["valueFields"].append({"name": "cost", "type": "LongType", "nullable": True})
    Path("schema.json").write_text(json.dumps(schema))
    Path("tables.yaml").write_text(DECLARED)
    return flights


def changes(dormouse: Dormouse, *arguments: str) -> list[tuple[str, str, object, object]]:
    result = dormouse("table", "apply", "tables.yaml", "--format", "json", *arguments)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["table"], row["change"], row["before"], row["after"]) for row in rows]


def test_what_changes_is_shown_then_made_and_the_second_time_nothing(declared: Dormouse) -> None:
    expected = [
        ("flights", "column cost", None, "long"),
        ("flights", "compaction_files", 12, 5),
        ("flights", "gc_delay_seconds", 900, 60),
        ("flights", "online", True, False),
        ("days", "created", None, "2 columns, by day"),
        ("days", "partitions", None, "3, the second from 2013-01-01 on"),
    ]
    assert changes(declared, "--dry-run") == expected
    assert declared("table", "show", "days").exit_code == 3
    assert changes(declared, "--force") == expected
    assert changes(declared, "--force") == []
    shown = json.loads(declared("table", "show", "flights", "--format", "json").stdout)
    assert shown["online"] is False
    assert (shown["properties"]["compaction_files"], shown["set_by"]["compaction_files"]) == (
        5,
        "table",
    )
    assert [field["name"] for field in shown["schema"]["valueFields"]] == ["delay", "cost"]
    assert declared("splits", "export", "days").stdout == "2013-01-01\n2014-01-01\n"
    assert declared("query", "flights", "--count").stdout == "5\n"


def test_a_file_of_json_says_the_same_without_yaml(
    declared: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # as if it were not installed
    schema = {"rowKeyFields": [{"name": "day", "type": "DateType"}]}
    Path("tables.json").write_text(json.dumps({"tables": [{"name": "days", "schema": schema}]}))
    assert declared("table", "apply", "tables.json", "--force").exit_code == 0
    assert declared("table", "show", "days").exit_code == 0
    refused = declared("table", "apply", "tables.yaml", "--force")
    assert refused.exit_code == 1
    assert "needs the package 'yaml', which is not installed" in refused.stderr
    assert "hint: pip install 'dormouse-tables[yaml]'" in refused.stderr


def test_no_is_the_answer_unless_said_otherwise(declared: Dormouse) -> None:
    result = declared("table", "apply", "tables.yaml", input="\n")
    assert result.exit_code == 1
    assert "Make these changes to 2 tables? [y/N]" in result.stderr
    assert declared("table", "show", "days").exit_code == 3
    result = declared("table", "apply", "tables.yaml", input="y\n")
    assert (result.exit_code, "table days created" in result.stderr) == (0, True)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("tables: [", 4, "not valid YAML"),
        ("!!python/object/apply:os.system [ls]", 4, "not valid YAML"),
        ("- name: x", 4, "a file of tables: Expected `object`"),
        ("tables: x", 4, "Expected `array`, got `str` - at `$.tables`"),
        ("tables: [x]", 4, "tables[0]: Expected `object`"),
        ("tables: [{online: true}]", 4, "missing required field `name`"),
        ("tables: [{name: x, shema: {}}]", 4, "did you mean schema?"),
        ("tables: [{name: x, schema: none.json}]", 3, "none.json"),
        ("tables: [{name: x, schema: rows.csv}]", 4, "not valid JSON"),
        (
            "tables: [{name: flights, online: 1}]",
            4,
            "Expected `bool | null`, got `int` - at `$.online`",
        ),
        (
            "tables: [{name: flights, properties: [1]}]",
            4,
            "Expected `object | null`, got `array` - at `$.properties`",
        ),
        ("tables: [{name: flights, properties: {colour: red}}]", 4, "table 'flights': there is no"),
        ("tables: [{name: flights, properties: {colour: null}}]", 4, "no property 'colour'"),
        ("tables: [{name: flights, splits: [B, A]}]", 4, "must ascend"),
        ("tables: [{name: flights, splits: [A]}]", 4, "not split at (A)"),
        ("tables: [{name: flights, splits: [1]}]", 4, "split point 1"),
        ("tables: [{name: new, splits: [A]}]", 4, "a schema is needed to create it"),
        ("tables: [{name: ok, schema: schema.json}, {name: flights, splits: [A]}]", 4, "not split"),
    ],
)
def test_a_file_that_cannot_be_met_changes_nothing(
    flights: Dormouse, text: str, code: int, said: str
) -> None:
    Path("tables.yaml").write_text(text)
    result = flights("table", "apply", "tables.yaml", "--force")
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert len(flights("table", "list", "--format", "json").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: &a [*a]\ntables: *a\n", "in itself"),
        ("tables: " + "[" * 5000, "nested too deep"),
        ("tables: 2024-13-45\n", "not valid YAML"),
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(9)),
            "at most 100,000 values",
        ),
    ],
)
def test_a_file_that_would_fill_memory_or_stack_is_refused(
    flights: Dormouse, text: str, found: str
) -> None:
    """Ten lines of aliases can stand for a thousand million values."""
    Path("tables.yaml").write_text(text)
    result = flights("table", "apply", "tables.yaml", "--force")
    assert result.exit_code == 4, result.output
    assert found in " ".join(result.stderr.split())
