"""Requests to the catalog, as an HTTP API hands them over: whatever comes is answered."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from dormouse.aws.apis import request_of, response_of
from dormouse.errors import InvalidRequestError
from dormouse.features.catalog import serve_catalog
from dormouse.http.messages import HttpRequest
from tests.fuzz.mutations import mangled_json, mangled_text
from tests.fuzz.targets import Target, refusing
from tests.support.world import World

EVENTS = Path(__file__).parents[2] / "events" / "serve_catalog"
SAMPLES = [json.loads(path.read_text()) for path in sorted(EVENTS.glob("*.json"))]
TABLES = "/iceberg/v1/namespaces/dormouse/tables"
PATHS = (
    "/iceberg/v1/config",
    "/iceberg/v1/mice/namespaces/dormouse%1Fletters/tables/snapshots",
    f"{TABLES}/letters",
    f"{TABLES}/p%65nding",
    "/iceberg/v1/namespaces/dormouse/views/letters",
)
QUERIES = ("pageToken=&pageSize=1", "warehouse=mice", "snapshots=refs", "parent=dormouse")


@cache
def _world() -> World:
    world = World(Path(tempfile.mkdtemp(prefix="dormouse-fuzz-")))
    world.create("letters", iceberg="on")
    world.drop("letters/1.parquet", [{"letter": "a", "at": 1, "note": None}])
    world.create("private")
    world.settle()
    return world


def _answered(request: HttpRequest) -> None:
    response = serve_catalog(_world().services, request)
    assert response.status in (200, 204, 400, 404, 405), response
    body = response_of(response)["body"]
    if response.status >= 400 and request.method != "HEAD":
        assert json.loads(str(body))["error"]["code"] == response.status
    assert request.method in ("GET", "HEAD") or response.status == 405


def _event(body: bytes) -> None:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return  # Lambda hands over nothing that it cannot read
    with refusing(InvalidRequestError):
        _answered(request_of(event))


def _request(given: tuple[str, str, str]) -> None:
    method, path, query_string = given
    _answered(HttpRequest(method, path, query_string))


_requests: Any = st.tuples(
    st.sampled_from(("GET", "HEAD", "POST", "")), mangled_text(PATHS), mangled_text(QUERIES)
)
TARGETS: dict[str, Target] = {
    "catalog events": Target(mangled_json(SAMPLES), _event, quick=60),
    "catalog requests": Target(_requests, _request, quick=100),
}
