"""Run one function on one event, in a process of its own, as Lambda would; used by `commands`.

The function's code, handler, environment and time limit are the template's; its AWS is an endpoint
that somebody else runs, such as `dormouse local up`.
"""

import resource
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dormouse_cli.local.errors import LocalStackError
from dormouse_cli.local.lambda_host import Outcome, Sandbox, function_environment
from dormouse_cli.local.plan import PlannedFunction


@dataclass(frozen=True, slots=True)
class Invoked:
    """What an invocation gave, and what it took; `seconds` include the start of the process."""

    outcome: Outcome
    log: str
    seconds: float
    peak_bytes: int


CONNECT_SECONDS = 10
"""How long an endpoint may take to accept a connection."""


def check_endpoint(url: str) -> None:
    """Connect to an endpoint once: a function would try for minutes.

    Raises:
        LocalStackError: it is not a URL, or nothing answers there.
    """
    hint = "start a stack by `dormouse local up`, and export the lines that it prints"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise LocalStackError(f"{url!r} is not a URL: {error}", hint=hint) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LocalStackError(f"{url!r} is not a URL of http or https", hint=hint)
    try:
        socket.create_connection((parts.hostname, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise LocalStackError(f"nothing answers at {url}: {error}", hint=hint) from error


def run_once(
    function: PlannedFunction,
    event: bytes,
    environment: Mapping[str, str],
    folder: Path,
    request_id: str,
) -> Invoked:
    """Run a function on an event in a process that has ended when this returns.

    `environment` is what every function gets; `folder` takes temporary files and the log.
    """
    log = folder / "log"
    began = time.monotonic()
    variables = function_environment(function, environment)
    sandbox = Sandbox(function, variables, folder / "scratch", log)
    try:
        outcome = sandbox.invoke(request_id, event)
        seconds = time.monotonic() - began
        peak = _peak_bytes(sandbox.pid)
    finally:
        sandbox.close()
    text = log.read_bytes().decode(errors="backslashreplace")
    return Invoked(outcome, text, seconds, peak or _peak_bytes_of_children())


def _peak_bytes(pid: int) -> int:
    """Return the most memory that a process had; 0 if the system does not say or it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields.get("VmHWM", "0").split()[0]) * 1024


def _peak_bytes_of_children() -> int:
    """Return the most memory of a process that this one started, once it has ended."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
