from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

AA = ("table", "purge", "flights", "--key", "carrier=AA")


def test_purging_shows_what_goes_asks_first_and_proves_it(
    flights: Dormouse, memory: InMemory
) -> None:
    refused = flights(*AA, input="\n")
    assert refused.exit_code == 1
    assert "Remove 2 rows of table flights for good, and rewrite 1 shard? [y/N]" in (refused.stderr)
    assert flights("query", "flights", "--count").stdout == "5\n"
    done = flights(*AA, input="y\n")
    assert done.exit_code == 0, done.output
    assert "it was replaced, and is kept for queries" in done.stdout
    assert flights("query", "flights", "--count").stdout == "3\n"
    early = flights(*AA, "--prove", "--format", "json")
    assert early.exit_code == 1
    proof = json.loads(early.stdout)
    assert (proof["rows_in_table"], proof["objects_that_hold_rows"]) == (0, 1)
    assert proof["remains"][0]["rows"] == 2
    memory.world.settle()
    proved = flights(*AA, "--prove", "--format", "json")
    assert proved.exit_code == 0
    assert json.loads(proved.stdout)["remains"] == []


def test_rows_are_purged_by_a_predicate_and_by_several_keys(flights: Dormouse) -> None:
    done = flights("table", "purge", "flights", "--where", "delay < 0", "--force")
    assert done.exit_code == 0, done.output
    assert flights("query", "flights", "--count").stdout == "4\n"
    keys = ("--key", "carrier=AA,flight=9", "--key", "carrier=UA")
    assert flights("table", "purge", "flights", *keys, "--force").exit_code == 0
    left = flights("query", "flights", "--format", "json").stdout.splitlines()
    assert [json.loads(row)["flight"] for row in left] == [12, 1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "either by a condition or by keys"),
        (("--where", "delay < 0", "--key", "carrier=AA"), "either by a condition or by keys"),
        (("--where", "colour = 'red'"), "colour"),
        (("--key", "flight=12"), "a value for 'carrier' too"),
        (("--key", "delay=12"), "not a row key"),
    ],
)
@pytest.mark.parametrize("option", ["--force", "--prove"])
def test_what_cannot_be_meant_is_refused_in_words(
    flights: Dormouse, arguments: tuple[str, ...], reason: str, option: str
) -> None:
    refused = flights("table", "purge", "flights", *arguments, option)
    assert refused.exit_code == 4
    assert reason in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
