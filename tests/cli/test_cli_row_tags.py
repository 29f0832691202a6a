"""Row tags on the command line: given at ingest, listed, asked for, deleted by."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def test_files_are_ingested_with_tags_which_are_listed_and_found(flights: Dormouse) -> None:
    Path("more.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n")
    given = ("--tag", "day=2026-01-31", "--tag", "by=a b")
    assert flights("ingest", "flights", "more.csv", *given, "--wait").exit_code == 0
    listed = flights("row-tags", "flights", "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in listed] == [
        {"tags": {}, "rows": 5},
        {"tags": {"by": "a b", "day": "2026-01-31"}, "rows": 1},
    ]
    assert "by=a b, day=2026-01-31" in flights("row-tags", "flights").stdout
    where = "tag('by') = 'a b'"
    assert flights("query", "flights", "--where", where, "--count").stdout == "1\n"
    assert flights("delete", "flights", "--where", where, "--force").exit_code == 0
    assert flights("query", "flights", "--count").stdout == "5\n"


def test_objects_in_the_bucket_get_tags_too(flights: Dormouse, memory: InMemory) -> None:
    body = b"carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n"
    memory.world.sources.drop("landing/a.csv", body)
    assert (
        flights("ingest", "flights", "--prefix", "landing", "--tag", "n=1", "--wait").exit_code == 0
    )
    assert flights("query", "flights", "--where", "tag('n') = '1'", "--count").stdout == "1\n"


def test_what_is_no_tag_is_refused_before_the_upload(flights: Dormouse, memory: InMemory) -> None:
    before = dict(memory.world.sources.objects)
    for given in (["a"], ["a=1", "a=2"], ["a b=1"], ["a="]):
        options = [part for tag in given for part in ("--tag", tag)]
        result = flights("ingest", "flights", "rows.csv", *options)
        assert result.exit_code != 0 and "row tag" in result.stderr, given
    assert memory.world.sources.objects == before
