"""Run one built function in a container, against the local stack: `make invoke` calls this.

`sam local invoke` gives a container only the variables that the template declares, and the
container has a network of its own. So the built template gets the stack's variables, and the stack
is reached as ``host.docker.internal``: Docker Desktop leads that to the loopback interface of the
machine, Docker Engine on Linux to its bridge, where a forwarder waits while the function runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dormouse.errors import DormouseError
from dormouse_cli.local import detached
from dormouse_cli.local.lambda_host import check_endpoint
from dormouse_cli.local.plan import LocalStackError
from dormouse_cli.local.resources import REGION, aws_environment, load

BUILT = Path(".aws-sam/build/template.yaml")
HOST = "host.docker.internal"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def endpoint() -> str:
    """Return the endpoint of the stack: what is exported, else the one in the background.
    Raises LocalStackError: there is none, or nothing answers there.
    """
    stack = detached.running()
    url = os.environ.get("AWS_ENDPOINT_URL") or (stack.endpoint_url if stack else "")
    if not url:
        raise LocalStackError(
            "no stack to run the function against",
            hint="`dormouse local up --detach` starts one; or export the lines of `local up`",
        )
    check_endpoint(url)
    return url


def write_template(built: Path, variables: Mapping[str, str]) -> Path:
    """Write a copy of a built template in which every function has these variables.

    It lies beside the original, whose paths are relative.
    """
    template: Any = load(built)
    for resource in template["Resources"].values():
        if resource.get("Type") == "AWS::Serverless::Function":
            properties = resource["Properties"]
            declared = properties.setdefault("Environment", {}).setdefault("Variables", {})
            declared.update(variables)
    path = built.with_name("local-stack.json")
    path.write_text(json.dumps(template))
    return path


def logical_id(stage: str) -> str:
    """Return the logical id of a stage's function: `batch_files` is `BatchFilesFunction`."""
    return "".join(word.title() for word in stage.split("_")) + "Function"


@contextmanager
def reachable(url: str) -> Iterator[str]:
    """Yield the URL at which a container reaches an endpoint, within the block."""
    parts = urlsplit(url)
    if parts.hostname not in _LOOPBACK:
        yield url
        return
    port = parts.port or 80
    try:
        server = socket.create_server((_gateway(), 0))
    except OSError:  # no address of this machine: Docker runs in a virtual one, and leads here
        yield f"{parts.scheme}://{HOST}:{port}"
        return
    threading.Thread(target=_accept, args=(server, parts.hostname, port), daemon=True).start()
    yield f"{parts.scheme}://{HOST}:{server.getsockname()[1]}"


def _gateway() -> str:
    """Return the address that this machine has on Docker's bridge."""
    form = "{{(index .IPAM.Config 0).Gateway}}"
    command = ["docker", "network", "inspect", "bridge", "--format", form]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _accept(server: socket.socket, host: str, port: int) -> None:
    while True:
        near, _ = server.accept()
        far = socket.create_connection((host, port))
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()  # one side is gone: so is the connection


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``sam local invoke``, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", help="such as ingest")
    parser.add_argument("event", type=Path, help="a file of events/")
    parser.add_argument("--architecture", required=True)
    options = parser.parse_args(arguments)
    try:
        if not options.event.is_file():
            raise LocalStackError(f"there is no event {options.event}", hint="see events/")
        url = endpoint()
        with reachable(url) as seen:
            environment = aws_environment(seen)
            variables = {name: environment[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION")}
            instance = os.environ.get("DORMOUSE_INSTANCE", "local")
            overrides = f"Architecture={options.architecture} Instance={instance}"
            command = [
                *("sam", "local", "invoke", logical_id(options.stage)),
                *("--template", str(write_template(BUILT, variables))),
                *("--event", str(options.event), "--add-host", f"{HOST}:host-gateway"),
                *("--parameter-overrides", overrides, "--region", REGION),
            ]
            caller = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
            del environment["AWS_ENDPOINT_URL"]  # meant for the container, not for SAM
            sam = shutil.which(
                "sam", path=f"{Path(sys.executable).parent}:{caller.get('PATH', '')}"
            )
            return subprocess.run(
                [sam or "sam", *command[1:]], env={**caller, **environment}, check=False
            ).returncode
    except DormouseError as error:
        print(f"error: {error.explanation}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
