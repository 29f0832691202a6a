"""Who may read the pages of a statement that is cut: its final part names no table itself."""

from __future__ import annotations

import json

import pytest

from dormouse.access.rules import AccessRule
from dormouse.features.queries.stored import load_query
from dormouse.features.websocket.tokens import Place, token_of
from tests.unit.features.websocket.conftest import Client
from tests.unit.features.websocket.test_bad_frames import EVE, connected, grant

CUT = [
    "SELECT age, count(*) AS n FROM people GROUP BY age",
    "SELECT name FROM people ORDER BY name DESC",
]
READ = AccessRule(EVE, "people", ("read",))


def with_final_part(client: Client, statement: str) -> str:
    """Ask a statement, and let all its parts be answered; return the id of the query."""
    query_id, _ = client.query(sql=statement)
    client.work()
    query = load_query(client.instance.services.results, query_id)
    assert query is not None and query.final_task
    assert client.ask("page", query_id=query_id)[0]["count"]
    return query_id


@pytest.mark.parametrize("statement", CUT)
def test_pages_of_a_statement_that_is_cut_end_when_a_rule_is_taken_away(
    cut: Client, statement: str
) -> None:
    grant(cut, READ)
    eve = connected(cut, EVE)
    query_id = with_final_part(eve, statement)
    cut.instance.services.tables.change_access_rules(lambda rules: ())
    found = eve.problem("page", query_id=query_id)
    assert found["status"] == 403
    assert "people" not in json.dumps(found)


@pytest.mark.parametrize("statement", CUT)
def test_pages_of_a_statement_that_is_cut_end_when_its_table_is_deleted(
    cut: Client, statement: str
) -> None:
    query_id = with_final_part(cut, statement)
    cut.instance.delete_table("people")
    cut.instance.wait()
    found = cut.problem("page", query_id=query_id)
    assert (found["status"], found["detail"]) == (410, "a table of this query was deleted")


@pytest.mark.parametrize("statement", ["SELECT name FROM people LIMIT 3", *CUT])
def test_the_page_after_the_last_row_needs_the_right_to_read_too(
    cut: Client, statement: str
) -> None:
    grant(cut, READ)
    eve = connected(cut, EVE)
    query_id, _ = eve.query(sql=statement)
    eve.work()
    after = token_of(Place(query=query_id, task=9))
    assert eve.one("page", query_id=query_id, after=after)["columns"]
    cut.instance.services.tables.change_access_rules(lambda rules: ())
    assert eve.problem("page", query_id=query_id, after=after)["status"] == 403
