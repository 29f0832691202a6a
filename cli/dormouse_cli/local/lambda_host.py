"""Runs the functions of a deployment, each in a few processes; used by event sources and tests."""

import json
import os
import queue
import resource
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dormouse import lifeline
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse_cli.local.plan import Deployment, LocalStackError, PlannedFunction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an invocation gave: the handler's result as JSON, or the error in AWS's form."""

    payload: bytes
    failed: bool


_JSON = {"content-type": "application/json"}


class RuntimeApi(LoopbackServer):
    """Serves the process of a function, until closed, as AWS's `awslambdaric` asks: ``GET
    …/invocation/next`` waits for an event, and ``POST`` to ``…/{id}/response``, ``…/{id}/error`` or
    ``…/init/error`` reports its outcome.

    `events` are for the process, each with its id; None lets it end. `signals` are what it did: an
    outcome, or None if it asked for an event; and the code with which it exited.
    """

    def __init__(self, function: PlannedFunction) -> None:
        super().__init__(self._answered)
        self._function = function
        self.events: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self.signals: queue.SimpleQueue[Outcome | int | None] = queue.SimpleQueue()
        self.start()

    def close(self) -> None:
        """Stop serving; a process that waits for an event gets none."""
        self.events.put(None)
        super().close()

    def _answered(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            return self._next_event()
        kind = request.path.rpartition("/")[2]
        if kind not in ("response", "error"):
            return HttpResponse(404, _JSON, b"{}")
        self.signals.put(Outcome(request.body, failed=kind == "error"))
        return HttpResponse(202, _JSON, b'{"status":"OK"}')

    def _next_event(self) -> HttpResponse:
        self.signals.put(None)
        event = self.events.get()
        if event is None:
            return HttpResponse(410, {"connection": "close"})
        deadline_ms = int((time.time() + self._function.timeout_seconds) * 1000)
        headers = {
            "Lambda-Runtime-Aws-Request-Id": event[0],
            "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self._function.arn,
            "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
        }
        return HttpResponse(200, {**_JSON, **headers}, event[1])


INIT_TIMEOUT_SECONDS = 900
"""AWS allows 10 s, but a busy laptop with a cold disk is slower: after this, it hangs."""


class Sandbox:
    """A running process of a function, which takes one event at a time; create it to start it.

    A handler that raises leaves it in use; a crash, a time-out or a failed initialisation ends it,
    as on AWS.
    """

    def __init__(
        self, function: PlannedFunction, environment: Mapping[str, str], scratch: Path, log: Path
    ) -> None:
        """`scratch` becomes an empty folder for temporary files; output is appended to `log`."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self._function, self._scratch, self._log = function, scratch, log
        self._api = RuntimeApi(function)
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
                    "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._api.server_port}",
                    "TMPDIR": str(scratch),
                    "PYTHONFAULTHANDLER": "1",  # a crash in native code shows where, in the log
                },
                stdout=output,
            )
        lifeline.when_ended(self._process, self._api.signals.put)

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
            if not self._initialised:
                failure = self._signal(INIT_TIMEOUT_SECONDS, "Initialisation")
                if failure is not None:  # its module could not be loaded
                    self.close()
                    return failure
                self._initialised = True
            self._api.events.put((request_id, event))
            outcome = None
            while outcome is None:  # None: the process has come back for this event
                outcome = self._signal(self._function.timeout_seconds, "Task")
            return outcome
        finally:
            self.request_id = None

    def close(self) -> None:
        """Kill the process with all that it started. May be called more than once."""
        with self._closing:
            if self.alive:
                self.alive = False
                lifeline.kill(self._process)
                self._api.close()
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _signal(self, timeout_seconds: int, what: str) -> Outcome | None:
        """Return the next signal; the error of a process that has ended, or is ended now."""
        try:
            signal = self._api.signals.get(timeout=timeout_seconds)
        except queue.Empty:
            message = f"{what} timed out after {timeout_seconds:.2f} seconds"
            return self._end("Sandbox.Timedout", message)
        if isinstance(signal, int):
            how = f"signal: {-signal}" if signal < 0 else f"exit status {signal}"
            return self._end("Runtime.ExitError", f"Runtime exited with error: {how}")
        return signal

    def _end(self, kind: str, message: str) -> Outcome:
        self.close()
        with self._log.open("a") as output:
            output.write(f"{self.request_id} {kind}: {message}\n")
        error = {"errorType": kind, "errorMessage": message}
        return Outcome(json.dumps(error).encode(), failed=True)


DEFAULT_SLOTS = 2
IDLE_SECONDS = 60
"""How long a process without work is kept: each holds 70 to 230 MB, and there may be thirty."""
_LOOK_EVERY_SECONDS = 10


