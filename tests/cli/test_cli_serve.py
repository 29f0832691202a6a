"""`dormouse serve`: the API at a port of this machine, for who has the token."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dormouse import Instance

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
def served(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("served")
    serving = subprocess.Popen(
        COMMAND,
        env=environment(folder, DORMOUSE_HTTP_TOKEN="secret"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        first, second = serving.stdout.readline(), serving.stdout.readline()
        assert second == "export DORMOUSE_HTTP_TOKEN=secret\n"
        yield first.strip().removeprefix("export DORMOUSE_HTTP_API=")
        serving.terminate()
        assert serving.wait(LIMIT_SECONDS) == 0
    finally:
        serving.kill()
        serving.wait()
