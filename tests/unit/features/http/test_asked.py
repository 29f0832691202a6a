"""Queries that are answered later, as files: who asked them follows, reads and cancels them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from dormouse.access import LOCAL, NOBODY, AccessRule, granted
from dormouse.features.http import forms, queries
from dormouse.features.http import queries as asked
from dormouse.http.messages import HttpResponse
from tests.unit.features.http.conftest import Api

QUERY = "/tables/people/query"
ROWS = {"where": "age < 2", "columns": ["name"]}
LATER = {"prefer": "respond-async, wait=5"}
EVE = "arn:aws:iam::123456789012:user/eve"


def ask(api: Api, path: str = QUERY, body: object = ROWS, **headers: str) -> str:
    """Ask something to be answered later; return where."""
    response = api.ask("POST", path, body, **{**LATER, **headers})
    assert response.status == 202, response.body
    assert response.headers["preference-applied"] == "respond-async"
    location = response.headers["location"]
    assert json.loads(response.body)["location"] == location
    return location


def answered(api: Api, location: str) -> Any:
    work(api)
    return api.get(location)


def work(api: Api) -> None:
    """Let the instance answer all queries that were asked."""
    folder = api.instance.folder
    assert folder is not None
    while folder.worker.step(("queries",)):
        pass


def names(api: Api, found: Any) -> list[str]:
    lines = [
        line for file in found["files"] for line in api.ask("GET", file["url"]).whole.splitlines()
    ]
    return [json.loads(line)["name"] for line in lines]


def grant(api: Api, principal: str, *hidden: str) -> None:
    rule = AccessRule(principal, "people", ("read",), hidden)
    api.instance.services.tables.change_access_rules(lambda rules: granted(rules, rule))


def test_a_query_that_is_answered_later_ends_in_files_of_its_rows(people: Api) -> None:
    location = ask(people)
    assert people.get(location)["state"] == "waiting"
    found = answered(people, location)
    assert (found["state"], found["subject"], found["rows"]) == ("finished", "people", 6)
    assert (found["media_type"], found["versions"]) == ("application/x-ndjson", {"people": [2]})
    assert names(people, found) == [f"n{n:02}" for n in range(6)]
    (listed,) = people.get("/queries")["items"]
    assert (listed["id"], listed["state"]) == (found["id"], "finished")


def test_keys_ranges_and_limits_are_those_of_pages(people: Api) -> None:
    for body in (
        {"keys": [4]},
        {"ranges": [[1, 3], [[8], None]], "keys": [[5]]},
        {"limit": 4},
        {"as_of": 1},
        {},
    ):
        page = people.found("POST", QUERY, {**body, "columns": ["name"]})
        found = answered(people, ask(people, body={**body, "columns": ["name"]}))
        assert found["state"] == "finished"
        assert names(people, found) == [row["name"] for row in page["rows"]], body


@pytest.mark.parametrize("body", [{"where": "agee > 1"}, {"columns": ["x"]}, {"keys": ["a"]}])
def test_what_does_not_fit_the_table_is_refused_at_once(people: Api, body: object) -> None:
    assert people.problem("POST", QUERY, body, **LATER)["status"] == 422
    for nothing in ({"keys": []}, {"columns": []}, {"ranges": []}):
        assert people.problem("POST", QUERY, nothing, **LATER)["status"] == 422
    assert people.problem("POST", QUERY, {}, accept="image/png", **LATER)["status"] == 406


def test_a_statement_is_answered_later_if_its_rows_do_not_fit_into_one_answer(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = {"text": "SELECT name FROM people WHERE age = $1", "parameters": [4]}
    monkeypatch.setattr(forms, "MOST_ANSWER_BYTES", 20)
    response = people.ask("POST", "/sql", statement, accept="application/x-ndjson")
    assert response.status == 202
    found = answered(people, response.headers["location"])
    assert (found["subject"], names(people, found)) == ("SQL", ["n12", "n13", "n14"])


def test_a_statement_that_returns_too_many_rows_is_answered_later(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "STATEMENT_ROWS", 10)
    assert people.ask("POST", "/sql", {"text": "SELECT * FROM people"}).status == 202
    assert people.ask("POST", "/sql", {"text": "SELECT * FROM people LIMIT 9"}).status == 200


def test_a_statement_that_would_read_very_much_is_answered_later_without_being_computed_before(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped = {"text": "SELECT note, count(*) AS n FROM people GROUP BY note"}
    assert people.found("POST", "/sql", grouped)["rows"] == [{"note": None, "n": 30}]
    monkeypatch.setattr(queries, "MOST_READ_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(queries, "_taken", lambda *_, **__: pytest.fail("it was computed"))
        location = people.ask("POST", "/sql", grouped).headers["location"]
    assert answered(people, location)["rows"] == 1
    plain = {"text": "SELECT name FROM people WHERE age = 4"}
    assert people.ask("POST", "/sql", plain).status == 202
    from_the_state = {"text": "SELECT count(*) AS n FROM people"}
    assert people.ask("POST", "/sql", from_the_state).status == 200


def test_a_condition_on_very_much_is_answered_later_and_its_pages_are_not(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = people.found("POST", QUERY, {"where": "note IS NULL", "page_rows": 3})
    monkeypatch.setattr(queries, "MOST_READ_BYTES", 1)
    assert people.ask("POST", QUERY, {"where": "note IS NULL"}).status == 202
    body = {"where": "note IS NULL", "page_rows": 3, "after": page["next"]}
    assert len(people.found("POST", QUERY, body, **LATER)["rows"]) == 3
    assert len(people.found("POST", QUERY, {"page_rows": 3})["rows"]) == 3


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/csv", "text/csv"),
        ("application/vnd.apache.parquet", "application/vnd.apache.parquet"),
        ("image/png, application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("text/csv;q=0.5, application/vnd.apache.parquet", "application/vnd.apache.parquet"),
        ("text/csv;q=0, application/vnd.apache.parquet;q=0.1", "application/vnd.apache.parquet"),
        ("application/json, text/csv;q=0.1", "text/csv"),
        ("application/json", "application/x-ndjson"),
        ("image/png, */*;q=0.1", "application/x-ndjson"),
    ],
)
def test_files_are_of_what_the_client_accepts(people: Api, accept: str, media_type: str) -> None:
    found = answered(people, ask(people, accept=accept))
    assert found["media_type"] == media_type
    response = people.ask("GET", found["files"][0]["url"])
    assert response.headers["content-type"] == media_type
    assert int(response.headers["content-length"]) == len(response.whole)


def test_a_question_is_asked_once_under_one_key(people: Api) -> None:
    key = {"idempotency_key": "monday"}
    assert ask(people, **key) == ask(people, **key)
    assert ask(people, **key) != ask(people, body={}, **key)
    assert ask(people) != ask(people)
    work(people)
    assert len(people.get("/queries")["items"]) == 4


def test_only_who_asked_a_query_sees_it(people: Api) -> None:
    location = ask(people)
    other = Api(people.instance, EVE)
    seen: list[HttpResponse] = []
    for answer_is_there in (False, True):
        if answer_is_there:
            file = answered(people, location)["files"][0]["url"]
            seen.append(other.ask("GET", file))
        seen += [other.ask("GET", location), other.ask("DELETE", location)]
    seen.append(other.ask("GET", "/queries/nothing"))
    assert {response.status for response in seen} == {404}
    assert len({response.body for response in seen}) == 1
    assert other.get("/queries")["items"] == []
    assert answered(people, location)["state"] == "finished"


def test_who_administers_all_tables_by_a_rule_lists_and_cancels_the_queries_of_others(
    people: Api,
) -> None:
    location = ask(people)
    other = Api(people.instance, EVE)
    assert other.problem("GET", "/queries", query="all=true")["status"] == 403  # without rules, too
    grant(people, LOCAL)
    rule = AccessRule(EVE, "people", ("administer",))
    people.instance.services.tables.change_access_rules(lambda rules: granted(rules, rule))
    assert other.problem("GET", "/queries", query="all=true")["status"] == 403
    rule = AccessRule(EVE, "*", ("administer",))
    people.instance.services.tables.change_access_rules(lambda rules: granted(rules, rule))
    work(people)
    (listed,) = other.get("/queries", "all=true")["items"]
    assert (listed["who"], listed["state"]) == (LOCAL, "finished")
    assert other.get("/queries")["items"] == []
    assert other.ask("DELETE", location).status == 202
    for path in (location, f"{location}/files/rows"):  # which only who asked reads
        assert other.ask("GET", path).status == 404


def test_nobody_is_answered_later(people: Api) -> None:
    location = ask(people)
    people.principal = NOBODY
    assert people.problem("POST", QUERY, {}, **LATER)["status"] == 403
    assert people.problem("GET", location)["status"] == 404
    assert people.get("/queries")["items"] == []


def test_a_query_that_nobody_asked_is_none(people: Api) -> None:
    for query in ("x", "x-y", "0" * 32 + "-" + "0" * 12, "%00", "-"):
        assert people.problem("GET", f"/queries/{query}")["status"] == 404
        assert people.problem("DELETE", f"/queries/{query}")["status"] == 404


def test_a_query_is_cancelled_by_who_asked_it(people: Api) -> None:
    location = ask(people)
    assert people.ask("DELETE", location).status == 202
    assert people.get(location)["state"] == "waiting"
    found = answered(people, location)
    assert found["state"] in ("cancelled", "finished")
    assert people.ask("DELETE", location).status == 202  # it has ended: nothing happens
    assert answered(people, location) == found


def test_a_cancelled_query_has_no_result(people: Api) -> None:
    location = ask(people)
    folder = people.instance.folder
    assert folder is not None
    folder.queues.delete(folder.queues.receive("queries", 1))  # it comes too late
    assert people.ask("DELETE", location).status == 202
    found = answered(people, location)
    assert (found["state"], found["files"]) == ("cancelled", [])


def test_rules_say_what_a_query_reads_and_who_reads_its_result(people: Api) -> None:
    grant(people, EVE, "name")
    eve = Api(people.instance, EVE)
    assert eve.problem("POST", QUERY, ROWS, **LATER)["status"] == 422
    location = ask(eve, body={"columns": ["age"]})
    assert answered(eve, location)["rows"] == 30
    secret = ask(eve, "/sql", {"text": "SELECT name FROM people"})
    failed = answered(eve, secret)
    assert (failed["state"], failed["files"]) == ("failed", [])
    grant(people, EVE, "name", "age")
    assert eve.problem("GET", location)["status"] == 403
    people.instance.services.tables.change_access_rules(lambda rules: ())
    assert eve.problem("GET", location)["status"] == 403
    assert eve.problem("GET", f"{location}/files/x")["status"] == 403


HIDDEN_THEN = [
    ("SELECT note AS n, name FROM people", "note"),
    ("SELECT n FROM (SELECT upper(name) AS n FROM people) WHERE n <> 'x'", "name"),
    ("SELECT name FROM people WHERE length(note) IS NULL", "note"),
    ("SELECT max(name) AS n FROM people", "name"),
    ("SELECT count(note) AS n FROM people", "note"),
    ("SELECT name FROM people WHERE age IN (SELECT max(age) FROM people)", "age"),
    ("SELECT a.name FROM people a JOIN people b ON a.name = b.name AND b.age = 4", "age"),
    ("SELECT note AS n, count(*) AS m FROM people GROUP BY 1", "note"),
    ("SELECT name FROM people ORDER BY age DESC, name", "age"),
    ({"columns": ["name"], "where": "age > 3"}, "age"),
    ({}, "note"),
]
STILL_SHOWN = [
    ("SELECT name AS note FROM people", "note"),
    ("SELECT count(*) AS name FROM people", "name"),
    ("SELECT count(*) AS name FROM people", "age"),
    ("SELECT max(age) AS name FROM people GROUP BY age ORDER BY 1", "note"),
    ("SELECT 1 AS name", "name"),
    ({"columns": ["name"], "where": "age > 3"}, "note"),
]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("question", "column", "status"),
    [*((*each, 403) for each in HIDDEN_THEN), *((*each, 200) for each in STILL_SHOWN)],
)
def test_a_result_is_gone_when_a_column_is_hidden_that_was_read_under_whatever_name(
    people: Api, question: str | dict[str, object], column: str, status: int, *, is_cut: bool
) -> None:
    if is_cut:
        finely = {"query_cut_bytes": 1, "query_task_bytes": 1}
        people.instance.set_properties("people", finely)
    grant(people, EVE)
    eve = Api(people.instance, EVE)
    is_sql = isinstance(question, str)
    location = ask(eve, *(("/sql", {"text": question}) if is_sql else (QUERY, question)))
    file = answered(eve, location)["files"][0]["url"]
    grant(people, EVE, column)
    for path in (location, file):
        found = eve.ask("GET", path)
        assert found.status == status
        assert status == 200 or column not in found.body.decode()


def test_a_column_that_got_another_name_and_was_hidden_then_is_not_read(people: Api) -> None:
    grant(people, EVE)
    eve = Api(people.instance, EVE)
    location = ask(eve, "/sql", {"text": "SELECT name FROM people"})
    assert answered(eve, location)["files"]
    people.instance.table("people").alter(rename={"name": "surname"})
    assert eve.get(location)["files"]
    grant(people, EVE, "surname")
    assert eve.problem("GET", location)["status"] == 403


def test_a_table_under_a_name_that_the_caller_may_not_read_is_not_read(people: Api) -> None:
    grant(people, EVE)
    eve = Api(people.instance, EVE)
    location = ask(eve, "/sql", {"text": "SELECT name FROM people"})
    assert answered(eve, location)["files"]
    people.instance.rename_table("people", "staff")
    found = eve.problem("GET", location)
    assert (found["status"], "staff" in json.dumps(found)) == (403, False)


def test_a_result_for_a_token_is_gone_without_rules(people: Api) -> None:
    token = "jwt:https://issuer.example#alice"
    grant(people, token)
    alice = Api(people.instance, token)
    location = ask(alice)
    assert answered(alice, location)["files"]
    people.instance.services.tables.change_access_rules(lambda rules: None)
    assert alice.problem("GET", location)["status"] == 403


def test_what_is_hidden_or_forbidden_of_a_deleted_table_stays_so(people: Api) -> None:
    grant(people, EVE)
    eve = Api(people.instance, EVE)
    location = ask(eve, "/sql", {"text": "SELECT name AS n FROM people"})
    assert answered(eve, location)["files"]
    grant(people, EVE, "name")
    people.instance.delete_table("people")
    people.instance.wait()
    assert eve.problem("GET", location)["status"] == 403
    grant(people, EVE)
    assert eve.get(location)["files"]
    people.instance.services.tables.change_access_rules(lambda _: ())
    assert eve.problem("GET", location)["status"] == 403


def test_a_query_that_failed_says_why_and_faults_of_this_side_are_not_explained(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answered(people, ask(people, "/sql", {"text": "SELECT * FROM nothing"}))
    assert (found["state"], "nothing" in found["reason"]) == ("failed", True)
    table = people.instance.table("people")
    table.ingest(pa.table({"age": [1], "name": ["new"]}))
    locations = [ask(people), ask(people, body={**ROWS, "as_of": 2})]
    storage = people.instance.services.storage
    storage.delete([each.path for each in storage.list(f"{table.table.id}/data/")])
    for location in locations:
        found = answered(people, location)
        assert found["state"] == "failed"
        assert table.table.id not in json.dumps(found)
    problem = people.problem("POST", QUERY, ROWS)
    assert problem["status"] == 500
    assert table.table.id not in json.dumps(problem)
    problem = people.problem("POST", "/sql", {"text": "SELECT name FROM people"})
    assert table.table.id not in json.dumps(problem)


def test_a_result_that_expired_is_gone(people: Api) -> None:
    location = ask(people)
    found = answered(people, location)
    results = people.instance.services.results
    results.delete([each.path for each in results.list("queries/")])
    assert people.problem("GET", location)["status"] == 410
    assert people.problem("GET", found["files"][0]["url"])["status"] == 410


def test_a_question_that_no_message_holds_is_refused(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "MOST_MESSAGE_BYTES", 500)
    body = {"keys": list(range(300))}
    assert people.problem("POST", QUERY, body, **LATER)["status"] == 413


def test_a_function_answers_small_files_alone_and_links_to_all(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answered(people, ask(people))
    (file,) = found["files"]

    def link(path: str, seconds: int) -> str:
        return f"https://bucket/{path}?{seconds}"

    linked = Api(people.instance, LOCAL)
    object.__setattr__(linked.instance, "result_link", link)
    path = f"queries/{found['id']}/{file['url'].rpartition('/')[2]}"
    (shown,) = linked.get(f"/queries/{found['id']}")["files"]
    assert shown["url"] == f"https://bucket/{path}?3600"
    assert linked.ask("GET", file["url"]).status == 200
    monkeypatch.setattr(forms, "MOST_ANSWER_BYTES", 10)
    assert linked.problem("GET", file["url"])["status"] == 413


def test_a_column_hidden_in_another_table_hides_none_of_the_same_name(people: Api) -> None:
    people.instance.create_table("other", "age: long, name: string", row_keys=["age"])
    for table, hidden in (("people", ()), ("other", ("name",))):
        rule = AccessRule(EVE, table, ("read",), hidden)
        people.instance.services.tables.change_access_rules(
            lambda rules, rule=rule: granted(rules, rule)
        )
    eve = Api(people.instance, EVE)
    join = "SELECT p.name, o.age FROM people p LEFT JOIN other o ON o.age = p.age"
    location = ask(eve, "/sql", {"text": join})
    assert answered(eve, location)["rows"] == 30
    grant(people, EVE, "note")
    assert eve.ask("GET", location).status == 200
    people.instance.delete_table("other")
    people.instance.wait()
    assert eve.ask("GET", location).status == 200
    grant(people, EVE, "name")
    assert eve.problem("GET", location)["status"] == 403


def test_a_statement_for_spark_is_answered_later_by_the_instance(people: Api) -> None:
    asked = {"text": "SELECT name FROM people WHERE age = :age", "spark": True}
    response = people.ask("POST", "/sql", {**asked, "parameters": {"age": 3}})
    assert (response.status, people.get(response.headers["location"])["state"]) == (202, "waiting")
    folder = people.instance.folder
    assert folder is not None
    (received,) = folder.queues.receive("queries", 1)
    message = json.loads(received.body)
    assert (message["spark"], message["parameters"]) == ({}, {"age": 3})
    assert message["who"] == people.principal
