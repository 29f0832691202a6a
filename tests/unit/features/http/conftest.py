"""The API over an instance in a folder, asked without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from dormouse.access import LOCAL
from dormouse.client.instance import Instance
from dormouse.features.http.serve_http import serve_http
from dormouse.http.messages import HttpRequest, HttpResponse


@dataclass
class Api:
    """Asks as a program would that sends JSON and reads JSON."""

    instance: Instance
    principal: str = LOCAL

    def ask(
        self, method: str, path: str, body: object = None, query: str = "", **headers: str
    ) -> HttpResponse:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            content = json.dumps(body).encode()
            given = {"content-type": "application/json", **given}
        return serve_http(
            self.instance, HttpRequest(method, path, query, given, content, self.principal)
        )

    def get(self, path: str, query: str = "") -> Any:
        return self.found("GET", path, query=query)

    def found(
        self, method: str, path: str, body: object = None, query: str = "", **headers: str
    ) -> Any:
        response = self.ask(method, path, body, query, **headers)
        assert 200 <= response.status < 300, response.body
        return json.loads(response.body)

    def problem(
        self, method: str, path: str, body: object = None, query: str = "", **headers: str
    ) -> dict[str, Any]:
        response = self.ask(method, path, body, query, **headers)
        assert response.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = json.loads(response.body)
        assert found["status"] == response.status
        return found

    def request(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request that is carried out later; return what became of it."""
        response = self.ask(method, path, body, **headers)
        assert response.status == 202, response.body
        self.instance.wait()
        return self.get(response.headers["location"])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """An instance with no table."""
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield Api(instance)


@pytest.fixture(scope="session")
def folder_of_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an instance with a table of thirty people; tests have a copy each."""
    folder = tmp_path_factory.mktemp("people") / "mice"
    with Instance.open(folder, background=False) as instance:
        instance.create_table("people", "age: long, name: string, note: string?", row_keys=["age"])
        rows = [{"age": n // 3, "name": f"n{n:02}", "note": None} for n in range(30)]
        Api(instance).found("POST", "/tables/people/rows", rows)
        instance.wait()
    return folder


@pytest.fixture
def people(folder_of_people: Path, tmp_path: Path) -> Iterator[Api]:
    """An instance with a table of thirty people, three of each age."""
    copytree(folder_of_people, tmp_path / "mice")
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield Api(instance)
