"""Versions on the command line: listed, tagged, read by tag, and untagged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dormouse.errors import NotFoundError
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def newest(flights: Dormouse) -> int:
    shown = flights("versions", "flights", "--limit", "1", "--format", "json").stdout
    return int(json.loads(shown)["version"])


def test_versions_are_listed_with_their_changes_rows_jobs_and_tags(flights: Dormouse) -> None:
    version = newest(flights)
    assert flights("tag", "flights", str(version), "before").exit_code == 0
    lines = flights("versions", "flights", "--format", "json").stdout.splitlines()
    first, *_, last = map(json.loads, lines)
    assert (first["version"], first["rows"], first["tags"]) == (version, 5, ["before"])
    assert (last["version"], last["changes"], last["rows"]) == (1, ["initialise partitions"], 0)
    (ingest,) = [each for line in lines if (each := json.loads(line))["changes"] == ["add shards"]]
    assert ingest["job"]


def test_a_version_is_found_by_the_time_at_which_it_is_listed(
    memory: InMemory, flights: Dormouse
) -> None:
    memory.world.clock.advance(seconds=1.5)
    Path("more.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T10:00:00Z,1\n")
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    assert flights("tag", "flights", str(newest(flights)), "after").exit_code == 0
    memory.world.clock.advance(seconds=1.5)
    for listing in (("versions", "flights", "--limit", "1"), ("tags", "flights")):
        listed = json.loads(flights(*listing, "--format", "json").stdout)
        counted = flights("query", "flights", "--count", "--as-of", listed["time"])
        assert (counted.stdout.strip(), listed["rows"]) == ("6", 6), counted.output


def test_a_table_is_read_and_counted_as_of_a_tag(flights: Dormouse) -> None:
    assert flights("tag", "flights", str(newest(flights)), "before").exit_code == 0
    Path("more.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T10:00:00Z,1\n")
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    assert flights("query", "flights", "--count").stdout.strip() == "6"
    assert flights("query", "flights", "--count", "--as-of", "before").stdout.strip() == "5"
    refused = flights("query", "flights", "--count", "--as-of", "never")
    assert (refused.exit_code, "no tag 'never'" in refused.stderr) == (3, True)
    assert "its tags: before" in refused.stderr


def test_a_tag_can_be_another_name_of_a_tagged_version(flights: Dormouse) -> None:
    version = newest(flights)
    for of, tag in ((str(version), "a"), ("a", "b")):
        assert flights("tag", "flights", of, tag).exit_code == 0
    shown = flights("tags", "flights", "--format", "json").stdout.splitlines()
    assert [(t["tag"], t["version"]) for t in map(json.loads, shown)] == [
        ("a", version),
        ("b", version),
    ]
    assert flights("untag", "flights", "a").exit_code == 0
    assert flights("untag", "flights", "a").exit_code == 3


def test_a_table_is_exported_as_of_a_tag(memory: InMemory, flights: Dormouse) -> None:
    table = memory.instance.table("flights")
    table.tag(table.state().version, "before")
    assert table.export(as_of="before").table.id == table.table.id
    with pytest.raises(NotFoundError, match="no tag"):
        table.export(as_of="never")


def test_a_table_is_restored_after_a_question_and_its_files_come_again(
    memory: InMemory, flights: Dormouse
) -> None:
    before = newest(flights)
    assert flights("tag", "flights", str(before), "before").exit_code == 0
    Path("more.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T10:00:00Z,1\n")
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    assert flights("restore", "flights", "before", input="n\n").exit_code != 0
    assert flights("query", "flights", "--count").stdout.strip() == "6"
    done = flights("restore", "flights", "before", input="y\n")
    assert done.exit_code == 0
    assert "(6 rows) to version" in done.stdout + done.stderr
    assert f"has the rows of version {before}" in done.stderr
    assert flights("query", "flights", "--count").stdout.strip() == "5"
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
    assert flights("query", "flights", "--count").stdout.strip() == "6"
    refused = flights("restore", "flights", "never", "--force")
    assert (refused.exit_code, "no tag 'never'" in refused.stderr) == (3, True)


def test_a_table_is_restored_in_python_by_number_tag_and_time(
    memory: InMemory, flights: Dormouse
) -> None:
    table = memory.instance.table("flights")
    before = table.state()
    table.tag(before.version, "before")
    for version in (before.version, "before", str(before.version)):
        Path("more.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T10:00:00Z,1\n")
        assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 0
        assert table.count() == 6
        assert table.restore(version) == table.state().version
        assert table.count() == 5
