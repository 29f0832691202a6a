"""Runs the functions of a deployment, each in a few processes; used by event sources and tests."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dormouse import lifeline
from dormouse_cli.local.errors import LocalStackError
from dormouse_cli.local.plan import Deployment, PlannedFunction

# The Lambda Runtime API for one function process; `sandbox` gives it events and reads signals.
#
# What AWS's `awslambdaric` asks of it: `GET …/invocation/next` waits for the next event, and `POST`
# to `…/{id}/response`, `…/{id}/error` or `…/init/error` reports its outcome.


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event for a function."""

    request_id: str
    event: bytes
    function_arn: str
    timeout_seconds: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has asked for an event: its initialisation is over."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The process has got its event; the function's time runs from here."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The handler has returned (`failed` is False) or raised; `payload` is JSON."""

    request_id: str
    payload: bytes
    failed: bool


@dataclass(frozen=True, slots=True)
class InitFailed:
    """The function's module could not be loaded; `payload` is the error as JSON."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended."""

    code: int


Signal = Ready | Delivered | Answered | InitFailed | Exited


class RuntimeApi(ThreadingHTTPServer):
    """Serves one function process on a free port of loopback, until closed."""

    daemon_threads = True

    def __init__(self) -> None:
        """Begin to serve."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.invocations: queue.SimpleQueue[Invocation | None] = queue.SimpleQueue()
        self.signals: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        """Host and port, as `AWS_LAMBDA_RUNTIME_API` wants them."""
        return f"127.0.0.1:{self.server_port}"

    def close(self) -> None:
        """Stop serving; a process that waits for an event gets none."""
        self.invocations.put(None)
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a connection that broke: the process was killed, which `Exited` reports."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # with it, each event would wait for a delayed ACK
    wbufsize = -1
    server: RuntimeApi

    def do_GET(self) -> None:
        self.server.signals.put(Ready())
        invocation = self.server.invocations.get()
        if invocation is None:
            self.close_connection = True
            return
        deadline = time.time() + invocation.timeout_seconds
        self.server.signals.put(Delivered())
        self._reply(
            200,
            invocation.event,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        match self.path.split("/")[-2:]:
            case ["init", "error"]:
                self.server.signals.put(InitFailed(payload))
            case [request_id, "response" | "error" as kind]:
                self.server.signals.put(Answered(request_id, payload, kind == "error"))
            case _:
                self._reply(404, b"{}", {})
                return
        self._reply(202, b'{"status":"OK"}', {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: one line for each event would only hide the function's own log."""


# One process of one function, as Lambda's execution environment; used by `lambda_host`.
#
# It takes one event at a time. A handler that raises leaves it in use; a crash, a time-out or a
# failed initialisation ends it, as on AWS, and the host starts another for the next event.

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
        self, function: PlannedFunction, environment: Mapping[str, str], scratch: Path, log: Path
    ) -> None:
        """`scratch` becomes an empty folder for temporary files; output is appended to `log`."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self._function = function
        self._log = log
        self._api = RuntimeApi()
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


DEFAULT_SLOTS = 2
IDLE_SECONDS = 60
"""How long a process without work is kept: each holds 70 to 230 MB, and there may be thirty."""
_LOOK_EVERY_SECONDS = 10

StartSandbox = Callable[[PlannedFunction, int], Sandbox]


class FunctionPool:
    """Up to `slots` sandboxes of one function, started when needed and kept while they are used."""

    def __init__(
        self,
        function: PlannedFunction,
        slots: int,
        start: StartSandbox,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`start` makes a sandbox in a slot, numbered from 0; `now` is in seconds."""
        self._function = function
        self._start = start
        self._permits = threading.BoundedSemaphore(slots)
        self._lock = threading.Lock()
        self._free_slots = list(reversed(range(slots)))
        self._sandboxes: dict[int, Sandbox] = {}
        self._idle_since: dict[int, float] = {}
        self._now = now
        self._closed = False

    def invoke(self, request_id: str, event: bytes) -> Outcome:
        """Run the function on the event, waiting for a free slot if all are busy."""
        with self._permits:
            slot = self._take_slot()
            try:
                return self._sandbox(slot).invoke(request_id, event)
            finally:
                with self._lock:
                    self._idle_since[slot] = self._now()
                    self._free_slots.append(slot)

    def end_idle(self, seconds: float) -> None:
        """End the sandboxes that have had nothing to do for some time; an event starts others."""
        before = self._now() - seconds
        with self._lock:
            slots = [s for s in self._free_slots if self._idle_since.get(s, before + 1) <= before]
            idle = [self._sandboxes.pop(slot) for slot in slots if slot in self._sandboxes]
        for sandbox in idle:
            sandbox.close()

    def sandboxes(self) -> list[Sandbox]:
        """Those that are alive."""
        with self._lock:
            return [sandbox for sandbox in self._sandboxes.values() if sandbox.alive]

    def close(self) -> None:
        """End all sandboxes; what they are doing fails."""
        with self._lock:
            self._closed = True
            sandboxes = list(self._sandboxes.values())
        for sandbox in sandboxes:
            sandbox.close()

    def _take_slot(self) -> int:
        with self._lock:
            return self._free_slots.pop()  # the one used last is the one most likely warm

    def _sandbox(self, slot: int) -> Sandbox:
        with self._lock:
            if self._closed:
                raise LocalStackError(f"{self._function.name}: the local stack is stopping")
            sandbox = self._sandboxes.get(slot)
            if sandbox is None or not sandbox.alive:
                sandbox = self._sandboxes[slot] = self._start(self._function, slot)
            return sandbox


