"""The process that computes for one that must not end with it: `serve`, `console`, `work`.

A statement, a condition, or rows of a request may end the process that computes or reads them: out
of memory, or by a fault of a library. So these give them to a process of their own, which they
share; to several, while there is much to do: Python computes on one core in each. If one dies,
another follows at once. Whatever it was doing is tried once more, each task in a process of its
own, a few at once: what ends that, too, is at fault, and the others only had to wait.

A task goes through a pair of sockets, of which the process got one end through another pair: there
is no address at which anybody else could ask, and the death of the process closes all of them. A
pair serves one task after the other, and there are as many as there were tasks at once.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import msgspec

from dormouse import errors, lifeline
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse.system import OwnFolder, SystemClock

logger = logging.getLogger("dormouse")

MODULE = "dormouse.features.http.computing"
LENGTH_BYTES = 8
"""How many bytes say the length of a message, before it."""
MOST_SHARED = min(4, os.cpu_count() or 1)
"""So many processes are shared at most."""
MANY_TASKS = 8
"""Another one is begun when each has so many tasks: it takes a second, and 200 MB of memory."""
IDLE_MS = 60_000
"""After so long without a task it ends, when the first gets one: another is soon begun again."""
ALONE_AT_ONCE = 2
"""How many tasks are tried again at once: too little memory may be why they are."""
ALONE_SECONDS = 60.0
"""How long a task waits for those that are tried again before it, and a sample may take."""
ANSWER_SECONDS = 120.0
"""How long an answer may take, which asks for less by itself: one call of a function of SQL may
compute for hours, and nothing interrupts it."""
DEATH_SECONDS = 10.0
"""How long a process that has closed its sockets may take to end, as with a core dump."""


class Task(msgspec.Struct, frozen=True):
    """What is to be done: answer a request, a sub-query of a query over messages, count the rows of
    a body for a table, or infer the types of a file.
    """

    kind: Literal["answer", "compute", "count", "infer"]
    name: str = ""
    body: bytes = b""
    number: int = 0
    query_string: str = ""
    headers: dict[str, str] = {}
    principal: str = ""
    properties: dict[str, Any] = {}


class RowsRead(msgspec.Struct, frozen=True):
    """How many rows were read, how many cannot be and are left out, and the first reasons."""

    rows: int = 0
    rejected: int = 0
    reasons: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True):
    """What became of a task; `error` is its class, text and hint if it failed."""

    body: bytes = b""
    status: int = 0
    headers: dict[str, str] = {}
    problem: str = ""
    read: RowsRead = RowsRead()
    error: tuple[str, str, str] | None = None


class _EndedError(Exception):
    """The process ended before it had done a task."""


class ComputingProcess:
    """Computes for the instance of a name, or in a folder; temporary files are below `scratch`."""

    def __init__(self, name: str, scratch: Path, environment: Mapping[str, str]) -> None:
        self._name, self._scratch, self._environment = name, scratch, environment
        self._lock, self._alone = threading.Lock(), threading.Semaphore(ALONE_AT_ONCE)
        self._running: list[_Running] = []
        self._shared: list[_Running] = []
        self._is_over = False

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the answer to a POST request that only reads.

        Raises:
            LimitExceededError: it ended the process that answered it, twice.
            UnavailableError: this process ends, or too much is tried again.
        """
        task = Task(
            "answer",
            request.path,
            request.body,
            query_string=request.query_string,
            headers=dict(request.headers),
            principal=request.principal,
        )
        result = self._done(task, ANSWER_SECONDS)
        return HttpResponse(result.status, result.headers, result.body, result.problem)

    def compute(self, query_id: str, task: int, seconds: float) -> None:
        """Answer a sub-query of a query over messages, which has so many seconds left, and save its
        end. Raises as `answer`, and what fails the query.
        """
        self._done(Task("compute", query_id, number=task), seconds + ANSWER_SECONDS)

    def count_rows(self, table: str, body: bytes) -> RowsRead:
        """Read rows, as JSON lines, as they will be ingested into the table of an id.
        Raises as `answer`, and RefusedSourceError: they do not fit the table.
        """
        return self._done(Task("count", table, body)).read

    def check_sample(self, sample: Path, properties: Mapping[str, object]) -> None:
        """Infer the types of a small file, in a process of its own. Raises as `answer`."""
        task = Task("infer", str(sample), properties=dict(properties))
        self._done(task, ALONE_SECONDS, is_alone=True)

    def end(self) -> None:
        """End all processes with what they do; start none any more."""
        with self._lock:
            self._is_over = True
            while self._running:
                self._running.pop().end()

    def _done(self, task: Task, seconds: float | None = None, *, is_alone: bool = False) -> Done:
        try:
            if is_alone:
                raise _EndedError
            result = self._current().do(task, seconds)
        except _EndedError:
            result = self._again(task, seconds)
        return self.result(result)

    @staticmethod
    def result(outcome: Done) -> Done:
        """Return what was done. Raises DormouseError: it failed."""
        if outcome.error is None:
            return outcome
        raise errors.error_named(*outcome.error)

    def _current(self) -> "_Running":
        """Return the process with the fewest tasks of those that all tasks share; while another one
        starts, only the task that it was begun for waits for it.
        """
        with self._lock:
            now_ms = SystemClock().now_ms()
            idle = [each for each in self._shared[1:] if each.is_idle(now_ms - IDLE_MS)]
            ended = [each for each in self._shared if each.process.poll() is not None]
            for each in dict.fromkeys([*idle, *ended]):
                self._shared.remove(each)
                self._forget(each)
            ready = [each for each in self._shared if each.is_ready]
            least = min(ready or self._shared, key=attrgetter("tasks"), default=None)
            may_begin = len(ready) == len(self._shared) < MOST_SHARED
            if not least or (may_begin and least.tasks >= MANY_TASKS):
                least = self._begun()
                self._shared.append(least)
            least.chosen_ms = now_ms
            return least

    def _again(self, task: Task, seconds: float | None) -> Done:
        """Do a task in a process of its own. Raises LimitExceededError: it ended that process."""
        if not self._alone.acquire(timeout=ALONE_SECONDS):
            raise errors.UnavailableError("what ended the process that computes is tried again")
        try:
            with self._lock:
                own = self._begun()
            try:
                return own.do(task, seconds)
            except _EndedError as error:
                if self._is_over:
                    raise errors.UnavailableError("the process ends") from error
                is_file = task.kind in ("count", "infer")
                kind = errors.RefusedSourceError if is_file else errors.LimitExceededError
                raise kind(
                    f"it ended the process that {'read' if is_file else 'computed'} it, with "
                    f"{own.how()}: out of memory or time, or by a fault of a library",
                    hint="send or ask for less at once; the log may say more",
                ) from error
            finally:
                with self._lock:
                    self._forget(own)
        finally:
            self._alone.release()

    def _begun(self) -> "_Running":
        if self._is_over:
            raise errors.UnavailableError("the process ends")
        process = _Running(self._name, self._scratch, self._environment)
        self._running.append(process)
        return process

    def _forget(self, running: "_Running") -> None:
        if running in self._running:  # else this process ends
            if running.process.poll() is not None:
                logger.warning("the process that computes ended with %s", running.how())
            self._running.remove(running)
            running.end()


