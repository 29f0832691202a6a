"""The local stack as a whole: AWS's services, the template's resources, functions, event sources.

`commands` and the system tests use it as a context manager. When it stops, its buckets, queues and
tables are gone; logs stay in the state folder.
"""

import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from botocore.config import Config

from dormouse import lifeline
from dormouse.console import is_console, with_console
from dormouse.features.http.calls import guarded
from dormouse.http.loopback import LoopbackServer
from dormouse.settings import CONDITIONS_TRIED_AT
from dormouse_cli.local.deploy import deploy, with_package
from dormouse_cli.local.errors import StartError
from dormouse_cli.local.event_sources import (
    EventSourcePoller,
    ScheduleTimer,
    Watch,
    unwatched,
)
from dormouse_cli.local.http_api import HttpApi
from dormouse_cli.local.lambda_host import DEFAULT_SLOTS, IdleTimer, LambdaHost, Outcome, Sandbox
from dormouse_cli.local.plan import Deployment
from dormouse_cli.local.resources import ACCOUNT, aws_environment, isolated_session
from dormouse_cli.local.template import read

_log = logging.getLogger(__name__)

_READY = b"listening on "
_MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Has the C library of Linux return the memory of large objects, of whichever thread they were."""
_INHERITED = ("HOME", "JAVA_HOME", "LANG", "PATH")
_PACKAGES = Path(__file__).resolve().parents[2]


def _as_it_is(deployment: Deployment, endpoint_url: str) -> Deployment:
    return deployment


@dataclass(frozen=True, slots=True)
class _Running:
    """What has been started, and is to be ended in reverse."""

    moto: subprocess.Popen[bytes]
    endpoint_url: str
    deployment: Deployment
    host: LambdaHost
    workers: tuple[EventSourcePoller | ScheduleTimer | IdleTimer, ...]
    http: LoopbackServer | None


class LocalStack:
    """Runs a template on this machine between `start` and `stop`, or as a context manager."""

    def __init__(
        self,
        template: Path,
        parameters: Mapping[str, str],
        state_dir: Path,
        *,
        port: int = 0,
        http_port: int = 0,
        triggers: bool = True,
        concurrency: int | None = None,
        revise: Callable[[Deployment, str], Deployment] = _as_it_is,
        watch: Watch = unwatched,
    ) -> None:
        """`parameters` win over the template's defaults. AWS answers at `port`, and the HTTP API of
        the template at `http_port`; 0 takes a free one.

        Without `triggers`, functions and Spark jobs run only when they are invoked: no queue,
        schedule or run starts one.

        `revise` is given what the template asks for and AWS's endpoint, and gives what is deployed:
        for tests that want other time-outs, say. `watch` is called with every batch of messages.

        No event source runs more batches at once than `concurrency`, whatever the template says;
        by default as many as this machine has processors, and at least two.
        """
        self._template = template
        self._parameters = parameters
        self._state_dir = state_dir.resolve()
        self._port, self._http_port = port, http_port
        self._http_token = secrets.token_urlsafe(24)
        self._triggers = triggers
        self._concurrency = concurrency or max(DEFAULT_SLOTS, os.cpu_count() or 0)
        self._revise = revise
        self._watch = watch
        self._stopping = threading.Event()
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        """Start the stack, unless `start` has been called."""
        if self._running is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stack, whatever has happened."""
        self.stop()

    @property
    def deployment(self) -> Deployment:
        """What is running."""
        return self._started().deployment

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which any AWS client talks to this stack."""
        running = self._started()
        http = (
            {"DORMOUSE_HTTP_API": running.http.url, "DORMOUSE_HTTP_TOKEN": self._http_token}
            if running.http
            else {}
        )
        return {
            **_environment(running.endpoint_url),
            **http,
            "DORMOUSE_ACCOUNT": ACCOUNT,
            "DORMOUSE_INSTANCE": running.deployment.parameters.get("Instance", ""),
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this stack."""
        session: Any = isolated_session()  # typed for literal service names only
        return session.client(service, endpoint_url=self._started().endpoint_url)

    def invoke(self, function: str, event: Any) -> Outcome:
        """Run a function, named by its name or logical id, on an event; wait for what it gives."""
        return self._started().host.invoke(function, json.dumps(event).encode())

    def sandboxes(self) -> list[Sandbox]:
        """The function processes that are alive, to be looked at, or to be crashed."""
        return self._started().host.sandboxes()

    def when_aws_ends(self, call: Callable[[], None]) -> None:
        """Call a function, from another thread, when the embedded AWS ends, however it does."""
        moto = self._started().moto

        def wait() -> None:
            moto.wait()
            call()

        threading.Thread(target=wait, name="aws", daemon=True).start()

    def start(self) -> None:
        """Start everything. What has been started when a part fails is stopped again."""
        self._state_dir.mkdir(parents=True, exist_ok=True)
        self._stopping.clear()
        moto, endpoint_url = self._start_moto()
        try:
            asked = read(self._template, self._parameters, endpoint_url)
            asked = with_package(asked, self._template.parent, self._state_dir / "spark-package")
            if not self._triggers:
                asked = replace(asked, event_sources=(), schedules=())
            deployment = self._revise(asked.with_at_most(self._concurrency), endpoint_url)
            deploy(deployment, isolated_session(), endpoint_url)
            environment = {**inherited(), **_environment(endpoint_url)}
            host = LambdaHost(deployment, environment, self._state_dir)
            workers = self._workers(deployment, host, endpoint_url)
            http = self._http_server(deployment, host)
        except BaseException:
            lifeline.kill(moto)
            raise
        self._running = _Running(moto, endpoint_url, deployment, host, workers, http)
        for worker in workers:
            worker.start()
        if http is not None:
            http.start()

    def stop(self) -> None:
        """End every process of the stack. Does nothing when it is not running."""
        running, self._running = self._running, None
        if running is None:
            return
        self._stopping.set()
        if running.http is not None:
            running.http.close()
        running.host.close()
        lifeline.kill(running.moto)  # ends the long polls, for which the workers may be waiting
        for worker in running.workers:
            worker.join()
        shutil.rmtree(self._objects, ignore_errors=True)

    @property
    def _objects(self) -> Path:
        return self._state_dir / "objects"

    def _started(self) -> _Running:
        if self._running is None:
            raise StartError("the local stack is not running")
        return self._running

    def _start_moto(self) -> tuple[subprocess.Popen[bytes], str]:
        _check_port(self._port)
        logs = self._state_dir / "logs"
        logs.mkdir(exist_ok=True)
        spark_code = self._template.resolve().parent / "spark"
        with (logs / "aws.log").open("ab") as log:
            moto = lifeline.start(
                "dormouse_cli.local.moto_server",
                [
                    *("--port", str(self._port), "--objects", str(self._objects)),
                    *(("--spark-code", str(spark_code)) if self._triggers else ()),
                ],
                cwd=self._state_dir,
                environment={**inherited(), **_MALLOC, "PYTHONPATH": str(_PACKAGES)},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert moto.stdout is not None
        line = moto.stdout.readline()
        if not line.startswith(_READY):
            lifeline.kill(moto)
            raise StartError(
                f"the embedded AWS did not start on port {self._port}: see {logs / 'aws.log'}"
            )
        return moto, f"http://127.0.0.1:{int(line.removeprefix(_READY))}"

    def _http_server(self, deployment: Deployment, host: LambdaHost) -> LoopbackServer | None:
        """Return the server of the routes; None without routes."""
        if not deployment.routes:
            return None
        answer = with_console(HttpApi(deployment.routes, host.invoke).answer)
        door = guarded(answer, self._http_token, is_open=_is_open)
        return LoopbackServer(door, self._http_port)

    def _workers(
        self, deployment: Deployment, host: LambdaHost, endpoint_url: str
    ) -> tuple[EventSourcePoller | ScheduleTimer | IdleTimer, ...]:
        calls = 1 + sum(
            source.maximum_concurrency or DEFAULT_SLOTS for source in deployment.event_sources
        )
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=calls + len(deployment.event_sources),
        )
        sqs: Any = isolated_session().client("sqs", endpoint_url=endpoint_url, config=config)
        pollers = (
            EventSourcePoller(source, sqs, host.invoke, self._stopping, self._watch)
            for source in deployment.event_sources
        )
        timers = (
            ScheduleTimer(schedule, host.invoke, self._stopping)
            for schedule in deployment.schedules
        )
        return (*pollers, *timers, IdleTimer(host, self._stopping))


def _is_open(path: str) -> bool:
    """Return whether a path needs no token: engines that ask the Iceberg catalog have none to send,
    and the page of the console learns it from its address.
    """
    return path.startswith("/iceberg/") or is_console(path)


def _check_port(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise StartError(
            f"port {port} cannot be used: {error.strerror}",
            hint="name another one by --port, or leave it out to take a free one",
        ) from error


def _environment(endpoint_url: str) -> dict[str, str]:
    """Return the variables of processes of a stack that is deployed, which tried the conditions of
    writes there: they need not.
    """
    return {**aws_environment(endpoint_url), CONDITIONS_TRIED_AT: endpoint_url}


def inherited() -> dict[str, str]:
    """The few variables of this process that the stack's processes may see.

    The interpreter's own folder comes first on the path: its tools are of the same version.
    """
    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    folders = (str(Path(sys.executable).parent), variables.get("PATH", os.defpath))
    return {**variables, "PATH": os.pathsep.join(folders)}
