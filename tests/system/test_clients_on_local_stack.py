"""The example clients of docs/examples, in other languages: what each prints is what all print.

With a token they ask the local stack itself. Without, they sign their requests, and a server in
front of it holds each signature against botocore's of the same request; so links are of a server of
their own, which as S3 does refuses what has a token or a signature besides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse, json_response
from tests.engines.signatures import is_signed
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
REGION = "eu-central-1"
USER, ROLE = ("AKIDEXAMPLE", "secret", ""), ("ASIAEXAMPLE", "secret+/", "token/+==")
SEEN = """\
created: true
file: ingested
row: 9007199254740993 2026-01-05T10:00:00.123456Z 0.5 1234567890123456.7891 00ff
row: 9007199254740993 2026-01-05T11:00:00Z null null null
SQL: 10 rows, total 45
pages: 27 rows
later: 73.5
jobs: 27 rows
problem: 404 there is no table 'nothing'
"""


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    prefixes = ("AWS_", "DORMOUSE_")  # what the stack of these tests sets
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**kept, "LC_ALL": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def program(name: str, *more: str) -> str:
    """Return where a program is, or skip the test."""
    folders = os.pathsep.join([os.environ["PATH"], *more])
    found = shutil.which(name, path=folders)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def built(command: list[str], cwd: Path, **environment: str) -> None:
    done = run(command, cwd, **environment)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def javascript(_: Path) -> list[str]:
    return [program("node"), str(EXAMPLES / "javascript" / "tour.mjs")]


def go(folder: Path) -> list[str]:
    compiler = program("go", "/usr/local/go/bin")
    offline = {"GOTOOLCHAIN": "local", "GOPROXY": "off", "GOFLAGS": "-mod=readonly"}
    built([compiler, "vet", "./..."], EXAMPLES / "go", **offline)
    built([compiler, "build", "-o", str(folder / "tour"), "."], EXAMPLES / "go", **offline)
    return [str(folder / "tour")]


def java(folder: Path) -> list[str]:
    runtime, compiler = program("java"), program("javac")
    jackson = [jar_of(name) for name in JACKSON]
    path = os.pathsep.join(map(str, [folder, *jackson]))
    sources = sorted(str(each) for each in (EXAMPLES / "java").rglob("*.java"))
    strict = ["-Xlint:all,-serial,-path,-classfile", "-Werror", "-encoding", "UTF-8"]
    built([compiler, *strict, "-cp", path, "-d", str(folder), *sources], folder)
    return [runtime, "-cp", path, "Tour"]


def jar_of(name: str) -> Path:
    """Return a part of the JSON library of the client, which Spark brings; or skip the test."""
    spark = find_spec("pyspark")
    folder = Path(str(spark.origin)).parent / "jars" if spark else EXAMPLES
    found = next(folder.glob(f"jackson-{name}-2.*.jar"), None)
    if found is None:
        pytest.skip(f"jackson-{name} is not installed")
    return found


JACKSON = ("annotations", "core", "databind", "datatype-jsr310")
LANGUAGES: dict[str, Callable[[Path], list[str]]] = {
    "javascript": javascript,
    "go": go,
    "java": java,
}


@pytest.fixture(scope="module", params=LANGUAGES)
def tour(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the example of a language."""
    return LANGUAGES[request.param](tmp_path_factory.mktemp(request.param))


def forwarded(request: HttpRequest, url: str, headers: Mapping[str, str]) -> HttpResponse:
    """Return what another server answers to a request."""
    target = f"{request.path}?{request.query_string}".rstrip("?")
    sent = {name: value for name, value in headers.items() if name != "host"}
    connection = HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_SECONDS)
    try:
        connection.request(request.method, target, request.body, sent)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return HttpResponse(response.status, found, response.read())
    finally:
        connection.close()


@dataclass
class Gate:
    """Hands signed requests on to the API of a stack, which takes its token; refuses others. Links
    in answers lead to `links` instead of S3.
    """

    stack: Mapping[str, str]
    key: tuple[str, str, str]
    links: str
    url: str = ""

    def answer(self, request: HttpRequest) -> HttpResponse:
        *key, token = self.key
        has_token = request.headers.get("x-amz-security-token", "") == token
        if not has_token or not is_signed(request, self.url, (key[0], key[1]), REGION):
            return json_response(403, {"message": "Forbidden"})  # as API Gateway does
        bearer = {"authorization": f"Bearer {self.stack['DORMOUSE_HTTP_TOKEN']}"}
        found = forwarded(request, self.stack["DORMOUSE_HTTP_API"], {**request.headers, **bearer})
        body = found.body.replace(self.stack["AWS_ENDPOINT_URL"].encode(), self.links.encode())
        return replace(
            found, body=body, headers={**found.headers, "content-length": str(len(body))}
        )


def link_answer(s3: str) -> Callable[[HttpRequest], HttpResponse]:
    """Return what answers links as S3 does: only without another signature or token."""

    def answer(request: HttpRequest) -> HttpResponse:
        if "authorization" in request.headers:
            return HttpResponse(400, {}, b"Only one auth mechanism allowed")
        return forwarded(request, s3, request.headers)

    return answer


@pytest.fixture
def gate(system: System, request: pytest.FixtureRequest) -> Iterator[str]:
    stack = system.stack.environment
    with LoopbackServer(link_answer(stack["AWS_ENDPOINT_URL"])) as links:
        gate = Gate(stack, request.param, links.url)
        with LoopbackServer(gate.answer) as server:
            gate.url = server.url
            yield server.url


def signing(url: str, key: tuple[str, str, str]) -> dict[str, str]:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    given = {name: part for name, part in zip(names, key, strict=True) if part}
    return {"DORMOUSE_HTTP_API": url, "AWS_REGION": REGION, **given}


def name_of(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "_" for c in request.node.name)


def test_a_program_in_each_language_does_all_with_a_token(
    system: System, tour: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    variables = ("DORMOUSE_HTTP_API", "DORMOUSE_HTTP_TOKEN")
    given = {name: system.stack.environment[name] for name in variables}
    done = run([*tour, name_of(request)], tmp_path, **given)
    assert (done.stdout, done.stderr) == (SEEN, "")


@pytest.mark.parametrize("gate", [ROLE], ids=["role"], indirect=True)
def test_a_program_in_each_language_signs_all_that_it_asks(
    gate: str, tour: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    done = run([*tour, name_of(request)], tmp_path, **signing(gate, ROLE))
    assert (done.stdout, done.stderr) == (SEEN, "")


@pytest.mark.parametrize("gate", [USER], ids=["user"], indirect=True)
def test_a_refusal_of_the_gateway_is_an_error_with_its_message(
    gate: str, tour: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    key, _, token = USER
    done = run([*tour, name_of(request)], tmp_path, **signing(gate, (key, "wrong", token)))
    assert done.returncode != 0
    assert "403: Forbidden" in done.stderr
