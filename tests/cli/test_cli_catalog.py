"""`dormouse iceberg serve`: the catalog at a port, for a while or for a command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from dormouse.client.instance import Instance
from tests.cli.conftest import Dormouse
from tests.support.waiting import LIMIT_SECONDS

READ = (
    "import os, sys, urllib.request as u;"
    "uri = os.environ['DORMOUSE_CATALOG_URI'];"
    "assert uri == os.environ['PYICEBERG_CATALOG__DORMOUSE__URI'];"
    "print(u.urlopen(uri + '/v1/namespaces/dormouse/tables').read().decode());"
    "sys.exit(7)"
)


def test_a_command_finds_the_catalog_and_its_exit_code_is_passed_on(
    flights: Dormouse, capfd: pytest.CaptureFixture[str]
) -> None:
    assert flights("table", "set", "flights", "iceberg=on").exit_code == 0
    ended = flights("iceberg", "serve", "--", sys.executable, "-c", READ)
    assert ended.exit_code == 7
    assert json.loads(capfd.readouterr().out) == {
        "identifiers": [{"namespace": ["dormouse"], "name": "flights"}]
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(tmp_path: Path, number: int) -> None:
    folder = str(tmp_path / "mice")
    Instance.open(folder, background=False).close()
    command = [sys.executable, "-m", "dormouse_cli"]
    environment = {**os.environ, "DORMOUSE_INSTANCE": folder}
    serving = subprocess.Popen(
        [*command, "iceberg", "serve"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        uri = serving.stdout.readline().strip()
        assert uri.startswith("http://127.0.0.1:") and uri.endswith("/iceberg")
        with urlopen(f"{uri}/v1/config", timeout=LIMIT_SECONDS) as response:
            assert json.load(response)["endpoints"]
        serving.send_signal(number)
        assert serving.wait(LIMIT_SECONDS) == 0
    finally:
        serving.kill()
        serving.wait()


def test_without_an_instance_nothing_is_served(tmp_path: Path) -> None:
    environment = {**os.environ, "DORMOUSE_INSTANCE": str(tmp_path / "mice")}
    ended = subprocess.run(
        [sys.executable, "-m", "dormouse_cli", "iceberg", "serve"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode == 3
    assert "there is no instance" in ended.stderr


def test_a_port_that_cannot_be_used_is_refused(flights: Dormouse) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = flights("iceberg", "serve", "--port", str(port))
    assert refused.exit_code == 4
    assert f"port {port} cannot be used" in refused.stderr
