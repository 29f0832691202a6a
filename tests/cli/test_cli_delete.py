from __future__ import annotations

import pytest

from tests.cli.conftest import Dormouse


def test_deleting_says_how_many_rows_it_hides_and_asks_first(flights: Dormouse) -> None:
    refused = flights("delete", "flights", "--key", "carrier=AA", input="\n")
    assert refused.exit_code == 1
    assert "Delete 2 rows of table flights? [y/N]" in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
    done = flights("delete", "flights", "--key", "carrier=AA", input="y\n")
    assert done.exit_code == 0, done.output
    assert flights("query", "flights", "--count").stdout == "3\n"
    assert flights("delete", "flights", "--where", "delay < 0", "--force").exit_code == 0
    left = flights("sql", "SELECT count(*) AS n FROM flights", "--format", "csv")
    assert left.stdout.split() == ['"n"', "2"]


def test_a_delete_in_sql_answers_with_the_version_without_the_rows(flights: Dormouse) -> None:
    statement = "/* early */ DELETE FROM flights WHERE delay < 0;"
    refused = flights("sql", statement, input="\n")
    assert refused.exit_code == 1
    assert "Delete 1 row of table flights? [y/N]" in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
    done = flights("sql", statement, "--force", "--format", "csv")
    assert done.exit_code == 0, done.output
    name, version = done.stdout.split()
    assert name == '"version"'
    assert flights("query", "flights", "--count").stdout == "4\n"
    earlier = str(int(version) - 1)
    assert flights("query", "flights", "--count", "--as-of", earlier).stdout == "5\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "either by a condition or by keys"),
        (("--where", "delay < 0", "--key", "carrier=AA"), "either by a condition or by keys"),
        (("--where", "colour = 'red'"), "colour"),
        (("--key", "delay=12"), "not a row key"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(
    flights: Dormouse, arguments: tuple[str, ...], reason: str
) -> None:
    refused = flights("delete", "flights", *arguments, "--force")
    assert refused.exit_code == 4
    assert reason in refused.stderr
    assert flights("query", "flights", "--count").stdout == "5\n"
