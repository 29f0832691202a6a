"""Files and rows that are sent: durable before the answer, and once for each key."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dormouse.errors import HiddenRowsError
from tests.unit.features.http.conftest import Api

ROWS = "/tables/people/rows"
ROW = {"age": 90, "name": "old", "note": None}


def count(api: Api) -> int:
    api.instance.wait()
    return api.instance.table("people").count()


def test_rows_are_in_the_inbox_before_the_answer(people: Api) -> None:
    response = people.ask("POST", ROWS, [ROW, ROW])
    assert response.status == 202
    location = response.headers["location"]
    assert people.get(location)["state"] == "waiting"
    assert count(people) == 32
    assert people.get(location)["state"] == "ingested"


def test_rows_of_one_key_are_added_once(people: Api) -> None:
    for _ in range(3):
        assert people.found("POST", ROWS, [ROW], idempotency_key="k")["rows"] == 1
    lines = json.dumps(ROW, separators=(",", ":")).encode() + b"\n"
    kind = {"content_type": "application/x-ndjson", "idempotency_key": "k"}
    assert people.ask("POST", ROWS, lines, **kind).status == 202
    assert count(people) == 31
    people.found("POST", ROWS, [ROW], idempotency_key="another")
    assert count(people) == 32


def test_of_a_table_that_skips_rows_the_others_are_added_and_the_answer_says_which(
    people: Api,
) -> None:
    bad = {**ROW, "age": "old"}
    assert people.problem("POST", ROWS, [ROW, bad])["status"] == 422
    people.instance.set_properties("people", {"ingest_on_error": "skip"})
    found = people.found("POST", ROWS, [ROW, bad])
    assert (found["rows"], found["rejected"], len(found["reasons"])) == (1, 1, 1)
    assert people.problem("POST", ROWS, [bad])["status"] == 422
    assert count(people) == 31


def test_properties_that_would_hide_rows_are_set_if_that_is_said(people: Api) -> None:
    change = {"properties": {"filters": "where(age > 1000)"}}
    assert "would hide 30 of the 30" in people.problem("PATCH", "/tables/people", change)["detail"]
    with pytest.raises(HiddenRowsError):
        people.instance.set_properties("people", change["properties"])
    assert count(people) == 30
    assert people.request("PATCH", "/tables/people", {**change, "hide_rows": True})["state"]
    assert count(people) == 0


@pytest.mark.parametrize("key", ["", " ", "k" * 129])
def test_a_key_that_is_none_is_refused(people: Api, key: str) -> None:
    """A program that lost its key would else add the same rows with each retry."""
    assert people.problem("POST", ROWS, [ROW], idempotency_key=key)["status"] == 400
    assert count(people) == 30


def test_other_rows_under_one_key_are_refused(people: Api) -> None:
    people.found("POST", ROWS, [ROW], idempotency_key="k")
    other = {**ROW, "name": "older"}
    found = people.problem("POST", ROWS, [other], idempotency_key="k")
    assert (found["status"], "Idempotency-Key" in found["detail"]) == (422, True)
    assert count(people) == 31
    count(people)
    assert people.problem("POST", ROWS, [other], idempotency_key="k")["status"] == 422


def test_a_key_belongs_to_the_table_whatever_it_is_called_and_is_forgotten_with_its_rows(
    people: Api,
) -> None:
    assert not people.found("POST", ROWS, [ROW], idempotency_key="k")["known"]
    assert count(people) == 31
    people.instance.rename_table("people", "folk")
    assert people.found("POST", "/tables/folk/rows", [ROW], idempotency_key="k")["known"]
    people.instance.rename_table("folk", "people")
    assert count(people) == 31
    people.instance.reinitialise_table("people")
    assert not people.found("POST", ROWS, [ROW], idempotency_key="k")["known"]
    assert count(people) == 1


def test_of_writers_with_one_key_side_by_side_one_adds_its_rows(people: Api) -> None:
    begun = threading.Barrier(8)

    def write(writer: int) -> int:
        begun.wait()
        row = {**ROW, "name": f"writer {writer % 2}"}
        return people.ask("POST", ROWS, [row], idempotency_key="k").status

    with ThreadPoolExecutor(8) as threads:
        found = sorted(threads.map(write, range(8)))
    assert found == [202] * 4 + [422] * 4
    assert count(people) == 31


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([{"age": "x"}], 422),
        ([{"age": 1, "name": None, "note": None}], 422),
        ([{**ROW, "unknown": 1}], 422),
        ({"age": 1}, 400),
        (["x"], 422),
    ],
)
def test_rows_that_do_not_fit_are_refused_at_once(people: Api, body: object, status: int) -> None:
    assert people.problem("POST", ROWS, body)["status"] == status
    assert count(people) == 30


def test_large_whole_numbers_keep_their_digits(people: Api) -> None:
    people.found("POST", ROWS, [{**ROW, "age": 2**63 - 1}])
    assert count(people) == 31
    found = people.found("POST", "/tables/people/query", {"keys": [2**63 - 1]})
    assert [row["age"] for row in found["rows"]] == [2**63 - 1]


def test_a_file_is_uploaded_where_the_answer_says(people: Api) -> None:
    upload = people.found("POST", "/tables/people/files", {"name": "a b.csv"})
    assert (upload["url"], upload["method"]) == ("/tables/people/files/a%20b.csv", "PUT")
    assert people.ask("GET", upload["location"]).status == 404
    content = b"age,name,note\n1,x,\n"
    assert people.ask("PUT", upload["url"], content, content_type="text/csv").status == 202
    assert count(people) == 31
    assert people.get(upload["location"]) | {"dropped_ms": 0} == {
        "name": "a b.csv",
        "state": "ingested",
        "size_bytes": len(content),
        "dropped_ms": 0,
        "reason": "",
    }
