"""Pages of a query: every row once, of one version; and continuations that fit no more."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dormouse.features.http import forms, queries
from dormouse.features.http.forms import sealed, unsealed
from tests.unit.features.http.conftest import Api

QUERY = "/tables/people/query"


def pages(api: Api, **question: Any) -> list[list[dict[str, Any]]]:
    found, after = [], ""
    while True:
        page = api.found("POST", QUERY, {**question, "after": after})
        found.append(page["rows"])
        if not (after := page["next"]):
            return found


def names(found: list[list[dict[str, Any]]]) -> list[str]:
    return [row["name"] for page in found for row in page]


ALL = [f"n{n:02}" for n in range(30)]


@pytest.mark.parametrize("page_rows", [1, 2, 3, 4, 7, 29, 30, 31])
def test_pages_have_each_row_once_though_keys_repeat(people: Api, page_rows: int) -> None:
    found = pages(people, columns=["name"], page_rows=page_rows)
    assert names(found) == ALL
    assert {len(page) for page in found[:-1]} <= {page_rows}
    assert 1 <= len(found[-1]) <= page_rows
    assert all(set(row) == {"name"} for page in found for row in page)


def test_a_limit_is_of_all_pages(people: Api) -> None:
    found = pages(people, columns=["name"], page_rows=4, limit=10)
    assert [len(page) for page in found] == [4, 4, 2]
    assert names(found) == ALL[:10]
    assert names(pages(people, limit=0)) == []


def test_ranges_and_keys_and_conditions_are_those_of_all_pages(people: Api) -> None:
    question = {"ranges": [[1, 3], [[8], None]], "keys": [5], "where": "name <> 'n04'"}
    expected = [ALL[n] for n in (3, 5, 6, 7, 8, 15, 16, 17, *range(24, 30))]
    assert names(pages(people, page_rows=2, **question)) == expected
    assert names(pages(people, keys=[])) == []


def test_all_pages_are_of_the_version_of_the_first(people: Api) -> None:
    first = people.found("POST", QUERY, {"page_rows": 20})
    people.found("POST", "/tables/people/rows", [{"age": 8, "name": "late", "note": None}])
    people.instance.wait()
    second = people.found("POST", QUERY, {"page_rows": 20, "after": first["next"]})
    assert second["version"] == first["version"]
    assert names([first["rows"], second["rows"]]) == ALL
    assert len(people.found("POST", QUERY, {})["rows"]) == 31


def test_large_rows_make_short_pages(people: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MOST_ANSWER_BYTES", 700)
    found = pages(people, page_rows=30)
    assert len(found) > 3
    assert names(found) == ALL


def test_a_row_that_no_answer_can_hold_is_refused(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MOST_ANSWER_BYTES", 50)
    assert people.problem("POST", QUERY, {})["status"] == 413


def test_a_slow_query_is_answered_in_time_with_what_there_is(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ANSWER_MS", -1)
    for n in range(3):  # another shard each, and so another batch
        rows = [{"age": 50 + n, "name": f"x{n}", "note": None}]
        people.found("POST", "/tables/people/rows", rows)
        people.instance.wait()
    found = pages(people, columns=["name"])
    assert names(found) == [*ALL, "x0", "x1", "x2"]


def continuation(people: Api) -> str:
    return str(people.found("POST", QUERY, {"page_rows": 5})["next"])


def test_a_damaged_continuation_is_refused(people: Api) -> None:
    good = continuation(people)
    raw = bytearray(base64.urlsafe_b64decode(good + "=" * (-len(good) % 4)))
    raw[-5] ^= 1
    changed = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    for bad in (changed, good[:-3], "x", "é", "a" * 5000, good + "!"):
        found = people.problem("POST", QUERY, {"after": bad})
        assert (found["status"], "continuation" in found["detail"]) == (400, True)


@pytest.mark.parametrize("name", ["repeats", "given", "version", "time_ms"])
def test_a_continuation_that_counts_below_zero_is_refused(people: Api, name: str) -> None:
    said = json.loads(unsealed(continuation(people)))
    after = sealed(json.dumps({**said, name: -1}).encode())
    assert people.problem("POST", QUERY, {"after": after})["status"] == 400


@pytest.mark.parametrize("name", ["keys", "ranges"])
def test_more_keys_or_ranges_than_a_page_can_look_at_are_refused(people: Api, name: str) -> None:
    one = 1 if name == "keys" else [1, 2]
    assert people.problem("POST", QUERY, {name: [one] * 50_001})["status"] == 400
    assert len(people.found("POST", QUERY, {name: [one] * 1000})["rows"]) == 3


def test_a_continuation_of_another_question_is_refused(people: Api) -> None:
    after = continuation(people)
    for other in ({"where": "age > 3"}, {"columns": ["age"]}, {"limit": 7}, {"keys": [1]}):
        found = people.problem("POST", QUERY, {"after": after, **other})
        assert (found["status"], "another question" in found["detail"]) == (422, True)


def test_a_continuation_of_another_table_is_refused_without_its_name(people: Api) -> None:
    after = continuation(people)
    people.instance.create_table("others", people.instance.table("people").schema)
    found = people.problem("POST", "/tables/others/query", {"after": after})
    assert found["status"] == 422
    assert "another table" in found["detail"] and "people" not in json.dumps(found)


def test_a_continuation_of_a_version_that_is_gone_says_so(people: Api) -> None:
    after = continuation(people)
    people.instance.table("people").rebuild()
    found = people.problem("POST", QUERY, {"after": after})
    assert (found["status"], "not kept" in found["detail"]) == (410, True)


def test_a_table_deleted_while_its_page_is_open_is_not_there(people: Api) -> None:
    after = continuation(people)
    people.instance.delete_table("people")
    assert people.problem("POST", QUERY, {"after": after})["status"] == 404


def test_decimal_keys_are_sent_as_numbers_or_text_and_answered_as_text(api: Api) -> None:
    schema = {"schema": "price: decimal(38,20), n: long", "row_keys": ["price"]}
    points = [[-1.25], ["0.5"], [10**17]]
    api.request("POST", "/tables", {"name": "prices", **schema, "split_points": points})
    assert len(api.instance.table("prices").partitions()) == 4
    texts = ["-1.5", "0", "0.12345678901234567", "2", "99999999999999999"]
    rows = [{"price": text, "n": n} for n, text in enumerate(texts)]
    api.found("POST", "/tables/prices/rows", rows)
    api.instance.wait()

    def numbers(**question: Any) -> list[int]:
        found, after = [], ""
        while True:
            page = api.found("POST", "/tables/prices/query", {**question, "after": after})
            found += [row["n"] for row in page["rows"]]
            if not (after := page["next"]):
                return found

    assert numbers(page_rows=1) == [0, 1, 2, 3, 4]
    assert numbers(keys=[-1.5, [2], "2.000", texts[2], int(texts[4])]) == [0, 2, 3, 4]
    assert numbers(ranges=[[-1.5, 2.5], ["3", None]], page_rows=1) == [0, 1, 2, 3, 4]
    (shown,) = api.found("POST", "/tables/prices/query", {"keys": [-1.5]})["rows"]
    assert shown["price"] == "-1.50000000000000000000"
    for key in (0.12345678901234567, "1e30", "NaN", True, "0.000000000000000000001"):
        assert api.problem("POST", "/tables/prices/query", {"keys": [key]})["status"] in (400, 422)
    api.request("POST", "/tables/prices/delete", {"keys": [-1.5, [2], [texts[2]]]})
    assert numbers() == [1, 4]
