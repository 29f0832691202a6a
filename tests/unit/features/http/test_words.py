"""Words over HTTP."""

from __future__ import annotations

from dormouse.access import AccessRule
from tests.unit.features.http.conftest import Api

WHERE = {"where": "has(name, 'BIG-wig')"}
TEXT = {"text": "SELECT age FROM people WHERE has(name, 'wig')"}


def test_rows_are_found_and_deleted_by_words(people: Api) -> None:
    people.instance.set_properties("people", {"term_index": "name"})
    rows = [{"age": 77, "name": "the Big-Wig"}, {"age": 78, "name": "bigwigs"}]
    people.found("POST", "/tables/people/rows", rows)
    people.instance.wait()
    (row,) = people.found("POST", "/tables/people/query", WHERE)["rows"]
    assert row["age"] == 77
    assert people.found("POST", "/sql", TEXT)["rows"] == [{"age": 77}]
    assert people.ask("POST", "/tables/people/query", {"where": "has(name, '-')"}).status == 422
    assert people.request("POST", "/tables/people/delete", WHERE)["state"] == "finished"
    assert people.found("POST", "/tables/people/query", WHERE)["rows"] == []


def test_a_hidden_column_has_no_words(people: Api) -> None:
    rule = AccessRule("eve", "people", ("read",), ("name",))
    people.instance.grant(rule.principal, rule.tables, rule.verbs, rule.hidden_columns)
    eve = Api(people.instance, "eve")
    assert eve.ask("POST", "/tables/people/query", WHERE).status == 422
    assert eve.ask("POST", "/sql", TEXT).status == 422
