"""What is wrong on a WebSocket is one clear problem, which names only what the caller may see."""

from __future__ import annotations

import json
from http import HTTPStatus

import msgspec
import pyarrow as pa
import pytest

from dormouse.access import NOBODY, AccessRule, AccessRules, granted
from dormouse.features.http.forms import sealed
from dormouse.features.queries import delete_parts
from dormouse.features.websocket import Place, serve_websocket, token_of
from dormouse.http.connections import MOST_FRAME_BYTES, Received
from dormouse.stored.paths import query_path, query_prefix
from tests.unit.features.websocket.conftest import Client

EVE = "arn:aws:iam::123456789012:user/eve"
ADAM = "arn:aws:iam::123456789012:user/adam"


def connected(client: Client, principal: str) -> Client:
    found = Client(client.instance, principal)
    assert found.connect() is HTTPStatus.OK
    return found


def grant(client: Client, *rules: AccessRule) -> None:
    def change(found: AccessRules) -> AccessRules:
        for rule in rules:
            found = granted(found, rule)
        return found

    client.instance.services.tables.change_access_rules(change)


def refused(client: Client, text: str) -> dict[str, object]:
    (found,) = client.say(text)
    assert found["type"] == "problem"
    assert {"status", "title", "detail"} <= found.keys()
    return found


def answered(client: Client, **fields: object) -> tuple[str, str]:
    """Ask a query and let it be answered; return its id, and the token after its first page."""
    query_id, after = client.query(**fields)
    client.work()
    (page,) = client.ask("page", query_id=query_id, after=after, pages=1)
    return query_id, page["next"]


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[]", "{}", '{"type":"shout","id":"1"}', '{"type":"ping"}',
     '{"type":"ping","id":"1","more":2}', '{"type":"ping","id":"1","v":2}',
     '{"type":"page","id":"1","query_id":"../x"}',
     '{"type":"page","id":"1","query_id":"x","pages":17}',
     "[" * 5000],
)  # fmt: skip
def test_what_is_no_frame_is_refused_and_the_connection_goes_on(client: Client, text: str) -> None:
    found = refused(client, text)
    assert found["status"] == 400
    assert client.one("ping") == {"type": "pong", "id": "1"}


