"""Runs the functions of a deployment, each in a few processes; used by event sources and tests."""

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from dormouse_cli.local.errors import LocalStackError
from dormouse_cli.local.plan import Deployment, Function
from dormouse_cli.local.sandbox import Outcome, Sandbox

DEFAULT_SLOTS = 2
IDLE_SECONDS = 60
"""How long a process without work is kept: each holds 70 to 230 MB, and there may be thirty."""
_LOOK_EVERY_SECONDS = 10

StartSandbox = Callable[[Function, int], Sandbox]


class FunctionPool:
    """Up to `slots` sandboxes of one function, started when needed and kept while they are used."""

    def __init__(
        self, function: Function, slots: int, start: StartSandbox, now: Callable[[], float]
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
        self,
        deployment: Deployment,
        environment: Mapping[str, str],
        state_dir: Path,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        """`environment` is what every function gets; logs and scratch folders go to `state_dir`."""
        self._deployment = deployment
        self._environment = environment
        self._logs = state_dir / "logs"
        self._scratch = state_dir / "scratch"
        self._now = now
        self._new_id = new_id
        self._pools = {
            function.name: FunctionPool(function, _slots(deployment, function), self._start, now)
            for function in deployment.functions
        }
        self._logs.mkdir(parents=True, exist_ok=True)

    def invoke(self, name: str, event: bytes) -> Outcome:
        """Run a function on an event (JSON), and wait for what it gives."""
        function = self._deployment.function(name)
        if function is None:
            known = ", ".join(f.logical_id for f in self._deployment.functions)
            raise LocalStackError(f"there is no function {name!r}; there are: {known}")
        return self._pools[function.name].invoke(self._new_id(), event)

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

    def _start(self, function: Function, slot: int) -> Sandbox:
        return Sandbox(
            function,
            function_environment(function, self._environment),
            scratch=self._scratch / function.name / str(slot),
            log=self._logs / f"{function.name}.log",
            now=self._now,
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


def function_environment(function: Function, base: Mapping[str, str]) -> dict[str, str]:
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


def _slots(deployment: Deployment, function: Function) -> int:
    wanted = [
        source.maximum_concurrency
        for source in deployment.event_sources
        if source.function == function.name and source.maximum_concurrency is not None
    ]
    return max(wanted, default=DEFAULT_SLOTS)
