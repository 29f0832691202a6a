"""What a caller is answered whom the access rules of the instance name, and one whom none names."""

from __future__ import annotations

import json

import pytest

from dormouse.access import NOBODY, AccessRule, Verb, granted
from tests.unit.features.http.conftest import Api

EVE = "arn:aws:iam::123456789012:user/eve"
QUERY = "/tables/people/query"


def grant(api: Api, *verbs: Verb, tables: str = "people", hidden: tuple[str, ...] = ()) -> Api:
    """Grant something to Eve, and ask as her from then on."""
    rule = AccessRule(EVE, tables, verbs, hidden)
    api.instance.services.tables.change_access_rules(lambda rules: granted(rules, rule))
    api.principal = EVE
    return api


@pytest.mark.parametrize("principal", [EVE, NOBODY])
def test_who_may_do_nothing_with_a_table_gets_what_one_gets_of_no_table(
    people: Api, principal: str
) -> None:
    grant(people, "administer", tables="other")
    people.principal = principal
    for method, path, body in (
        ("GET", "/tables/{}", None),
        ("GET", "/tables/{}/shards", None),
        ("POST", "/tables/{}/query", {}),
        ("POST", "/tables/{}/rows", []),
        ("PATCH", "/tables/{}", {"online": True}),
        ("DELETE", "/tables/{}", None),
        ("POST", "/sql", {"text": "SELECT * FROM {}"}),
    ):
        seen = []
        for name in ("people", "nobody"):
            sent = json.loads(json.dumps(body).replace("{}", name)) if body != {} else {}
            problem = people.problem(method, path.format(name), sent)
            assert problem["status"] == 404
            seen.append(json.dumps(problem).replace(name, "NAME"))
        assert seen[0] == seen[1]
    assert people.get("/tables")["tables"] == []


def test_each_verb_is_for_its_routes_alone(people: Api) -> None:
    grant(people, "read")
    assert len(people.found("POST", QUERY, {})["rows"]) == 30
    assert people.problem("POST", "/tables/people/rows", [])["status"] == 403
    assert people.problem("POST", "/tables/people/delete", {"where": "true"})["status"] == 403
    assert people.problem("DELETE", "/tables/people")["status"] == 403
    assert people.problem("POST", "/tables", {"name": "x", "schema": "a: int"})["status"] == 403
    grant(people, "write")
    row = {"age": 1, "name": "x", "note": None}
    location = people.found("POST", "/tables/people/rows", [row])["location"]
    assert people.get(location)["state"] == "waiting"
    assert people.problem("POST", QUERY, {})["status"] == 403
    grant(people, "administer")
    assert people.request("PATCH", "/tables/people", {"online": False})["state"] == "finished"
    rename = {"new_name": "elsewhere"}
    assert people.problem("PATCH", "/tables/people", rename)["status"] == 403
    for path in ("/jobs", "/queues", "/queues/files/dead-letters"):
        assert people.problem("GET", path)["status"] == 403
    grant(people, "read", "administer", tables="*")
    for path in ("/jobs", "/queues", "/queues/files/dead-letters"):
        people.get(path)


def test_a_hidden_column_is_nowhere(people: Api) -> None:
    grant(people, "read", hidden=("name",))
    people.instance.set_properties("people", {"filters": "where(name <> 'n00')"}, hide_rows=True)
    answers = [
        people.ask("GET", f"/tables/people{part}").body
        for part in ("", "/schema", "/properties", "/jobs", "/partitions", "/shards")
    ]
    answers.append(people.ask("POST", QUERY, {}).body)
    answers.append(people.ask("POST", "/sql", {"text": "SELECT * FROM people"}).body)
    for answer in answers:
        assert b'"name":"name"' not in answer and b"n00" not in answer and b"n01" not in answer
    for question in ({"columns": ["name"]}, {"where": "name = 'n01'"}):
        problem = people.problem("POST", QUERY, question)
        assert (problem["status"], "columns: age, note" in problem["hint"]) == (422, True)
    problem = people.problem("POST", "/sql", {"text": "SELECT name FROM people"})
    assert problem["status"] == 422


def test_rows_are_counted_for_whom_keys_are_hidden_from(people: Api) -> None:
    people.instance.table("people").delete(where="age = 2")
    grant(people, "read", hidden=("age",))
    found = people.ask("POST", "/sql", {"text": "SELECT count(*) AS n FROM people"})
    assert json.loads(found.body)["rows"] == [{"n": 27}]


@pytest.mark.parametrize("row", [{"age": 1, "note": None}, {"age": 1, "name": None, "note": None}])
def test_rows_that_do_not_fit_name_no_hidden_column(people: Api, row: object) -> None:
    seen = people.problem("POST", "/tables/people/rows", [row])
    assert "name" in seen["detail"]
    grant(people, "read", "write", hidden=("name",))
    problem = people.problem("POST", "/tables/people/rows", [row])
    assert problem["status"] == 422
    assert "name" not in problem["detail"] and "'name'" not in json.dumps(problem)


def test_files_and_jobs_name_no_hidden_column(people: Api) -> None:
    people.ask("PUT", "/tables/people/files/bad.csv", b"age\nsoon\n")
    people.instance.wait()
    assert "'name'" in people.get("/tables/people/files/bad.csv")["reason"]
    grant(people, "read", "write", tables="*", hidden=("name",))
    shown = people.get("/tables/people/files/bad.csv")
    assert (shown["state"], "'name'" in shown["reason"]) == ("refused", False)
    jobs = ("/jobs", "/tables/people/jobs", "/tables/people/refused-files")
    found = [job for path in jobs for job in people.get(path)["items"]]
    assert found and {job["reason"] for job in found} == {""}


def test_pages_of_a_table_whose_keys_are_hidden_name_no_key(people: Api) -> None:
    grant(people, "read", hidden=("age",))
    rows, after = [], ""
    while True:
        page = people.found("POST", QUERY, {"page_rows": 7, "after": after})
        rows += page["rows"]
        if not (after := page["next"]):
            break
    assert [row["name"] for row in rows] == [f"n{n:02}" for n in range(30)]
    assert people.problem("POST", QUERY, {"keys": [3]})["status"] == 422
    for part in ("partitions", "shards"):
        assert people.problem("GET", f"/tables/people/{part}")["status"] == 403


def test_a_page_is_refused_once_the_rule_is_gone(people: Api) -> None:
    grant(people, "read")
    after = people.found("POST", QUERY, {"page_rows": 5})["next"]
    people.instance.services.tables.change_access_rules(lambda rules: ())
    assert people.problem("POST", QUERY, {"page_rows": 5, "after": after})["status"] == 404


def test_no_condition_of_a_deletion_names_a_hidden_column(people: Api) -> None:
    """Which rows are gone would tell what is in it."""
    grant(people, "write", "read", hidden=("name",))
    hidden = people.problem("POST", "/tables/people/delete", {"where": "name = 'n01'"})
    unknown = people.problem("POST", "/tables/people/delete", {"where": "nope = 'n01'"})
    assert (hidden["status"], unknown["status"]) == (422, 422)
    assert hidden["detail"].replace("name", "nope") == unknown["detail"]
    assert len(people.found("POST", QUERY, {})["rows"]) == 30
