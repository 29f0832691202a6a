"""What each route answers, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from dormouse.access import NOBODY
from dormouse.errors import CorruptDataError, UnavailableError
from dormouse.features.http import calls
from dormouse.features.http.serve_http import ROUTES
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.stored.paths import dead_letter_queue
from tests.unit.features.http.conftest import Api

NEW = {"name": "t", "schema": "id: long, name: string?", "row_keys": ["id"]}


def test_a_table_is_created_changed_and_deleted_by_requests(api: Api) -> None:
    assert api.request("POST", "/tables", NEW)["state"] == "finished"
    (table,) = api.get("/tables")["tables"]
    assert (table["name"], table["row_keys"], table["columns"]) == ("t", ["id"], 2)
    column = {"name": "more", "type": "DoubleType", "nullable": True}
    assert api.request("PATCH", "/tables/t", {"add": [column]})["state"] == "finished"
    assert api.request("PATCH", "/tables/t", {"properties": {"compaction_files": 5}})["state"]
    hiding = {"properties": {"filters": "where(false)"}}
    assert api.request("PATCH", "/tables/t", hiding)["state"] == "finished", "it has no rows"
    assert api.request("PATCH", "/tables/t", {"unset": ["filters"]})["state"] == "finished"
    assert api.request("PATCH", "/tables/t", {"online": False})["request"] == "set_online"
    assert api.request("PATCH", "/tables/t", {"new_name": "u"})["state"] == "finished"
    found = api.get("/tables/u")
    assert [field["name"] for field in found["fields"]] == ["id", "name", "more"]
    assert found["online"] is False
    properties = api.get("/tables/u/properties")
    assert properties["compaction_files"] == {"value": 5, "set_by": "table"}
    assert properties["gc_delay_seconds"]["set_by"] == "default"
    assert api.request("DELETE", "/tables/u")["state"] == "finished"
    assert api.get("/tables")["tables"] == []


def test_a_table_is_created_from_a_sample_and_from_a_schema_in_json(api: Api) -> None:
    content = base64.b64encode(b"id,at\n1,2026-01-01\n").decode()
    body = {"name": "s", "sample": {"name": "x.csv", "content": content}, "row_keys": ["id"]}
    assert api.request("POST", "/tables", body)["state"] == "finished"
    schema = api.get("/tables/s/schema")
    assert [field["type"] for field in schema["valueFields"]] == ["DateType"]
    same = {"name": "same", "schema": schema, "split_points": [[5]]}
    assert api.request("POST", "/tables", same)["state"] == "finished"
    assert [each["range"] for each in api.get("/tables/same/partitions")["items"]] == [
        "..id=5",
        "id=5..",
    ]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"name": "a b"}, 422),
        ({"schema": None}, 422),
        ({"schema": "id: what"}, 422),
        ({"properties": {"nothing": 1}}, 422),
        ({"split_points": [["x"]]}, 422),
        ({"sample": {"name": "x.csv", "content": ""}}, 422),
        ({"schema": None, "sample": {"name": "x.exe", "content": ""}}, 422),
        ({"schema": None, "sample": {"name": "x.csv", "content": "é"}}, 422),
        ({"schema": None, "sample": {"name": "x.parquet", "content": "AAAA"}}, 422),
        ({"nothing": 1}, 400),
        ({"row_keys": "id"}, 400),
    ],
)
def test_what_can_be_no_table_is_refused_at_once(
    api: Api, changed: dict[str, Any], status: int
) -> None:
    assert api.problem("POST", "/tables", {**NEW, **changed})["status"] == status


def test_a_request_that_is_refused_later_says_why(api: Api) -> None:
    api.request("POST", "/tables", NEW)
    found = api.request("POST", "/tables", NEW)
    assert (found["state"], "already" in found["reason"]) == ("refused", True)


def test_a_request_under_one_key_is_done_once(api: Api) -> None:
    first = api.ask("POST", "/tables", NEW, idempotency_key="one")
    again = api.ask("POST", "/tables", NEW, idempotency_key="one")
    assert first.headers["location"] == again.headers["location"]
    api.instance.wait()
    assert api.get(first.headers["location"])["state"] == "finished"
    assert api.problem("POST", "/tables", NEW, idempotency_key="x" * 129)["status"] == 400


def test_a_key_that_is_given_to_another_request_keeps_none_from_being_done(people: Api) -> None:
    key, deletion = {"idempotency_key": "one"}, "/tables/people/delete"
    for number in (1, 2):
        assert people.request("POST", deletion, {"keys": [[number]]}, **key)["state"] == "finished"
    assert (
        people.request("POST", "/tables/people/split", {}, **key)["request"] == "split_partitions"
    )
    people.found("POST", "/tables/people/rows", [{"age": 1, "name": "new", "note": None}])
    people.instance.wait()
    people.request("POST", deletion, {"keys": [[1]]}, **key)
    assert people.found("POST", "/tables/people/query", {"keys": [[1], [2]]})["rows"] == [
        {"age": 1, "name": "new", "note": None}
    ]


def test_one_request_makes_one_kind_of_change(api: Api) -> None:
    api.request("POST", "/tables", NEW)
    for body in ({}, {"online": True, "new_name": "v"}, {"drop": ["name"], "online": False}):
        assert api.problem("PATCH", "/tables/t", body)["status"] == 422


@pytest.mark.parametrize("wrong", ["x", "x.y", "-.", "0123.abc", ".a"])
def test_a_request_that_cannot_be_is_not_there(api: Api, wrong: str) -> None:
    response = api.ask("GET", f"/requests/{wrong}")
    assert response.status == 404


def test_rows_are_deleted_by_keys_or_by_a_condition(people: Api) -> None:
    path, count = "/tables/people/delete", {"columns": ["age"]}
    assert people.request("POST", path, {"keys": [[3], [4]]})["state"] == "finished"
    assert len(people.found("POST", "/tables/people/query", count)["rows"]) == 24
    assert people.request("POST", path, {"where": "name < 'n03'"})["state"] == "finished"
    assert len(people.found("POST", "/tables/people/query", count)["rows"]) == 21
    for body in ({}, {"where": "size = 1"}, {"keys": [["x"]]}, {"where": "age = 1", "keys": [[1]]}):
        assert people.problem("POST", path, body)["status"] == 422
    assert people.problem("POST", "/sql", {"text": "DELETE FROM people"})["status"] == 422
    assert len(people.found("POST", "/tables/people/query", count)["rows"]) == 21


def test_parts_of_a_table_are_listed_in_pages(people: Api) -> None:
    for n in range(3):
        people.found("POST", "/tables/people/rows", [{"age": n, "name": "x", "note": None}])
        people.instance.wait()
    every = people.get("/tables/people/shards")
    assert every["next"] == "" and len(every["items"]) == 4
    first = people.get("/tables/people/shards", "limit=3")
    rest = people.get("/tables/people/shards", f"limit=3&after={first['next']}")
    assert first["items"] + rest["items"] == every["items"]
    versions = people.get("/tables/people/versions")["items"]
    assert versions[0]["rows"] == 33
    earlier = people.get("/tables/people/shards", f"as_of={versions[1]['version']}")
    assert len(earlier["items"]) == 3
    assert people.get("/tables/people/status")["rows"] == 33
    assert people.get("/tables/people/metrics")["Shards"] == 4


def test_jobs_and_refused_files_are_listed_with_their_reasons(people: Api) -> None:
    answer = people.ask("PUT", "/tables/people/files/bad.csv", b"age\nsoon\n")
    assert answer.status == 202
    people.instance.wait()
    (refused,) = people.get("/tables/people/refused-files")["items"]
    assert (refused["subject"], refused["state"]) == ("people/bad.csv", "refused")
    assert "name" in refused["reason"]
    shown = people.get("/tables/people/files/bad.csv")
    assert (shown["state"], shown["reason"]) == ("refused", refused["reason"])
    finished = people.get("/tables/people/jobs", "kind=ingest&state=finished")["items"]
    assert 30 in [job["rows"] for job in finished]
    assert people.get("/jobs")["items"] == []


def test_dead_letters_are_shown_and_sent_back(people: Api) -> None:
    queues = people.instance.queues
    change = TableChanged(people.instance.table("people").table.id)
    queues.send([OutboundMessage(dead_letter_queue("table-changes"), change, reason="it failed")])
    (letter,) = people.get("/queues/table-changes/dead-letters")["items"]
    assert letter["reason"] == "it failed"
    states = {each["queue"]: each["dead"] for each in people.get("/queues")["queues"]}
    assert states["table-changes"] == 1
    body = {"ids": [letter["id"]]}
    assert people.request("POST", "/queues/table-changes/redrive", body)["state"] == "finished"
    assert people.get("/queues/table-changes/dead-letters")["items"] == []
    assert people.problem("GET", "/queues/nothing/dead-letters")["status"] == 404


FORMS = {
    "application/json": lambda body: json.loads(body)["rows"],
    "application/x-ndjson": lambda body: [json.loads(line) for line in body.splitlines()],
    "application/vnd.apache.arrow.stream": lambda body: (
        pa.ipc.open_stream(io.BytesIO(body)).read_all().to_pylist()
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_as_the_client_accepts(people: Api, form: str) -> None:
    body = {"keys": [4], "columns": ["name"]}
    response = people.ask("POST", "/tables/people/query", body, accept=f"text/x, {form};q=0.5")
    assert (response.status, response.headers["content-type"]) == (200, form)
    assert FORMS[form](response.body) == [{"name": f"n{n}"} for n in (12, 13, 14)]
    statement = {"text": "SELECT name FROM people WHERE age = :age", "parameters": {"age": 4}}
    assert FORMS[form](people.ask("POST", "/sql", statement, accept=form).body) == [
        {"name": f"n{n}"} for n in (12, 13, 14)
    ]


def test_csv_has_its_continuation_in_a_header(people: Api) -> None:
    response = people.ask("POST", "/tables/people/query", {"page_rows": 2}, accept="text/csv")
    assert response.body == b'"age","name","note"\n0,"n00",\n0,"n01",\n'
    body = {"page_rows": 2, "after": response.headers["dormouse-next"]}
    assert people.found("POST", "/tables/people/query", body)["rows"][0]["name"] == "n02"
    assert response.headers["dormouse-version"] == "2"


def test_what_the_client_accepts_may_be_nothing_that_there_is(people: Api) -> None:
    for accept in ("image/png", "application/json;q=0", "text/csv;q=x"):
        found = people.problem("POST", "/tables/people/query", {}, accept=accept)
        assert found["status"] == 406


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/tables/", None, 404),
        ("GET", "/tables/peopel", None, 404),
        ("GET", "/tables/people/nothing", None, 404),
        ("PUT", "/tables", None, 405),
        ("GET", "/sql", None, 405),
        ("POST", "/tables/people/query", b"{", 415),
        ("POST", "/tables/people/query", {"limit": -1}, 400),
        ("POST", "/tables/people/query", {"limit": True}, 400),
        ("POST", "/tables/people/query", {"keys": [True]}, 400),
        ("POST", "/tables/people/query", {"keys": [["a", 1, 2, 3]]}, 422),
        ("POST", "/tables/people/query", {"keys": ["soon"]}, 422),
        ("POST", "/tables/people/query", {"keys": [[]]}, 422),
        ("POST", "/tables/people/query", {"ranges": [[3, 1]]}, 422),
        ("POST", "/tables/people/query", {"columns": []}, 422),
        ("POST", "/tables/people/query", {"columns": ["nothing"]}, 422),
        ("POST", "/tables/people/query", {"where": "age >"}, 422),
        ("POST", "/tables/people/query", {"as_of": 99}, 404),
        ("POST", "/tables/people/query", {"as_of": "no time"}, 422),
        ("POST", "/sql", {"text": ""}, 400),
        ("POST", "/sql", {"text": "DELETE FROM people"}, 422),
        ("POST", "/sql", {"text": "SELECT * FROM nothing"}, 404),
        ("POST", "/sql", {"text": "SELECT 1 AS n, 2 AS n"}, 422),
        ("GET", "/tables/people/files/nothing.csv", None, 404),
        ("POST", "/tables/people/files", {"name": "../x.csv"}, 422),
        ("POST", "/tables/people/files", {"name": "x.exe"}, 422),
        ("PUT", "/tables/people/files/_x.csv", b"", 422),
    ],
)
def test_what_is_wrong_is_one_problem_that_says_what_to_do(
    people: Api, method: str, path: str, body: object, status: int
) -> None:
    found = people.problem(method, path, body)
    assert (found["status"], found["type"]) == (status, "about:blank")
    assert found["detail"] and found["title"]


def test_unknown_parts_of_a_query_string_are_refused(people: Api) -> None:
    for query in ("limit=x", "nothing=1", "limit=0", "limit=10001"):
        assert people.problem("GET", "/tables/people/shards", query=query)["status"] == 400
    assert people.problem("GET", "/tables", query="nothing=1")["status"] == 400


def test_a_compressed_body_is_refused_as_such(people: Api) -> None:
    body = gzip.compress(b'[{"age": 1, "name": "x", "note": null}]')
    headers = {"content_type": "application/json", "content_encoding": "gzip"}
    found = people.problem("POST", "/tables/people/rows", body, **headers)
    assert (found["status"], found["detail"]) == (415, "the body is encoded as 'gzip'")


def test_a_body_that_is_too_long_is_refused(people: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_BODY_BYTES", 100)
    body = [{"age": 1, "name": "x" * 100, "note": None}]
    assert people.problem("POST", "/tables/people/rows", body)["status"] == 413


def test_a_body_of_11_mb_is_refused_by_each_route_that_takes_one(people: Api) -> None:
    body = json.dumps([{"age": 1, "name": "x" * 11_000_000, "note": None}]).encode()
    for path in ("/tables/people/rows", "/tables/people/query", "/sql", "/tables"):
        found = people.problem("POST", path, body, content_type="application/json")
        assert (found["status"], "people" in found["detail"]) == (413, False), path


def test_a_method_that_a_path_has_not_is_told_those_it_has(api: Api) -> None:
    response = api.ask("PUT", "/tables")
    assert (response.status, response.headers["allow"]) == (405, "GET, POST")
    assert api.ask("HEAD", "/tables").body == b""


@pytest.mark.parametrize(
    ("error", "status"),
    [(CorruptDataError("secret/path is damaged"), 500), (UnavailableError("secret host"), 503)],
)
def test_faults_of_this_side_are_logged_and_not_explained(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr(type(api.instance.services.tables), "list_readable", fail)
    response = api.ask("GET", "/tables")
    assert response.status == status
    assert b"secret" not in response.body and "secret" in response.problem


def test_a_request_that_nobody_sent_is_none_or_is_said_to_be_unknown(people: Api) -> None:
    table_id, unknown = people.instance.table("people").table.id, "0" * 32
    for request in (
        *("x", "x.y", ".", f"{table_id}.", f"{table_id}.1", f"{'0' * 16}.{unknown}"),
        f"{table_id}.{unknown}.{unknown}",
    ):
        assert people.problem("GET", f"/requests/{request}")["status"] == 404
    for table in (table_id, "-"):
        found = people.get(f"/requests/{table}.{unknown}")
        assert (found["state"], "never sent" in found["reason"]) == ("waiting", True)
    location = people.found("POST", "/tables", NEW)["location"]
    assert people.get(location)["state"] == "waiting"
    people.principal = NOBODY
    assert people.get(f"/requests/{table_id}.{unknown}")["state"] == "waiting"
    people.instance.services.tables.change_access_rules(lambda rules: ())
    assert people.problem("GET", f"/requests/{table_id}.{unknown}")["status"] == 404


def test_no_two_routes_fit_one_path() -> None:
    for one in ROUTES:
        path = one.path.replace("{", "").replace("}", "")
        fitting = [each for each in ROUTES if each.method == one.method and each.match(path)]
        exact = [each for each in ROUTES if each.method == one.method and each.path == path]
        assert fitting in ([one], []) or exact == [one]
