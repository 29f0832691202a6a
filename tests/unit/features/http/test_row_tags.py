"""Row tags over HTTP."""

from __future__ import annotations

from dormouse.access import AccessRule
from tests.unit.features.http.conftest import Api

ROW = [{"age": 77, "name": "Hazel"}]
TAGGED = "tag=day%3D1&tag=by%3Da%20b"


def test_rows_and_files_get_tags_which_are_listed_found_and_deleted_by(people: Api) -> None:
    found = people.found("POST", "/tables/people/rows", ROW, query=TAGGED)
    people.instance.wait()
    path, _, query = found["location"].partition("?")
    assert people.get(path, query)["state"] == "ingested"
    body = {"name": "a.csv", "tags": {"day": "2"}}
    upload = people.found("POST", "/tables/people/files", body)
    path, _, query = upload["url"].partition("?")
    put = people.ask("PUT", path, b"age,name\n78,Bigwig\n", query=query)
    assert put.status == 202, put.body
    people.instance.wait()
    path, _, query = upload["location"].partition("?")
    assert people.get(path, query) | {"dropped_ms": 0} == {
        "name": "a.csv",
        "state": "ingested",
        "size_bytes": 19,
        "dropped_ms": 0,
        "reason": "",
    }
    assert people.get("/tables/people/row-tags")["items"] == [
        {"tags": {}, "rows": 30},
        {"tags": {"by": "a b", "day": "1"}, "rows": 1},
        {"tags": {"day": "2"}, "rows": 1},
    ]
    where = {"where": "tag('day') IN ('1', '2')"}
    page = people.found("POST", "/tables/people/query", where)
    assert [row["name"] for row in page["rows"]] == ["Hazel", "Bigwig"]
    sql = {"text": "SELECT tag('by') AS b, * FROM people WHERE tag('day') = '1'"}
    (row,) = people.found("POST", "/sql", sql)["rows"]
    assert row == {"b": "a b", "age": 77, "name": "Hazel", "note": None}
    done = people.request("POST", "/tables/people/delete", {"where": "tag('day') = '1'"})
    assert done["state"] == "finished"
    assert people.found("POST", "/tables/people/query", where)["rows"][0]["name"] == "Bigwig"


def test_rows_of_one_idempotency_key_are_added_once_whatever_their_tags(people: Api) -> None:
    for query in ("tag=day%3D1", "tag=day%3D1", "tag=day%3D2"):
        people.found("POST", "/tables/people/rows", ROW, query=query, idempotency_key="k")
        people.instance.wait()
    listed = people.get("/tables/people/row-tags")["items"]
    assert listed == [{"tags": {}, "rows": 30}, {"tags": {"day": "1"}, "rows": 1}]


def test_tags_that_cannot_be_are_refused(people: Api) -> None:
    for query in ("tag=day", "tag=a%3D1&tag=a%3D2", "tag=a%20b%3D1", "tags=a%3D1", "tag=a%3D%ff"):
        response = people.ask("POST", "/tables/people/rows", ROW, query=query)
        assert response.status in (400, 422), query
    assert people.ask("PUT", "/tables/people/files/%ff.csv", b"age,name\n1,a\n").status == 400


def test_a_rule_can_hide_row_tags(people: Api) -> None:
    people.found("POST", "/tables/people/rows", ROW, query=TAGGED)
    people.instance.wait()
    rule = AccessRule("eve", "people", ("read",), ("note",))
    people.instance.grant(rule.principal, rule.tables, rule.verbs, rule.hidden_columns)
    eve = Api(people.instance, "eve")
    where = {"where": "tag('day') = '1'"}
    assert len(eve.found("POST", "/tables/people/query", where)["rows"]) == 1
    people.instance.grant("eve", "people", ("read",), ("note", "_tags"))
    assert eve.ask("POST", "/tables/people/query", where).status == 422
    text = {"text": "SELECT count(*) FROM people WHERE tag('day') = '1'"}
    assert eve.ask("POST", "/sql", text).status == 422
    assert eve.ask("GET", "/tables/people/row-tags").status == 403
