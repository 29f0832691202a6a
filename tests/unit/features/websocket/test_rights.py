"""Who may read the pages of a statement: those who may read all that its parts have read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dormouse.access import AccessRule
from dormouse.features.websocket import Place, token_of
from tests.unit.features.websocket.conftest import Client
from tests.unit.features.websocket.test_bad_frames import EVE, connected, grant

STATEMENTS = [
    "SELECT age, count(*) AS n FROM people GROUP BY age",
    "SELECT name FROM people ORDER BY name DESC",
]
CUT_FINELY = {"query_cut_bytes": 1, "query_task_bytes": 1}
READ = AccessRule(EVE, "people", ("read",))


def answered_query(client: Client, statement: str) -> str:
    """Ask a statement, and let it be answered; return the id of the query."""
    query_id, _ = client.query(sql=statement)
    client.work()
    assert client.ask("page", query_id=query_id)[0]["count"]
    return query_id


@pytest.mark.parametrize("statement", STATEMENTS)
def test_pages_of_a_statement_end_when_a_rule_is_taken_away(cut: Client, statement: str) -> None:
    grant(cut, READ)
    eve = connected(cut, EVE)
    query_id = answered_query(eve, statement)
    cut.instance.services.tables.change_access_rules(lambda rules: ())
    found = eve.problem("page", query_id=query_id)
    assert found["status"] == 403
    assert "people" not in json.dumps(found)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_pages_of_a_statement_end_when_its_table_is_deleted(cut: Client, statement: str) -> None:
    query_id = answered_query(cut, statement)
    cut.instance.delete_table("people")
    cut.instance.wait()
    found = cut.problem("page", query_id=query_id)
    assert (found["status"], found["detail"]) == (410, "a table of this query was deleted")


@pytest.mark.parametrize("statement", ["SELECT name FROM people LIMIT 3", *STATEMENTS])
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


HIDDEN_THEN = [
    ({"sql": "SELECT note AS n, name FROM people"}, "note"),
    ({"sql": "SELECT n FROM (SELECT upper(name) AS n FROM people) WHERE n <> 'x'"}, "name"),
    ({"sql": "SELECT name FROM people WHERE age > 3"}, "age"),
    ({"sql": "SELECT name FROM people WHERE length(note) IS NULL"}, "note"),
    ({"sql": "SELECT max(name) AS n FROM people"}, "name"),
    ({"sql": "SELECT count(note) AS n FROM people"}, "note"),
    ({"sql": "SELECT name FROM people WHERE age IN (SELECT max(age) FROM people)"}, "age"),
    ({"sql": "SELECT a.name FROM people a JOIN people b ON a.name = b.name AND b.age = 4"}, "age"),
    ({"sql": "SELECT note AS n, count(*) AS m FROM people GROUP BY 1"}, "note"),
    ({"sql": "SELECT name FROM people ORDER BY age DESC, name"}, "age"),
    ({"table": "people", "selection": {"columns": ["name"], "where": "age > 3"}}, "age"),
    ({"table": "people"}, "note"),
]
STILL_SHOWN = [
    ({"sql": "SELECT name AS note FROM people"}, "note"),
    ({"sql": "SELECT count(*) AS name FROM people"}, "name"),
    ({"sql": "SELECT max(age) AS name FROM people GROUP BY age ORDER BY 1"}, "note"),
    ({"sql": "SELECT 1 AS name"}, "name"),
    ({"table": "people", "selection": {"columns": ["name"], "where": "age > 3"}}, "note"),
]


def after_hiding(client: Client, asked: dict[str, object], column: str) -> dict[str, Any]:
    """Return what answers a caller who asks for rows, from whom a column is hidden then."""
    grant(client, READ)
    eve = connected(client, EVE)
    query_id, _ = eve.query(**asked)
    eve.work()
    assert eve.ask("page", query_id=query_id)[0]["count"]
    grant(client, AccessRule(EVE, "people", ("read",), (column,)))
    return eve.ask("page", query_id=query_id)[0]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(("asked", "column"), HIDDEN_THEN)
def test_pages_end_when_a_column_is_hidden_that_was_read_under_whatever_name(
    client: Client, asked: dict[str, object], column: str, *, is_cut: bool
) -> None:
    if is_cut:
        client.instance.set_properties("people", CUT_FINELY)
    found = after_hiding(client, asked, column)
    assert (found["type"], found["status"]) == ("problem", 403)
    assert column not in json.dumps(found)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(("asked", "column"), STILL_SHOWN)
def test_pages_go_on_when_a_column_is_hidden_that_was_not_read(
    client: Client, asked: dict[str, object], column: str, *, is_cut: bool
) -> None:
    if is_cut:
        client.instance.set_properties("people", CUT_FINELY)
    assert after_hiding(client, asked, column)["type"] == "page"


def test_a_column_that_got_another_name_and_was_hidden_then_ends_pages(client: Client) -> None:
    grant(client, READ)
    eve = connected(client, EVE)
    query_id, _ = eve.query(sql="SELECT name FROM people")
    eve.work()
    client.instance.table("people").alter(rename={"name": "surname"})
    assert eve.ask("page", query_id=query_id)[0]["count"]
    grant(client, AccessRule(EVE, "people", ("read",), ("surname",)))
    assert eve.problem("page", query_id=query_id)["status"] == 403


def test_a_table_under_a_name_that_the_caller_may_not_read_ends_pages(client: Client) -> None:
    grant(client, READ)
    eve = connected(client, EVE)
    query_id, _ = eve.query(sql="SELECT name FROM people")
    eve.work()
    client.instance.rename_table("people", "staff")
    found = eve.problem("page", query_id=query_id)
    assert (found["status"], "staff" in json.dumps(found)) == (403, False)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_pages_for_a_token_end_without_rules(cut: Client, statement: str) -> None:
    token = "jwt:https://issuer.example#alice"
    grant(cut, AccessRule(token, "people", ("read",)))
    alice = connected(cut, token)
    query_id = answered_query(alice, statement)
    cut.instance.services.tables.change_access_rules(lambda rules: None)
    assert alice.problem("page", query_id=query_id)["status"] == 403