class FunctionPool:
    """Up to `slots` sandboxes of one function, started when needed and kept while they are used."""

    def __init__(
        self, slots: int, start: Callable[[int], Sandbox], now: Callable[[], float] = time.time
    ) -> None:
        """`start` makes a sandbox, given how many there were before; `now` is in seconds."""
        self._start, self._now = start, now
        self._permits = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._sandboxes: list[Sandbox] = []
        self._idle: list[tuple[float, Sandbox]] = []
        self._started, self._closed = 0, False

    def invoke(self, request_id: str, event: bytes) -> Outcome:
        """Run the function on the event, waiting for a free slot if all are busy."""
        with self._permits:
            sandbox = self._take()
            try:
                return sandbox.invoke(request_id, event)
            finally:
                with self._lock:
                    if sandbox.alive:
                        self._idle.append((self._now(), sandbox))

    def end_idle(self, seconds: float) -> None:
        """End the sandboxes that have had nothing to do for some time; an event starts others."""
        before = self._now() - seconds
        with self._lock:
            idle = [sandbox for since, sandbox in self._idle if since <= before]
            self._idle = [each for each in self._idle if each[0] > before]
        for sandbox in idle:
            sandbox.close()

    def sandboxes(self) -> list[Sandbox]:
        """Those that are alive."""
        with self._lock:
            self._sandboxes = [sandbox for sandbox in self._sandboxes if sandbox.alive]
            return list(self._sandboxes)

    def close(self) -> None:
        """End all sandboxes; what they are doing fails."""
        with self._lock:
            self._closed = True
        for sandbox in self.sandboxes():
            sandbox.close()

    def _take(self) -> Sandbox:
        """Return the sandbox used last, which is most likely warm, or a new one."""
        with self._lock:
            if self._closed:
                raise LocalStackError("the local stack is stopping")
            if self._idle:
                return self._idle.pop()[1]
            self._sandboxes.append(self._start(self._started))
            self._started += 1
            return self._sandboxes[-1]


class LambdaHost:
    """All functions of a deployment, by name or logical id."""

    def __init__(
        self, deployment: Deployment, environment: Mapping[str, str], state_dir: Path
    ) -> None:
        """`environment` is what every function gets; logs and scratch folders go to `state_dir`."""
        self._deployment = deployment
        self._logs, self._scratch = state_dir / "logs", state_dir / "scratch"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._pools = {
            function.name: self._pool(function, environment) for function in deployment.functions
        }

    def invoke(self, name: str, event: bytes) -> Outcome:
        """Run a function on an event (JSON), and wait for what it gives."""
        function = self._deployment.function(name)
        return self._pools[function.name].invoke(str(uuid.uuid4()), event)

    def sandboxes(self) -> list[Sandbox]:
        """The processes of all functions that are alive."""
        return [sandbox for pool in self._pools.values() for sandbox in pool.sandboxes()]

    def end_idle_until(self, stopping: threading.Event) -> None:
        """End the processes that have had nothing to do for some time, as Lambda does."""
        while not stopping.wait(_LOOK_EVERY_SECONDS):
            for pool in self._pools.values():
                pool.end_idle(IDLE_SECONDS)

    def close(self) -> None:
        """End every process of every function, and remove their scratch folders."""
        for pool in self._pools.values():
            pool.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _pool(self, function: PlannedFunction, environment: Mapping[str, str]) -> FunctionPool:
        variables = function_environment(function, environment)
        log, scratch = self._logs / f"{function.name}.log", self._scratch / function.name
        limits = [
            source.maximum_concurrency
            for source in self._deployment.event_sources
            if source.function == function.name and source.maximum_concurrency is not None
        ]
        return FunctionPool(
            max(limits, default=DEFAULT_SLOTS),
            lambda number: Sandbox(function, variables, scratch / str(number), log),
        )


def function_environment(function: PlannedFunction, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that Lambda sets, over `base`, and the function's own over them."""
    return {
        **base,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "LAMBDA_TASK_ROOT": str(function.code),
        "PYTHONPATH": os.pathsep.join(map(str, (function.code, *function.layers))),
        "_HANDLER": function.handler,
        **function.environment,
    }


@dataclass(frozen=True, slots=True)
class Invoked:
    """What an invocation gave, and what it took; `seconds` include the start of the process,
    `peak_bytes` are the most memory of any that this process has started.
    """

    outcome: Outcome
    log: str
    seconds: float
    peak_bytes: int


CONNECT_SECONDS = 10
"""How long an endpoint may take to accept a connection."""


def check_endpoint(url: str) -> None:
    """Connect to an endpoint once: a function would try for minutes.
    Raises LocalStackError: it is not a URL, or nothing answers there.
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
    finally:
        sandbox.close()
    text = log.read_bytes().decode(errors="backslashreplace")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return Invoked(outcome, text, seconds, peak if sys.platform == "darwin" else peak * 1024)
