"""`dormouse serve`: the API at a port of this machine, for who has the token."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dormouse.client.instance import Instance
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "dormouse_cli", "serve"]
LIMIT_SECONDS = 60


def environment(folder: Path, **more: str) -> dict[str, str]:
    Instance.open(folder / "mice", background=False).close()
    return {**os.environ, "DORMOUSE_INSTANCE": str(folder / "mice"), **more}


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_examples_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    scripts = re.findall(
        r"^```bash\n(.*?)^```", (ROOT / "docs" / "http.md").read_text(), re.M | re.S
    )
    script = "set -euo pipefail\n" + "".join(scripts).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        [*COMMAND, "--", "bash", "-c", script],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"2026-01-05","DM1",3' in done.stdout.replace("2026-01-05,", '"2026-01-05",')
    *_, page, statement = done.stdout.split("}{")
    assert '"next":"' in page
    assert '"DM1","days":2' in statement
    assert statement.count("2026-01-0") == 3, "the rows of all files"
    with Instance.open(tmp_path / "mice", background=False) as instance:
        assert instance.table("flights").count() == 3


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic secret"}, 401),
        ({"Authorization": "Bearer secret", "Origin": "http://example.com"}, 403),
        ({"Authorization": "Bearer secret", "Host": "example.com"}, 403),
        ({"Authorization": "Bearer secret"}, 200),
        ({"Authorization": "bearer secret"}, 200),
    ],
)
def test_only_who_has_the_token_is_answered(
    served: str, headers: dict[str, str], status: int
) -> None:
    address = urlsplit(served).netloc
    connection = HTTPConnection(address, timeout=LIMIT_SECONDS)
    connection.request("GET", "/tables", headers={"Origin": served, **headers})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status == status
    assert ("tables" in body) == (status == 200)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with serving(environment(folder, DORMOUSE_HTTP_TOKEN="secret")) as url:
        yield url


@contextmanager
def serving(given: dict[str, str]) -> Iterator[str]:
    """Serve until the end of the block, which the server has to live to see."""
    process = subprocess.Popen(
        COMMAND, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert second == "export DORMOUSE_HTTP_TOKEN=secret\n"
        yield first.strip().removeprefix("export DORMOUSE_HTTP_API=")
        assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


DEADLY = """
import signal
from dormouse.client import inferring
from dormouse.files import loader
from dormouse.statements import engine

def dies(name, module, is_deadly):
    does = getattr(module, name)
    def checked(*given, **named):
        if is_deadly(*given):
            signal.raise_signal(signal.SIGSEGV)  # of this thread: it goes no further
        return does(*given, **named)
    setattr(module, name, checked)

dies("read_source", loader, lambda local, *_: b"deadly" in local.read_bytes())
dies("infer_file", inferring, lambda local, *_: b"deadly" in local.read_bytes())
dies("plan", engine, lambda cursor, sql, *_: "deadly" in sql)
"""


def test_what_ends_who_computes_or_reads_it_is_refused_and_nobody_else_is(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DEADLY)
    given = environment(
        tmp_path,
        DORMOUSE_HTTP_TOKEN="secret",
        DORMOUSE_SPARK="no",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        TMPDIR=str(tmp_path),
    )
    deadly, good = b"k,v\n1,deadly\n", b"k,v\n1,a\n"
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("t", "k:long, v:string", row_keys=["k"])
    with serving(given) as url:
        connection = HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_SECONDS)

        def asked(method: str, path: str, body: bytes | None = None) -> Any:
            headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            return json.loads(connection.getresponse().read())

        def state(name: str) -> str:
            shown: str = asked("GET", f"/tables/t/files/{name}")["state"]
            return shown if shown != "waiting" else ""

        def sql(text: str) -> Any:
            return asked("POST", "/sql", json.dumps({"text": text}).encode())

        for name, content in (("deadly.csv", deadly), ("good.csv", good)):
            asked("PUT", f"/tables/t/files/{name}", content)
        sample = {"name": "s.csv", "content": b64encode(deadly).decode()}
        wanted = json.dumps({"name": "other", "row_keys": ["k"], "sample": sample}).encode()
        assert "ended the process that read it" in asked("POST", "/tables", wanted)["detail"]
        ended = sql("SELECT 'deadly'")
        assert ended["status"] == 413 and "with SIGSEGV" in ended["detail"]
        assert eventually(lambda: state("deadly.csv")) == "refused"
        assert eventually(lambda: state("good.csv")) == "ingested"
        assert sql("SELECT k FROM t")["rows"] == [{"k": 1}]
    assert not list((tmp_path / "mice").rglob("computing-*")), "nothing is left in scratch"
    with Instance.open(tmp_path / "mice", background=False) as instance:
        assert instance.table("t").count() == 1