class _Running:
    """One process, with a folder of its own for temporary files."""

    def __init__(self, name: str, scratch: Path, environment: Mapping[str, str]) -> None:
        self._folder = OwnFolder(prefix="computing-", dir=scratch)
        self._idle: list[socket.socket] = []
        self._connections, self._has_started, self.chosen_ms = 0, False, 0
        self._control, theirs = socket.socketpair()
        with theirs:
            self.process: subprocess.Popen[bytes] = lifeline.start(
                MODULE,
                [name, str(theirs.fileno())],
                cwd=Path.cwd(),
                environment={
                    **environment,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "TMPDIR": self._folder.name,
                },
                pass_fds=(theirs.fileno(),),
            )

    @property
    def tasks(self) -> int:
        """About how many tasks it has now."""
        return self._connections - len(self._idle)

    def is_idle(self, since_ms: int) -> bool:
        """Whether it has no task, and has not been chosen for one since a time."""
        return not self.tasks and self.chosen_ms < since_ms

    @property
    def is_ready(self) -> bool:
        """Whether it has started, of which it sends a byte."""
        if not self._has_started:
            with suppress(OSError):
                self._has_started = bool(self._control.recv(1, socket.MSG_DONTWAIT))
        return self._has_started

    def do(self, task: Task, seconds: float | None = None) -> Done:
        """Do a task. Raises _EndedError: the process ended, or was ended after so many seconds."""
        try:
            own = self._connection()
            own.settimeout(seconds)
            send(own, task)
            result = msgspec.msgpack.decode(receive(own), type=Done)
        except (OSError, EOFError, msgspec.DecodeError) as error:
            raise self._ended(0 if isinstance(error, TimeoutError) else DEATH_SECONDS) from error
        self._idle.append(own)
        return result

    def _connection(self) -> socket.socket:
        """Return a connection to the process that no other task uses."""
        with suppress(IndexError):
            return self._idle.pop()
        own, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        self._connections += 1
        return own

    def _ended(self, seconds: float) -> _EndedError:
        """End the process, if it does not do so within some seconds: it hangs, or has lost a task,
        and is of no more use.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        return _EndedError()

    def how(self) -> str:
        """Return with what it ended."""
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def end(self) -> None:
        """Kill it, with what it has begun, and remove its files."""
        lifeline.kill(self.process)
        for connection in (self._control, *self._idle):
            connection.close()
        self._folder.cleanup()


def send(connection: socket.socket, message: Task | Done) -> None:
    """Send a message. Raises OSError."""
    body = msgspec.msgpack.encode(message)
    # at once: the other side would wake for each
    connection.sendall(len(body).to_bytes(LENGTH_BYTES, "big") + body)


def receive(connection: socket.socket) -> bytes:
    """Return the next message.

    Raises:
        EOFError: the other side has ended.
        OSError: it does not answer in time, or broke the connection.
    """
    with connection.makefile("rb") as stream:  # the next message comes once this is answered
        head = stream.read(LENGTH_BYTES)
        size = int.from_bytes(head, "big")
        body = stream.read(size)
    if len(head) < LENGTH_BYTES or len(body) < size:
        raise EOFError
    return body


@contextmanager
def failures(connection: socket.socket) -> Iterator[None]:
    """Send an error of the block as what became of its task."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, errors.DormouseError):
            problem = (error.class_name, str(error), error.hint)
        else:
            logger.exception("a task failed")
            problem = ("InvariantError", "this is a bug: see the server's log", "")
        with suppress(OSError):  # who asked has ended
            send(connection, Done(error=problem))
