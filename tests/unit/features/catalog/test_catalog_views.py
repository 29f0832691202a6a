"""A table with row rules is in the catalog as the table of its stored rows, and as a view."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dormouse.features.catalog import serve_catalog
from dormouse.http.messages import HttpRequest
from dormouse.iceberg.views import view_of
from tests.support.world import World

BASE = "/iceberg/v1/mine/namespaces/dormouse"
PUBLISHED = {"iceberg": "on", "iceberg_parts": "yes", "filters": "where(at > 0)"}


def ask(world: World, path: str, status: int = 200, method: str = "GET") -> Any:
    response = serve_catalog(world.services, HttpRequest(method, f"{BASE}/{path}", {}))
    assert response.status == status, response.body
    return json.loads(response.body) if response.body else None


def names(found: Any) -> list[str]:
    return [item["name"] for item in found["identifiers"]]


@pytest.fixture(autouse=True)
def tables(world: World) -> None:
    world.create("ruled", **PUBLISHED)
    world.create("unsaid", **(PUBLISHED | {"filters": "where(lower(letter) = 'a')"}))
    world.create("plain", iceberg="on")
    world.create("hidden")
    for name in ("ruled", "unsaid", "plain"):
        world.drop(f"{name}/rows.parquet", [{"letter": "a", "at": 1, "note": None}])
    world.settle()


def test_parts_and_views_are_listed_by_their_names(world: World) -> None:
    assert names(ask(world, "tables")) == ["plain", "ruled__parts", "unsaid__parts"]
    assert names(ask(world, "views")) == ["ruled"]


def test_a_view_is_loaded_with_the_client_s_name_of_the_catalog(world: World) -> None:
    table = world.tables.named("ruled")
    assert table is not None
    view = view_of(table)
    assert view is not None
    (version,) = ask(world, "views/ruled")["metadata"]["versions"]
    assert version["default-catalog"] == "mine"
    assert {each["dialect"]: each["sql"] for each in version["representations"]} == view.sql
    assert ask(world, "views/ruled", 204, "HEAD") is None


def test_stored_rows_are_loaded_under_the_name_that_the_view_refers_to(world: World) -> None:
    table = world.tables.named("ruled")
    assert table is not None
    found = ask(world, "tables/ruled__parts")
    assert table.id in found["metadata"]["location"]
    assert ask(world, "tables/ruled__parts", 204, "HEAD") is None


@pytest.mark.parametrize(
    ("path", "kind", "why"),
    [
        ("tables/ruled", "NoSuchTableException", "ruled__parts"),
        ("tables/plain__parts", "NoSuchTableException", "no table"),
        ("tables/hidden__parts", "NoSuchTableException", "no table"),
        ("tables/__parts", "NoSuchTableException", "no table"),
        ("views/ruled__parts", "NoSuchViewException", "no view"),
        ("views/plain", "NoSuchViewException", "is a table"),
        ("views/hidden", "NoSuchViewException", "no view"),
        ("views/unsaid", "NoSuchViewException", "lower"),
    ],
)
def test_what_is_not_there_says_what_is(world: World, path: str, kind: str, why: str) -> None:
    error = ask(world, path, 404)["error"]
    assert error["type"] == kind
    assert why in error["message"]
    ask(world, path, 404, "HEAD")
