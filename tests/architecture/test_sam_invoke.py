"""`make invoke` gives a container the local stack, and no account of the caller's.

There is no container runtime here: what SAM is given is looked at, and that the URL answers.
"""

from __future__ import annotations

import json
import stat
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools import sam_invoke

ROOT = Path(__file__).parents[2]
TEMPLATE = """
Resources:
  IngestFunction:
    Type: AWS::Serverless::Function
    Properties: {}
"""
SAM = """
import json, os, sys, urllib.request
template = json.load(open(sys.argv[sys.argv.index("--template") + 1]))
function = template["Resources"]["IngestFunction"]["Properties"]
url = function["Environment"]["Variables"]["AWS_ENDPOINT_URL"]
answer = urllib.request.urlopen(url.replace("host.docker.internal", os.environ["BRIDGE"])).read()
given = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
json.dump([sys.argv[1:], url, answer.decode(), given], open("given.json", "w"))
sys.exit(7)
"""


class _Stack(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the stack")

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def stack() -> Iterator[int]:
    """Answer on a port of the loopback interface."""
    with HTTPServer(("127.0.0.1", 0), _Stack) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a built project, with a `sam` that notes what it is given."""
    built = tmp_path / sam_invoke.BUILT
    built.parent.mkdir(parents=True)
    built.write_text(TEMPLATE)
    (tmp_path / "good.json").write_text("{}")
    sam = tmp_path / "bin" / "sam"
    _program(sam, f"#!{sys.executable}\n{SAM}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(
        sam_invoke.sys, "executable", str(sam)
    )  # the folder that is looked in first
    return tmp_path


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def invoke(project: Path, *, stage: str = "ingest", event: str = "good.json") -> int:
    return sam_invoke.main([stage, event, "--architecture", "x86_64"])


@pytest.mark.parametrize("bridge", ["127.0.0.1", "192.0.2.1"], ids=["engine", "desktop"])
def test_the_container_reaches_the_stack_with_its_credentials_only(
    project: Path, stack: int, monkeypatch: pytest.MonkeyPatch, bridge: str
) -> None:
    _program(project / "bin" / "docker", f"#!/bin/sh\necho {bridge}\n")
    monkeypatch.setenv("BRIDGE", "127.0.0.1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{stack}")
    assert invoke(project) == 7
    given: tuple[list[str], str, str, dict[str, str]] = tuple(
        json.loads((project / "given.json").read_text())
    )
    words, url, answer, environment = given
    assert answer == "the stack"
    assert url.startswith("http://host.docker.internal:")
    assert url.endswith(f":{stack}") == (bridge == "192.0.2.1")
    assert words[:3] == ["local", "invoke", "IngestFunction"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options["--event"] == "good.json"
    assert options["--add-host"] == "host.docker.internal:host-gateway"
    assert options["--parameter-overrides"] == "Architecture=x86_64 Instance=local"
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == (
        "local",
        "local",
    )
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"} & set(environment)


def test_every_function_of_the_template_gets_the_stack(tmp_path: Path) -> None:
    built = tmp_path / "template.yaml"
    built.write_text((ROOT / "template.yaml").read_text())
    written = sam_invoke.write_template(built, {"AWS_ENDPOINT_URL": "http://x"})
    assert written.parent == tmp_path
    resources: dict[str, Any] = json.loads(written.read_text())["Resources"]
    functions = {
        name: resource["Properties"]["Environment"]["Variables"]
        for name, resource in resources.items()
        if resource.get("Type") == "AWS::Serverless::Function"
    }
    stages = {
        path.name for path in (ROOT / "functions").iterdir() if (path / "handler.py").exists()
    }
    assert set(functions) == {sam_invoke.logical_id(stage) for stage in stages}
    assert all(each["AWS_ENDPOINT_URL"] == "http://x" for each in functions.values())


def test_without_a_stack_or_an_event_a_sentence_says_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(project) == 1
    assert "no stack to run the function against; `dormouse local up" in capsys.readouterr().err
    assert invoke(project, event="none.json") == 1
    assert "there is no event none.json" in capsys.readouterr().err


def test_make_invoke_builds_for_this_machine_before_it_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile[makefile.index("\ninvoke:") :].partition("\n\n")[0]
    built = recipe.index("build ARCH=$(HERE)")
    assert built < recipe.index("tools/sam_invoke.py $(FN) events/$(FN)/$(EVENT).json")
    assert "--architecture $(HERE)" in recipe
