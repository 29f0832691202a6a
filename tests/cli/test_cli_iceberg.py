"""Published tables on the command line: shown, published, checked, and their files listed."""

from __future__ import annotations

import json

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def published(flights: Dormouse) -> dict[str, str]:
    assert flights("table", "set", "flights", "iceberg=on").exit_code == 0
    assert flights("wait", "flights").exit_code == 0
    return shown(flights)


def shown(flights: Dormouse) -> dict[str, str]:
    found = flights("iceberg", "show", "flights", "--format", "json")
    assert found.exit_code == 0, found.stderr
    return {row["what"]: row["value"] for row in map(json.loads, found.stdout.splitlines())}


def test_what_is_published_is_shown_with_a_line_for_each_engine(
    memory: InMemory, flights: Dormouse
) -> None:
    facts = published(flights)
    assert (facts["rows"], facts["dead rows in them"], facts["format"]) == ("5", "0", "2")
    written_before = facts["shards to rewrite for old Spark"]
    assert int(written_before) == int(facts["files"]) > 0
    uri = facts["metadata"]
    path = uri.removeprefix(memory.world.storage.uri + "/")
    assert json.loads(memory.world.storage.get(path))["format-version"] == 2
    for engine in ("PyIceberg", "DuckDB", "Polars", "Spark"):
        assert uri in facts[engine]
    folder, _, file = uri.rpartition("/metadata/")
    assert folder in facts["Trino"] and file in facts["Trino"]
    assert f"metadata/{file}" in facts["ClickHouse"]


def test_a_table_with_rules_is_said_to_be_parts_and_a_view(flights: Dormouse) -> None:
    assert flights("table", "set", "flights", "filters=where(delay > 5)", "--force").exit_code == 0
    assert flights("table", "set", "flights", "iceberg=on", "iceberg_parts=yes").exit_code == 0
    assert flights("wait", "flights").exit_code == 0
    facts = shown(flights)
    assert "stored rows" in facts["table flights__parts"]
    assert "REST catalog" in facts["view flights"]
    assert "FROM `flights__parts` WHERE" in facts["query of the view, spark"]
    assert 'FROM "flights__parts" WHERE' in facts["query of the view, trino"]
    assert "flights__parts" in facts["Trino"]


def test_the_files_of_the_newest_version_are_listed(memory: InMemory, flights: Dormouse) -> None:
    published(flights)
    lines = flights("iceberg", "files", "flights", "--format", "json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["uri"] for each in found] == [
        file.uri.removeprefix("file://") for file in memory.instance.table("flights").files()
    ]
    assert {each["holds"] for each in found} == {"rows, which old Spark reads slowly"}


def test_a_table_that_is_not_published_says_how_it_becomes_one(flights: Dormouse) -> None:
    for verb in ("show", "publish", "check", "files"):
        refused = flights("iceberg", verb, "flights")
        assert refused.exit_code == 4, verb
        assert "dormouse table set flights iceberg=on" in refused.stderr
    assert flights("table", "set", "flights", "iceberg=on").exit_code == 0
    nothing = flights("iceberg", "show", "flights")
    assert (nothing.exit_code, "nothing is published" in nothing.stderr) == (3, True)


def test_a_lost_object_is_found_and_published_again(memory: InMemory, flights: Dormouse) -> None:
    published(flights)
    assert flights("iceberg", "check", "flights").exit_code == 0
    (table,) = memory.world.tables.all()
    listed = memory.world.storage.list(f"{table.id}/iceberg/metadata/")
    lost = next(o.path for o in listed if "-data-" in o.path)
    memory.world.storage.delete([lost])
    checked = flights("iceberg", "check", "flights")
    assert checked.exit_code == 1
    assert lost in checked.stdout
    assert flights("iceberg", "publish", "flights", "--all").exit_code == 0
    assert flights("wait", "flights").exit_code == 0
    assert flights("iceberg", "check", "flights").exit_code == 0
    assert shown(flights)["rows"] == "5"


def test_a_lost_shard_is_found(memory: InMemory, flights: Dormouse) -> None:
    published(flights)
    (table,) = memory.world.tables.all()
    (shard,) = [o.path for o in memory.world.storage.list(f"{table.id}/data/")]
    memory.world.storage.delete([shard])
    checked = flights("iceberg", "check", "flights")
    assert (checked.exit_code, shard in checked.stdout) == (1, True)
