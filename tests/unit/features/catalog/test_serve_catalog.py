"""The catalog as its clients meet it: what is published, what is not, and each way it can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from dormouse.errors import CorruptDataError, InvalidRequestError, UnavailableError
from dormouse.features.administration import administer
from dormouse.features.catalog import serve_catalog
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse.messages.requests import DeleteTable, RenameTable, SetProperties
from dormouse.state.versions import PublicationRecord
from dormouse.storage import root_uri
from dormouse.tables.table import Table
from tests.support.world import World

TABLES = "/iceberg/v1/namespaces/dormouse/tables"
WRITES = [
    ("POST", "/iceberg/v1/namespaces"),
    ("POST", TABLES),
    ("POST", f"{TABLES}/letters"),
    ("POST", f"{TABLES}/letters/metrics"),
    ("DELETE", f"{TABLES}/letters"),
    ("DELETE", "/iceberg/v1/namespaces/dormouse"),
    ("POST", "/iceberg/v1/tables/rename"),
    ("POST", "/iceberg/v1/transactions/commit"),
    ("POST", "/iceberg/v1/oauth/tokens"),
    ("PUT", f"{TABLES}/letters"),
    ("PATCH", TABLES),
    ("get", TABLES),
    ("PROPFIND", "/nowhere"),
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def letters(world: World) -> Table:
    """A published table of two versions."""
    table = world.create(iceberg="on")
    for number in range(2):
        world.drop(f"letters/{number}.parquet", [{"letter": "a", "at": number, "note": None}])
        world.settle()
    return table


def ask(world: World, path: str, method: str = "GET", **query: str) -> HttpResponse:
    return serve_catalog(world.services, HttpRequest(method, path, urlencode(query)))


def content(response: HttpResponse, status: int = 200) -> Any:
    assert response.status == status, response.body
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.body)


def error(response: HttpResponse, status: int, kind: str) -> str:
    found = content(response, status)["error"]
    assert (found["code"], found["type"]) == (status, kind)
    assert "Traceback" not in found["message"]
    return str(found["message"])


def test_a_table_is_loaded_with_what_is_published_now(world: World, letters: Table) -> None:
    loaded = content(ask(world, f"{TABLES}/letters"))
    record = world.publications.get(letters.id)
    assert record is not None
    assert loaded["metadata-location"] == f"{root_uri(world.storage)}/{record.metadata}"
    assert loaded["metadata"] == json.loads(world.storage.get(record.metadata))
    assert loaded["config"] == {}
    by_prefix = ask(world, "/iceberg/v1/mice/namespaces/dormouse/tables/letters", unknown="x")
    assert content(by_prefix) == loaded


def test_readers_see_the_next_publication_at_once(world: World, letters: Table) -> None:
    before = content(ask(world, f"{TABLES}/letters"))["metadata"]["current-snapshot-id"]
    world.drop("letters/more.parquet", [{"letter": "b", "at": 7, "note": None}])
    world.settle()
    assert content(ask(world, f"{TABLES}/letters"))["metadata"]["current-snapshot-id"] > before


def test_only_snapshots_with_a_name_are_returned_if_asked_for(world: World, letters: Table) -> None:
    both = {
        each: content(ask(world, f"{TABLES}/letters", snapshots=each))["metadata"]
        for each in ("all", "refs")
    }
    named = {ref["snapshot-id"] for ref in both["all"]["refs"].values()}
    assert {s["snapshot-id"] for s in both["refs"]["snapshots"]} == named
    assert len(both["all"]["snapshots"]) > len(named)


def test_what_a_client_has_is_not_sent_again_until_there_is_something_newer(
    world: World, letters: Table
) -> None:
    def load(known: str, query: str = "", **headers: str) -> HttpResponse:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"if-none-match": known, **headers} if known else headers
        return serve_catalog(world.services, HttpRequest("GET", f"{TABLES}/letters", query, sent))

    tag = load("").headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = load(known)
        assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", tag)
    assert load(tag, "snapshots=all").status == 304
    assert load(tag, "snapshots=refs").status == 200 == load('"other"').status
    lending = load(tag, x_iceberg_access_delegation="vended-credentials")
    assert (lending.status, "etag" in lending.headers) == (200, False)
    world.drop("letters/more.parquet", [{"letter": "b", "at": 7, "note": None}])
    world.settle()
    newer = load(tag)
    assert (newer.status, newer.headers["etag"] == tag) == (200, False)


def test_tables_that_are_published_are_listed(world: World, letters: Table) -> None:
    world.create("unpublished")
    world.create("another", iceberg="on")
    listed = content(ask(world, TABLES))
    names = [each["name"] for each in listed.pop("identifiers")]
    assert (names, listed) == (["another", "letters"], {})
    first = content(ask(world, TABLES, pageToken="", pageSize="1"))
    assert [each["name"] for each in first["identifiers"]] == ["another"]
    rest = content(ask(world, TABLES, pageToken=first["next-page-token"], pageSize="1"))
    assert rest == {"identifiers": [{"namespace": ["dormouse"], "name": "letters"}]}
    error(ask(world, TABLES, pageSize="none"), 400, "BadRequestException")


def test_there_is_one_namespace(world: World) -> None:
    spaces = "/iceberg/v1/namespaces"
    assert content(ask(world, spaces)) == {"namespaces": [["dormouse"]]}
    assert content(ask(world, spaces, parent="")) == {"namespaces": [["dormouse"]]}
    assert content(ask(world, spaces, parent="dormouse")) == {"namespaces": []}
    error(ask(world, spaces, parent="other"), 404, "NoSuchNamespaceException")
    assert content(ask(world, f"{spaces}/dormouse"))["namespace"] == ["dormouse"]
    error(ask(world, f"{spaces}/other"), 404, "NoSuchNamespaceException")
    error(ask(world, f"{spaces}/other/tables"), 404, "NoSuchNamespaceException")
    assert content(ask(world, f"{spaces}/dormouse/views")) == {"identifiers": []}
    error(ask(world, f"{spaces}/dormouse/views/letters"), 404, "NoSuchViewException")


def test_clients_begin_with_the_configuration(world: World) -> None:
    found = content(ask(world, "/iceberg/v1/config", warehouse="mice"))
    assert found["overrides"] == {"prefix": "mice"}
    assert "GET /v1/{prefix}/namespaces" in found["endpoints"]


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_whatever_would_write_is_refused(
    world: World, letters: Table, method: str, path: str
) -> None:
    before = world.publications.get(letters.id)
    response = ask(world, path, method)
    message = error(response, 405, "UnsupportedOperationException")
    assert "can only be read" in message and "dormouse ingest" in message
    assert response.headers["allow"] == "GET, HEAD"
    assert world.publications.get(letters.id) == before
    assert world.tables.get(letters.id) is not None


def test_head_says_whether_there_is_such_a_thing(world: World, letters: Table) -> None:
    for path, status in {
        f"{TABLES}/letters": 204,
        f"{TABLES}/other": 404,
        "/iceberg/v1/namespaces/dormouse": 204,
        "/iceberg/v1/namespaces/other": 404,
        "/iceberg/v1/namespaces/dormouse/views/letters": 404,
        "/iceberg/v1/config": 200,
    }.items():
        response = ask(world, path, "HEAD")
        assert (response.status, response.body) == (status, b""), path


@pytest.mark.parametrize(
    "name",
    ["nobody", "LETTERS", "l%65tters%20", "%F0%9F%90%AD", "a%2Fb", "%00", "x" * 60_000, ".."],
)
def test_a_table_that_there_is_not_is_no_such_table(
    world: World, letters: Table, name: str
) -> None:
    message = error(ask(world, f"{TABLES}/{name}"), 404, "NoSuchTableException")
    assert len(message) < 1000


def test_a_name_may_be_percent_encoded(world: World, letters: Table) -> None:
    assert content(ask(world, f"{TABLES}/l%65tters")) == content(ask(world, f"{TABLES}/letters"))


def test_a_table_of_a_table_is_no_such_table(world: World, letters: Table) -> None:
    path = "/iceberg/v1/namespaces/dormouse%1Fletters/tables/snapshots"
    assert "no namespace 'dormouse.letters'" in error(ask(world, path), 404, "NoSuchTableException")


def test_a_table_that_is_not_published_says_what_to_do(world: World) -> None:
    world.create()
    message = error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")
    assert "dormouse table set letters iceberg=on" in message
    world.queue.clear()
    administer(world.services, SetProperties("set", "letters", {"iceberg": "on"}))
    for record in (None, PublicationRecord()):
        (table,) = world.tables.all()
        world.publications.delete(table.id)
        if record is not None:
            world.publications.replace(table.id, None, record)
        message = error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")
        assert "dormouse iceberg publish letters" in message


def test_a_withdrawn_table_is_gone(world: World, letters: Table) -> None:
    world.queue += administer(world.services, SetProperties("off", "letters", {"iceberg": "off"}))
    error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")
    world.settle()
    error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")
    assert content(ask(world, TABLES)) == {"identifiers": []}


def test_a_renamed_table_has_its_new_name_alone(world: World, letters: Table) -> None:
    before = content(ask(world, f"{TABLES}/letters"))
    world.queue += administer(world.services, RenameTable("rename", "letters", "signs"))
    assert content(ask(world, f"{TABLES}/signs")) == before
    error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")


def test_a_table_that_is_being_deleted_is_gone(world: World, letters: Table) -> None:
    world.tables.change(letters.id, lambda table: replace(table, deleting=True))
    error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")
    assert content(ask(world, TABLES)) == {"identifiers": []}


def test_a_table_deleted_while_it_is_asked_for_is_gone(
    world: World, letters: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = world.publications.get

    def delete_then_get(table_id: str) -> PublicationRecord | None:
        record = get(table_id)
        monkeypatch.undo()
        world.queue += administer(world.services, DeleteTable("delete", "letters"))
        world.settle()
        return record

    monkeypatch.setattr(world.publications, "get", delete_then_get)
    error(ask(world, f"{TABLES}/letters"), 404, "NoSuchTableException")


def test_metadata_that_expires_while_it_is_asked_for_is_looked_for_again(
    world: World, letters: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = world.publications.get

    def expire_then_get(table_id: str) -> PublicationRecord | None:
        record = get(table_id)
        monkeypatch.undo()
        assert record is not None
        world.drop("letters/more.parquet", [{"letter": "b", "at": 7, "note": None}])
        world.settle()
        world.storage.delete([record.metadata])
        return record

    monkeypatch.setattr(world.publications, "get", expire_then_get)
    found = content(ask(world, f"{TABLES}/letters"))
    newest = get(letters.id)
    assert newest is not None and found["metadata-location"].endswith(newest.metadata)


@pytest.mark.parametrize("damage", ["lost", "no JSON", "empty", "other JSON", "other digit"])
def test_lost_or_damaged_metadata_says_how_it_is_mended(
    world: World, letters: Table, damage: str
) -> None:
    record = world.publications.get(letters.id)
    assert record is not None
    digit = world.storage.get(record.metadata).replace(b'"spec-id":0', b'"spec-id":1')
    world.storage.delete([record.metadata])
    if damage != "lost":
        bodies = {"no JSON": b"\xff{", "empty": b"", "other JSON": b"[1]", "other digit": digit}
        world.storage.put(record.metadata, bodies[damage])
    response = ask(world, f"{TABLES}/letters")
    assert "dormouse iceberg publish" in error(response, 500, "InternalServerError")
    assert response.problem
    assert ask(world, f"{TABLES}/letters", "HEAD").status == 204
    assert content(ask(world, TABLES))["identifiers"]


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (CorruptDataError("the record is damaged"), 500, "InternalServerError"),
        (InvalidRequestError("the folder is of another release"), 500, "InternalServerError"),
        (UnavailableError("DynamoDB does not answer"), 503, "ServiceUnavailableException"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_this_side(
    world: World,
    letters: Table,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    status: int,
    kind: str,
) -> None:
    def fail(table_id: str) -> None:
        raise failure

    monkeypatch.setattr(world.publications, "get", fail)
    assert str(failure) in error(ask(world, f"{TABLES}/letters"), status, kind)
    head = ask(world, f"{TABLES}/letters", "HEAD")
    assert (head.status, head.body) == (status, b"")


class Lender:
    """Lends credentials, and notes for which tables."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def settings(self) -> dict[str, str]:
        return {"s3.region": "eu-west-2"}

    def credentials(self, table_id: str) -> dict[str, str]:
        self.asked.append(table_id)
        return {"s3.secret-access-key": "secret"}


