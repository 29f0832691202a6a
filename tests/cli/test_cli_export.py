"""Exports from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def test_an_export_reports_how_many_rows_are_where(flights: Dormouse) -> None:
    done = flights("export", "flights", "--to", "flights/1", "--format", "json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["files"], facts["rows"]) == (1, 5)
    assert facts["where"].endswith("/results/flights/1")
    assert "rows" in flights("export", "flights").stdout


def test_exported_files_are_copied_and_make_a_table_again(flights: Dormouse) -> None:
    assert flights("export", "flights", "--output", "copy").exit_code == 0
    assert pq.read_table("copy").num_rows == 5
    assert flights("table", "add", "again", "--schema", "copy/_manifest.json").exit_code == 0
    ingested = flights("ingest", "again", "copy", "--wait")
    assert (ingested.exit_code, "1 file ingested" in ingested.output) == (0, True)
    shown = [flights("query", name, "--format", "json").stdout for name in ("flights", "again")]
    assert shown[0] == shown[1] != ""


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (("--key", "carrier=AA"), 2),
        (("--range", "carrier=AA,flight=10..carrier=B6,flight=8"), 3),
        (("--where", "delay > 0", "--columns", "flight,delay"), 2),
        (("--key", "carrier=nobody"), 0),
    ],
)
def test_keys_ranges_conditions_and_columns_are_as_for_queries(
    flights: Dormouse, arguments: tuple[str, ...], rows: int
) -> None:
    done = flights("export", "flights", *arguments, "--output", "copy", "--format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == rows
    manifest = json.loads(Path("copy/_manifest.json").read_text())
    read = [pq.read_table(Path("copy") / file["name"]) for file in manifest["files"]]
    assert sum(table.num_rows for table in read) == rows == manifest["rows"]
    if "--columns" in arguments:
        assert [table.column_names for table in read] == [["flight", "delay"]]


def test_a_folder_in_use_is_refused_before_anything_begins(
    flights: Dormouse, memory: InMemory
) -> None:
    Path("copy").mkdir()
    Path("copy/mine").touch()
    refused = flights("export", "flights", "--output", "copy")
    assert refused.exit_code != 0
    assert "not an empty folder" in refused.output
    assert "exports" not in {message.queue for message in memory.world.queue}


def test_a_prefix_in_use_is_refused(flights: Dormouse) -> None:
    assert flights("export", "flights", "--to", "taken").exit_code == 0
    refused = flights("export", "flights", "--to", "taken")
    assert refused.exit_code != 0
    assert "prefix of its own" in refused.output


def test_nobody_has_to_wait(flights: Dormouse, memory: InMemory) -> None:
    begun = flights("export", "flights", "--to", "later", "--no-wait")
    assert begun.exit_code == 0
    assert "has begun" in begun.output
    assert flights("export", "flights", "--no-wait", "--output", "copy").exit_code == 2
    memory.world.settle()
    assert memory.world.results.get("later/_manifest.json")


def test_the_rows_of_a_statement_are_exported(flights: Dormouse) -> None:
    text = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier"
    arguments = ("--to", "by/carrier", "--file-format", "csv", "--format", "json")
    done = flights("export", "--sql", text, *arguments)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["files"], facts["rows"]) == (1, 4)
    assert facts["where"].endswith("/results/by/carrier")
    assert flights("export", "--sql", text, "--to", "by/carrier").exit_code != 0


def test_a_statement_is_exported_alone_and_a_table_by_its_name(flights: Dormouse) -> None:
    assert "--sql goes with" in flights("export", "flights", "--sql", "SELECT 1").output
    assert "name a table" in flights("export").output
    assert "as Parquet" in flights("export", "flights", "--file-format", "csv").output


def test_an_export_that_leaves_out_damaged_shards_lists_them_and_ends_with_one(
    flights: Dormouse, memory: InMemory
) -> None:
    world = memory.world
    (stored,) = [each for each in world.storage.list("") if "/data/" in each.path]
    world.storage.delete([stored.path])
    assert "--skip-damaged" in flights("export", "flights").output
    done = flights("export", "flights", "--skip-damaged", "--format", "json")
    assert done.exit_code == 1
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["skipped_shards"], facts["skipped_rows"]) == (0, 1, 5)
    assert f"left out {stored.path}: 5 rows, keys " in done.stderr
