"""The files of the console: what is served, under which rules, and what they may not have."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import dormouse.console
from dormouse.console import console_uri, is_console, with_console
from dormouse.http.messages import HttpRequest, HttpResponse

PAGE = Path(dormouse.console.__file__).parent / "page"
FILES = sorted(PAGE.iterdir())


def api(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, body=b"the API")


def asked(path: str, method: str = "GET") -> HttpResponse:
    return with_console(api)(HttpRequest(method, path))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_is_served_with_its_type_and_the_policy(file: Path) -> None:
    response = asked("/" if file.name == "index.html" else f"/console/{file.name}")
    assert (response.status, response.body) == (200, file.read_bytes())
    assert response.headers["content-type"].split(";")[0] in (
        *("text/html", "text/css", "text/javascript", "image/svg+xml"),
    )
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_all_else_is_asked_of_the_api() -> None:
    for path, method in (("/tables", "GET"), ("/", "POST"), ("/consoles", "GET")):
        assert asked(path, method).body == b"the API"


def test_head_has_no_body() -> None:
    assert (asked("/", "HEAD").status, asked("/", "HEAD").body) == (200, b"")


@pytest.mark.parametrize("name", ["", "none.js", "../__init__.py", "%2e%2e/__init__.py", "page"])
def test_what_is_no_file_of_it_is_not_there(name: str) -> None:
    assert is_console(f"/console/{name}")
    assert asked(f"/console/{name}").status == 404


def test_the_token_is_in_the_fragment_which_no_request_carries() -> None:
    assert console_uri("http://127.0.0.1:1", "t") == "http://127.0.0.1:1/#token=t"


def test_it_is_small() -> None:
    assert sum(len(gzip.compress(file.read_bytes())) for file in FILES) < 300_000


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_comes_from_elsewhere_and_no_text_becomes_html(file: Path) -> None:
    text = file.read_text()
    found = set(re.findall(r"\w+://[\w.]+", text))
    assert found <= {"http://www.w3.org"}  # the name of SVG
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r"<[^>]+\s(style|on\w+)=", text)


def test_what_is_loaded_is_there() -> None:
    text = "".join(file.read_text() for file in FILES)
    named = set(re.findall(r"\"/console/([\w.]+)\"", text))
    assert named == {file.name for file in FILES} - {"index.html"}
