"""Whom the catalog shows which tables, where access rules of the instance say so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dormouse.access import AccessRule
from dormouse.features.catalog import serve_catalog
from dormouse.http.messages import HttpRequest
from dormouse.messages.requests import ReinitialiseTable
from dormouse.schema.schema import Schema
from tests.support.world import World

BASE = "/iceberg/v1/namespaces/dormouse"
EVE, BOB, NOBODY = "aws-id:EVE", "aws-id:BOB", ""
TABLES = ["letters", "ruled__parts", "words"]


def ask(world: World, principal: str, path: str, method: str = "GET") -> tuple[int, Any]:
    request = HttpRequest(method, f"{BASE}/{path}", principal=principal)
    response = serve_catalog(world.services, request)
    return response.status, json.loads(response.body) if response.body else None


def listed(world: World, principal: str, what: str = "tables") -> list[str]:
    status, found = ask(world, principal, what)
    assert status == 200
    return [each["name"] for each in found["identifiers"]]


@pytest.fixture(autouse=True)
def tables(world: World) -> None:
    world.create("letters", iceberg="on")
    world.create("words", iceberg="on")
    world.create("unpublished")
    world.create("ruled", iceberg="on", iceberg_parts="yes", filters="where(at > 0)")
    for name in ("letters", "words", "ruled"):
        world.drop(f"{name}/rows.parquet", [{"letter": "a", "at": 1, "note": None}])
    world.settle()


def rules(world: World, *rules: AccessRule) -> None:
    world.tables.change_access_rules(lambda _: rules)


def test_without_rules_everybody_sees_what_is_published(world: World) -> None:
    for principal in (EVE, NOBODY):
        assert listed(world, principal) == TABLES
        assert listed(world, principal, "views") == ["ruled"]
        assert ask(world, principal, "tables/letters")[0] == 200


def test_with_rules_a_caller_sees_what_these_let_the_caller_read(world: World) -> None:
    rules(
        world, AccessRule(EVE, "letters", ("read",)), AccessRule(BOB, "*", ("write", "administer"))
    )
    assert listed(world, EVE) == ["letters"]
    assert listed(world, EVE, "views") == listed(world, BOB) == listed(world, NOBODY) == []
    assert ask(world, EVE, "tables/letters")[0] == 200
    for path in ("tables/words", "tables/ruled__parts", "views/ruled", "tables/unpublished"):
        for method in ("GET", "HEAD"):
            assert ask(world, EVE, path, method)[0] == 404
            assert ask(world, BOB, path, method)[0] == 403
            assert ask(world, NOBODY, path, method)[0] == 404
    _, hidden = ask(world, EVE, "tables/unpublished")
    _, missing = ask(world, EVE, "tables/nowhere")
    assert json.dumps(hidden).replace("unpublished", "nowhere") == json.dumps(missing)


def test_a_table_with_hidden_columns_is_not_loaded_because_its_files_hold_them(
    world: World,
) -> None:
    rules(world, AccessRule(EVE, "*", ("read",), ("note",)))
    assert listed(world, EVE) == listed(world, EVE, "views") == []
    for path in ("tables/letters", "tables/ruled__parts", "views/ruled"):
        status, found = ask(world, EVE, path)
        assert (status, found["error"]["type"]) == (403, "ForbiddenException")
        assert "its files hold all" in found["error"]["message"]


def test_a_table_whose_hidden_column_was_dropped_is_not_loaded_because_its_files_hold_it(
    world: World,
) -> None:
    rules(world, AccessRule(EVE, "*", ("read",), ("note",)))
    for name in ("letters", "words"):
        table = world.tables.named(name)
        assert table is not None
        if name == "letters":
            world.alter(table, drop=["note"])
        else:  # the versions before keep their files for a while, or for as long as they are tagged
            without = Schema(table.schema.row_keys, table.schema.sort_keys, ())
            world.administer(ReinitialiseTable("reset", name, schema=without.to_json()))
    world.settle()
    assert listed(world, EVE) == []
    for name in ("letters", "words"):
        assert ask(world, EVE, f"tables/{name}")[0] == 403


def test_damaged_rules_let_nobody_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from dormouse.errors import DamagedEntryError

    def damaged() -> None:
        raise DamagedEntryError("the access rules cannot be read", hint="`dormouse rebuild`")

    monkeypatch.setattr(world.tables, "access_rules", damaged)
    for path in ("tables", "views", "tables/letters", "views/ruled"):
        status, found = ask(world, EVE, path)
        assert status == 500
        assert "access rules" in found["error"]["message"]
