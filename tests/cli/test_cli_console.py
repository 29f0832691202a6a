"""`dormouse console`: the page of an instance, for who has its address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError
from dormouse_cli.errors import exit_code
from tests.support.waiting import LIMIT_SECONDS

COMMAND = [sys.executable, "-m", "dormouse_cli", "console", "--no-open"]


def status_of(url: str, path: str, **headers: str) -> int:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_page_of_a_folder_is_served_until_it_is_interrupted(tmp_path: Path) -> None:
    Instance.open(tmp_path / "mice", background=False).close()
    variables = {**os.environ, "DORMOUSE_INSTANCE": str(tmp_path / "mice")}
    with subprocess.Popen(COMMAND, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            uri = process.stdout.readline().strip()
            url, _, token = uri.partition("/#token=")
            assert status_of(url, "/") == status_of(url, "/console/app.js") == 200
            assert status_of(url, "/tables") == 401
            assert status_of(url, "/tables", Authorization=f"Bearer {token}") == 200
            assert status_of(url, "/", Host="example.com") == 403
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) in (0, 130)


def test_where_an_api_is_served_already_its_page_is_named(tmp_path: Path) -> None:
    variables = {
        **os.environ,
        "DORMOUSE_INSTANCE": str(tmp_path / "mice"),
        "DORMOUSE_HTTP_API": "http://127.0.0.1:1",
        "DORMOUSE_HTTP_TOKEN": "t",
    }
    done = subprocess.run(
        COMMAND, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert (done.returncode, done.stdout) == (0, "http://127.0.0.1:1/#token=t\n")


def test_an_address_of_no_api_is_refused(tmp_path: Path) -> None:
    variables = {**os.environ, "DORMOUSE_INSTANCE": "prod", "AWS_DEFAULT_REGION": "eu-west-2"}
    command = [*COMMAND, "--api", "http://example.com"]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == exit_code(InvalidRequestError(""))
    assert "is not the address of an HTTP API" in done.stderr