class LambdaHost:
    """All functions of a deployment, by name or logical id."""

    def __init__(
        self, deployment: Deployment, environment: Mapping[str, str], state_dir: Path
    ) -> None:
        """`environment` is what every function gets; logs and scratch folders go to `state_dir`."""
        self._deployment = deployment
        self._environment = environment
        self._logs = state_dir / "logs"
        self._scratch = state_dir / "scratch"
        self._pools = {
            function.name: FunctionPool(function, _slots(deployment, function), self._start)
            for function in deployment.functions
        }
        self._logs.mkdir(parents=True, exist_ok=True)

    def invoke(self, name: str, event: bytes) -> Outcome:
        """Run a function on an event (JSON), and wait for what it gives."""
        function = self._deployment.function(name)
        if function is None:
            known = ", ".join(f.logical_id for f in self._deployment.functions)
            raise LocalStackError(f"there is no function {name!r}; there are: {known}")
        return self._pools[function.name].invoke(str(uuid.uuid4()), event)

    def sandboxes(self) -> list[Sandbox]:
        """The processes of all functions that are alive."""
        return [sandbox for pool in self._pools.values() for sandbox in pool.sandboxes()]

    def end_idle(self, seconds: float) -> None:
        """End the processes that have had nothing to do for some time, as Lambda does."""
        for pool in self._pools.values():
            pool.end_idle(seconds)

    def close(self) -> None:
        """End every process of every function, and remove their scratch folders."""
        for pool in self._pools.values():
            pool.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self, function: PlannedFunction, slot: int) -> Sandbox:
        return Sandbox(
            function,
            function_environment(function, self._environment),
            scratch=self._scratch / function.name / str(slot),
            log=self._logs / f"{function.name}.log",
        )


class IdleTimer(threading.Thread):
    """Ends idle processes of functions, until the stack stops."""

    def __init__(self, host: LambdaHost, stopping: threading.Event) -> None:
        """End those of `host` until `stopping` is set."""
        super().__init__(name="idle functions", daemon=True)
        self._host, self._stopping = host, stopping

    def run(self) -> None:
        """Look every few seconds."""
        while not self._stopping.wait(_LOOK_EVERY_SECONDS):
            self._host.end_idle(IDLE_SECONDS)


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


def _slots(deployment: Deployment, function: PlannedFunction) -> int:
    wanted = [
        source.maximum_concurrency
        for source in deployment.event_sources
        if source.function == function.name and source.maximum_concurrency is not None
    ]
    return max(wanted, default=DEFAULT_SLOTS)
