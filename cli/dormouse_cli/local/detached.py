"""A local stack that runs on after the command that started it; used by `commands`.

There is one for each user of the machine. Its process holds a lock as long as it lives, and a file
says which process that is and what to export. So a stack is found even if it does not answer, and
no other process is ever taken for it.
"""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from dormouse.folder.processes import is_locked
from dormouse_cli.local.plan import StartError

UP = "the stack is up"
"""What the command says when the stack answers; what it prints before is complete then."""
_POLL_SECONDS = 0.1
_START_SECONDS, _STOP_SECONDS, _ANSWER_SECONDS = 300, 360, 3


@dataclass(frozen=True, slots=True)
class Detached:
    """A stack in the background: its process, what to export, the folder of its logs.

    While it is starting, there is nothing to export.
    """

    pid: int
    environment: Mapping[str, str]
    state: str

    @property
    def endpoint_url(self) -> str:
        """Where its AWS answers; empty while it is starting."""
        return self.environment.get("AWS_ENDPOINT_URL", "")

    @property
    def logs(self) -> Path:
        """Where its logs are."""
        return Path(self.state) / "logs"

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return what a person wants to know of it, each with its name."""
        if not self.endpoint_url:
            endpoint = "none yet: it is starting"
        elif self._answers():
            endpoint = self.endpoint_url
        else:
            endpoint = f"{self.endpoint_url} does not answer; `dormouse local down` stops it"
        return (
            ("endpoint", endpoint),
            ("http api", self.environment.get("DORMOUSE_HTTP_API", "")),
            ("instance", self.environment.get("DORMOUSE_INSTANCE", "")),
            ("process", str(self.pid)),
            ("logs", str(self.logs)),
        )

    def _answers(self) -> bool:
        """Return whether its AWS answers a call, whatever it says."""
        endpoint = urlsplit(self.endpoint_url)
        connection = HTTPConnection(endpoint.hostname or "", endpoint.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()
        return True


def record_path() -> Path:
    """Return the file that says which stack runs."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "dormouse" / "local.json"


def running() -> Detached | None:
    """Return the stack that runs in the background; None if none does."""
    if not is_locked(_lock_path()):
        return None
    try:
        return Detached(**json.loads(record_path().read_text()))
    except FileNotFoundError:  # it was started at this very moment
        return None


def start(arguments: Sequence[str], state: Path) -> Detached:
    """Start ``dormouse local up`` with arguments in the background, and wait until it answers.

    `state` is the folder that the arguments name.
    Raises StartError: one runs already, or it did not come up.
    """
    path = record_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(_lock_path(), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StartError(
            f"{path.parent}, where it is noted which stack runs, cannot be written: "
            f"{error.strerror}",
            hint="name another folder by the variable XDG_STATE_HOME",
        ) from error
    try:
        _lock(lock)
        path.unlink(missing_ok=True)  # it is of a stack that was killed
        return _start(lock, arguments, state)
    finally:
        os.close(lock)  # the stack has its own


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        stack = running()
        where = f", at {stack.endpoint_url}" if stack and stack.endpoint_url else ""
        raise StartError(
            f"a local stack runs already{where}",
            hint="`dormouse local env` prints its variables, `dormouse local down` stops it",
        ) from error


def _start(lock: int, arguments: Sequence[str], state: Path) -> Detached:
    state.mkdir(parents=True, exist_ok=True)
    exports, log = state / "exports.sh", state / "up.log"
    with _private(exports) as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            # -P: the current folder may have modules of the same names as those that are imported.
            [sys.executable, "-P", "-m", "dormouse_cli", "local", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C in this terminal is not for it
            pass_fds=(lock,),
        )
    try:
        _record(Detached(process.pid, {}, str(state)))
        _wait(process, log)
        stack = Detached(process.pid, _exported(exports), str(state))
        _record(stack)
    except BaseException:  # Ctrl-C, too: nobody would know of it
        process.kill()
        process.wait()
        record_path().unlink(missing_ok=True)
        raise
    return stack


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the stack says that it is up. Raises StartError: it ends, or takes too long."""
    end = time.monotonic() + _START_SECONDS
    while UP not in log.read_text():
        if process.poll() is not None or time.monotonic() > end:
            output = log.read_text().strip() or f"it ended with {process.returncode}"
            raise StartError(f"the local stack did not start: {output}", hint=f"see {log}")
        time.sleep(_POLL_SECONDS)


def _exported(exports: Path) -> dict[str, str]:
    """Return the variables that the stack has printed, as lines for a shell."""
    named = (shlex.split(line)[1].partition("=") for line in exports.read_text().splitlines())
    return {name: value for name, _, value in named}


def _private(path: Path) -> BinaryIO:
    """Open a new file to write, in place of what is there, that no other user may read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _record(stack: Detached) -> None:
    """Record which stack runs, in one step: a reader sees all of the record, or none.

    The record has the token of the API over HTTP, so no other user may read it.
    """
    new = record_path().with_suffix(".new")
    with _private(new) as file:
        file.write(json.dumps(asdict(stack)).encode())
    new.replace(record_path())


def stop(stack: Detached) -> None:
    """Stop a stack, and wait until it has ended. Raises StartError: it does not end."""
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(stack.pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    while is_locked(_lock_path()):
        if time.monotonic() > end:
            raise StartError(
                f"process {stack.pid} does not end", hint=f"see {stack.logs}; kill -9 {stack.pid}"
            )
        time.sleep(_POLL_SECONDS)


def _lock_path() -> Path:
    return record_path().with_suffix(".lock")
