"""A local stack that runs on after the command that started it; used by `commands`.

There is one for each user of the machine. A file says which process it is and what to export; it is
believed only while the process lives and its endpoint answers.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dormouse_cli.local.errors import StartError

UP = "the stack is up"
"""What the command says when the stack answers; what it prints before is complete then."""
_POLL_SECONDS = 0.1
_START_SECONDS, _STOP_SECONDS = 300, 360


@dataclass(frozen=True, slots=True)
class Detached:
    """A stack in the background: its process, what to export, the folders of its logs and data."""

    pid: int
    environment: Mapping[str, str]
    state: str
    data: str = ""

    @property
    def endpoint_url(self) -> str:
        """Where its AWS answers."""
        return self.environment["AWS_ENDPOINT_URL"]


def record_path() -> Path:
    """Return the file that says which stack runs."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "dormouse" / "local.json"


def running() -> Detached | None:
    """Return the stack that runs in the background; None if none does."""
    try:
        found = Detached(**json.loads(record_path().read_text()))
        os.kill(found.pid, 0)
        endpoint = urlsplit(found.endpoint_url)
        socket.create_connection((endpoint.hostname or "", endpoint.port or 0), timeout=5).close()
    except (OSError, ValueError, TypeError, KeyError):  # none, not whole, or of one that has ended
        return None
    return found


def start(arguments: Sequence[str], state: Path, data: Path | None = None) -> Detached:
    """Start ``dormouse local up`` with arguments in the background, and wait until it answers.

    `state` and `data` are the folders that the arguments name.

    Raises:
        StartError: one runs already, or it did not come up.
    """
    if found := running():
        raise StartError(
            f"a local stack runs already, at {found.endpoint_url}",
            hint="`dormouse local env` prints its variables, `dormouse local down` stops it",
        )
    state.mkdir(parents=True, exist_ok=True)
    exports, log = state / "exports.sh", state / "up.log"
    with exports.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "dormouse_cli", "local", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C in this terminal is not for it
        )
    end = time.monotonic() + _START_SECONDS
    while UP not in log.read_text():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            said = log.read_text().strip() or f"it ended with {process.returncode}"
            raise StartError(f"the local stack did not start: {said}", hint=f"see {log}")
        time.sleep(_POLL_SECONDS)
    lines = exports.read_text().splitlines()
    named = (shlex.split(line)[1].partition("=") for line in lines)
    exported = {name: value for name, _, value in named}
    found = Detached(process.pid, exported, str(state), str(data.resolve()) if data else "")
    path = record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found)))
    return found


def stop(found: Detached) -> None:
    """Stop a stack, and wait until it has ended.

    Raises:
        StartError: it does not end.
    """
    os.kill(found.pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    while _is_alive(found.pid):
        if time.monotonic() > end:
            raise StartError(f"process {found.pid} does not end", hint=f"kill {found.pid}")
        time.sleep(_POLL_SECONDS)
    record_path().unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