@pytest.mark.parametrize(
    ("header", "is_lent"),
    [
        (None, False),
        ("", False),
        ("remote-signing", False),
        ("vended-credentials", True),
        ("remote-signing, vended-credentials", True),
    ],
)
def test_credentials_are_lent_to_clients_that_ask_for_them(
    world: World, letters: Table, header: str | None, is_lent: bool
) -> None:
    lender = Lender()
    services = replace(world.services, reader_access=lender)
    headers = {} if header is None else {"x-iceberg-access-delegation": header}
    response = serve_catalog(services, HttpRequest("GET", f"{TABLES}/letters", "", headers))
    assert lender.asked == ([letters.id] if is_lent else [])
    lent = {"s3.secret-access-key": "secret"} if is_lent else {}
    loaded = content(response)
    found = {"s3.region": "eu-west-2", **lent}
    assert loaded["config"] == found
    root = f"{root_uri(world.storage)}/{letters.id}"
    each = [{"prefix": f"{root}/{name}/", "config": found} for name in ("data", "iceberg")]
    assert loaded.get("storage-credentials") == (each if is_lent else None)
    assert response.headers["cache-control"] == "no-store"
    for path in (TABLES, f"{TABLES}/other"):
        other = serve_catalog(services, HttpRequest("GET", path, "", headers))
        assert b"secret" not in other.body
    assert len(lender.asked) <= 1
