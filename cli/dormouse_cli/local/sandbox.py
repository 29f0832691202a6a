"""One process of one function, as Lambda's execution environment; used by `lambda_host`.

It takes one event at a time. A handler that raises leaves it in use; a crash, a time-out or a
failed initialisation ends it, as on AWS, and the host starts another for the next event.
"""

import json
import queue
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dormouse import lifeline
from dormouse_cli.local.plan import Function
from dormouse_cli.local.runtime_api import (
    Answered,
    Delivered,
    Exited,
    InitFailed,
    Invocation,
    Ready,
    RuntimeApi,
    Signal,
)

INIT_TIMEOUT_SECONDS = 900
"""AWS allows 10 s, but a busy laptop with a cold disk is slower: after this, it hangs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an invocation gave: the handler's result as JSON, or the error in AWS's form."""

    payload: bytes
    failed: bool


class Sandbox:
    """A running function process; create it to start it."""

    def __init__(
        self,
        function: Function,
        environment: Mapping[str, str],
        scratch: Path,
        log: Path,
        now: Callable[[], float],
    ) -> None:
        """`scratch` becomes an empty folder for temporary files; output is appended to `log`."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self._function = function
        self._log = log
        self._api = RuntimeApi(now)
        self._initialised = False
        self._closing = threading.Lock()
        self.alive = True
        self.request_id: str | None = None
        with log.open("ab") as output:
            self._process = lifeline.start(
                "awslambdaric",
                [function.handler],
                cwd=function.code,
                environment={
                    **environment,
                    "AWS_LAMBDA_RUNTIME_API": self._api.address,
                    "TMPDIR": str(scratch),
                    "PYTHONFAULTHANDLER": "1",  # a crash in native code shows where, in the log
                },
                stdout=output,
                stderr=output,
            )
        threading.Thread(target=self._report_exit, daemon=True).start()

    @property
    def function(self) -> str:
        """The name of its function."""
        return self._function.name

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def crash(self) -> None:
        """Kill the process as a failing machine would: what it is doing ends there and fails."""
        self._process.kill()

    def invoke(self, request_id: str, event: bytes) -> Outcome:
        """Run the function with the event; the sandbox may not be `alive` afterwards.

        While it runs, `request_id` is that of the event; it is None between events.
        """
        self.request_id = request_id
        try:
            return self._invoke(request_id, event)
        finally:
            self.request_id = None

    def _invoke(self, request_id: str, event: bytes) -> Outcome:
        if not self._initialised:
            failure = self._initialise()
            if failure is not None:
                return self._end(request_id, failure)
            self._initialised = True
        function = self._function
        self._api.invocations.put(
            Invocation(request_id, event, function.arn, function.timeout_seconds)
        )
        return self._await_answer(request_id)

    def close(self) -> None:
        """Kill the process with all that it started. May be called more than once."""
        with self._closing:
            if self.alive:
                self.alive = False
                lifeline.kill(self._process)
                self._api.close()

    def _initialise(self) -> bytes | None:
        """Wait until the process asks for an event; else the error to answer with."""
        match self._signal(INIT_TIMEOUT_SECONDS):
            case Ready():
                return None
            case InitFailed(payload):
                return payload
            case Exited(code):
                return _exit_error(code)
            case _:
                message = f"Initialisation timed out after {INIT_TIMEOUT_SECONDS} seconds"
                return _error("Sandbox.Timedout", message)

    def _await_answer(self, request_id: str) -> Outcome:
        timeout: int | None = None  # the function's time starts when it has got the event
        while True:
            match self._signal(timeout):
                case Answered(answered, payload, failed) if answered == request_id:
                    return Outcome(payload, failed)
                case Delivered():
                    timeout = self._function.timeout_seconds
                case Exited(code):
                    return self._end(request_id, _exit_error(code))
                case None:
                    message = f"Task timed out after {self._function.timeout_seconds:.2f} seconds"
                    return self._end(request_id, _error("Sandbox.Timedout", message))
                case _:
                    pass  # Ready: the process has come back for this event

    def _signal(self, timeout_seconds: int | None) -> Signal | None:
        try:
            return self._api.signals.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def _end(self, request_id: str, payload: bytes) -> Outcome:
        self.close()
        error = json.loads(payload)
        with self._log.open("a") as output:
            output.write(f"{request_id} {error.get('errorType')}: {error.get('errorMessage')}\n")
        return Outcome(payload, failed=True)

    def _report_exit(self) -> None:
        self._api.signals.put(Exited(self._process.wait()))


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()


def _exit_error(code: int) -> bytes:
    how = f"signal: {-code}" if code < 0 else f"exit status {code}"
    return _error("Runtime.ExitError", f"Runtime exited with error: {how}")