def test_a_frame_that_is_too_long_is_refused(client: Client) -> None:
    text = json.dumps({"type": "ping", "id": "long", "more": "é" * (MOST_FRAME_BYTES // 2)})
    found = refused(client, text)
    assert (found["status"], found["id"]) == (413, "long")


def test_a_row_that_is_longer_than_a_frame_is_a_problem_of_its_own(client: Client) -> None:
    statement = f"SELECT repeat('x', {MOST_FRAME_BYTES}) AS long"
    query_id, after = client.query(sql=statement)
    client.work()
    found = client.problem("page", query_id=query_id, after=after)
    assert found["status"] == 413
    assert all(len(text.encode()) <= MOST_FRAME_BYTES for text in client.texts)


def test_columns_that_are_longer_than_a_frame_are_a_problem(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id, _ = client.query(table="people", selection={"where": "age < 0"})
    client.work()
    monkeypatch.setattr("dormouse.features.websocket.MOST_FRAME_BYTES", 100)
    found = client.problem("page", query_id=query_id)
    assert (found["status"], "columns" in found["detail"]) == (413, True)


@pytest.mark.parametrize("letter", ["a", "\x7f", "\u0001"])
def test_a_problem_fits_into_a_frame_whatever_it_quotes(client: Client, letter: str) -> None:
    long = letter * (MOST_FRAME_BYTES // 8)
    selections: tuple[dict[str, object], ...] = ({"columns": [long]}, {"where": long})
    for fields in ({"table": long}, *({"table": "people", "selection": s} for s in selections)):
        assert client.problem("query", **fields)["status"] in (400, 404, 422)
    text = json.dumps({"type": "ping", "id": "1", long: 1})
    assert refused(client, text)["status"] == 400
    assert max(len(text.encode()) for text in client.texts) <= 30_000


def test_frames_of_rows_fit_whatever_is_in_them(client: Client) -> None:
    statement = "SELECT age, repeat(chr(233), age * 6000) AS long FROM people"
    query_id, after = client.query(sql=statement)
    client.work()
    ages = []
    while after:
        for page in client.ask("page", query_id=query_id, after=after):
            ages += [row["age"] for row in page.get("rows", ())]
            after = page.get("next", "")
    assert sorted(ages) == [n // 3 for n in range(30)]
    assert all(len(text.encode()) <= MOST_FRAME_BYTES for text in client.texts)


def test_a_token_that_is_damaged_is_refused(client: Client) -> None:
    query_id, after = answered(client, table="people")
    for wrong in ("x", after[:-2], after[1:], sealed(b'{"query":1}'), "é", after + "AAAA"):
        found = client.problem("page", query_id=query_id, after=wrong)
        assert (found["status"], "after" in found["detail"]) == (400, True), wrong


def test_a_token_of_another_version_or_table_is_refused(client: Client) -> None:
    client.instance.create_table("secret", "age: long", row_keys=["age"])
    more = pa.table({"age": [99], "name": ["m"], "note": [None]}).cast(
        pa.schema([("age", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    )
    client.instance.table("people").ingest(more).wait()
    first, token = answered(client, table="people")
    version = client.instance.table("people").state().version
    old, of_version = answered(client, table="people", selection={"as_of": version - 1})
    other, of_table = answered(client, sql="SELECT count(*) AS n FROM secret")
    assert len({first, old, other}) == 3
    for wrong in (of_version or token_of(Place(query=old)), of_table):
        found = client.problem("page", query_id=first, after=wrong)
        assert found["status"] == 422
        assert "secret" not in json.dumps(found)
    assert client.problem("page", query_id=old, after=token)["status"] == 422


def test_a_token_beyond_the_rows_is_the_end(client: Client) -> None:
    query_id, _ = answered(client, table="people")
    for place in ({"task": 9}, {"file": 9}, {"row": 10**9}):
        after = token_of(Place(query=query_id, **place))
        (found,) = client.ask("page", query_id=query_id, after=after)
        assert (found["type"], found.get("next", "")) == ("page", ""), place


def test_a_token_whose_rows_have_expired_is_refused(client: Client) -> None:
    query_id, after = answered(client, table="people", selection={"limit": 20})
    results = client.instance.services.results
    delete_parts(results, query_id)
    assert client.problem("page", query_id=query_id)["status"] == 410
    results.delete([query_path(query_id)])
    assert client.problem("page", query_id=query_id)["status"] == 410
    results.delete([each.path for each in results.list(query_prefix(query_id))])
    found = client.problem("page", query_id=query_id, after=after)
    assert (found["status"], found["hint"]) == (410, "ask the query again")


def test_only_who_asked_gets_pages_and_cancels(client: Client) -> None:
    grant(client, AccessRule(ADAM, "people", ("read",)), AccessRule(EVE, "people", ("read",)))
    adam, eve = connected(client, ADAM), connected(client, EVE)
    query_id, after = answered(adam, table="people")
    for kind, fields in (("page", {"after": after}), ("cancel", {})):
        found = eve.problem(kind, query_id=query_id, **fields)
        assert found["status"] == 404
        assert "people" not in json.dumps(found)
    other = connected(client, ADAM)
    assert other.ask("page", query_id=query_id, after=after)[0]["type"] == "page"


def test_a_table_that_a_caller_may_not_see_is_none(client: Client) -> None:
    client.instance.create_table("secret", "age: long", row_keys=["age"])
    grant(client, AccessRule(EVE, "people", ("read",), ("note",)))
    eve = connected(client, EVE)
    for table in ("secret", "nothing"):
        found = eve.problem("query", table=table)
        assert found["status"] == 404
        assert "secret" not in json.dumps(found).replace(repr(table), "")
        watched = eve.problem("watch", path=f"/tables/{table}/jobs")
        assert watched["status"] == 404
    assert eve.problem("query", table="people", selection={"columns": ["note"]})["status"] == 422


def test_pages_end_when_a_rule_is_taken_away(client: Client) -> None:
    rule = AccessRule(EVE, "people", ("read",))
    grant(client, rule)
    eve = connected(client, EVE)
    query_id, _ = answered(eve, table="people")
    client.instance.services.tables.change_access_rules(lambda rules: ())
    found = eve.problem("page", query_id=query_id)
    assert found["status"] == 403
    assert "people" not in json.dumps(found)


def test_a_table_that_is_deleted_while_its_page_is_open_ends_the_pages(client: Client) -> None:
    query_id, _ = answered(client, table="people")
    client.instance.delete_table("people")
    client.instance.wait()
    found = client.problem("page", query_id=query_id)
    assert (found["status"], found["detail"]) == (410, "a table of this query was deleted")


def test_a_query_that_failed_says_why_without_names_of_this_side(client: Client) -> None:
    query_id, after = client.query(sql="SELECT no_such_function(age) FROM people")
    client.work()
    found = client.problem("page", query_id=query_id, after=after)
    assert found["status"] == 422
    assert str(client.instance.services.scratch) not in json.dumps(found)


def test_who_is_nobody_does_not_connect(client: Client) -> None:
    nobody = Client(client.instance, NOBODY)
    assert nobody.connect() is HTTPStatus.FORBIDDEN
    assert nobody.ask("ping") == []
    assert nobody.is_closed


def test_a_closed_connection_is_not_answered(client: Client) -> None:
    client.is_closed = True
    text = json.dumps({"type": "ping", "id": "1"})
    served = serve_websocket(client.instance, Received(client.name, text))
    assert served.status is HTTPStatus.GONE
    client.disconnect()
    served = serve_websocket(client.instance, Received(client.name, text))
    assert served.status is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/tables/people/schema",
        "/tables/people/query",
        "/queues/x/dead-letters",
        "/openapi.json",
    ],
)
def test_what_cannot_be_watched_is_refused(client: Client, path: str) -> None:
    assert client.problem("watch", path=path)["status"] in (404, 405, 422)


def test_what_is_too_long_to_watch_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.websocket.MOST_FRAME_BYTES", 100)
    assert client.problem("watch", path="/tables")["status"] == 413


def test_tokens_have_a_version_of_their_form(client: Client) -> None:
    query_id, _ = answered(client, table="people")
    later = sealed(msgspec.json.encode(msgspec.structs.replace(Place(query=query_id), v=2)))
    assert client.problem("page", query_id=query_id, after=later)["status"] == 422
