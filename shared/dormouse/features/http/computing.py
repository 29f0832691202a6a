"""What runs in the process that computes for another (`client.computing`)."""

import os
import resource
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dormouse.client.computing import Done, Task, failures, receive, send
from dormouse.client.inferring import columns_of
from dormouse.client.instance import Instance
from dormouse.errors import DormouseError, NotFoundError
from dormouse.features.answer_query import compute_task
from dormouse.features.http.serve_http import serve_http
from dormouse.features.http.upkeep import count_rows
from dormouse.http.messages import HttpRequest
from dormouse.system import Clock

LEAST_BYTES = 4 * 1024**3
AT_ONCE = max(2, os.cpu_count() or 1)
"""How many tasks are done at once, but for long ones."""
LONG_MS = 50
"""A task that takes longer is a long one."""


def main(name: str, descriptor: str) -> None:
    """Do the tasks of an instance that come on sockets."""
    limit_memory()
    control = socket.socket(fileno=int(descriptor))
    with Instance.connect(name, background=False, create=False) as instance:
        workers = Workers(partial(do_task, instance), instance.services.clock)
        control.send(b".")  # it has started
        while True:
            _, descriptors, *_ = socket.recv_fds(control, 1, 1)
            for each in descriptors:
                workers.add(socket.socket(fileno=each))
            if not descriptors:  # the other process has ended
                return


def limit_memory() -> None:
    """Let what asks for more than half of the memory of this machine fail: single values of SQL may
    be larger than the memory of a statement, of which DuckDB counts tables and groups.
    """
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = max(half, LEAST_BYTES)
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


class Workers:
    """Threads that do the tasks of all sockets, each the next one that has come.

    As many work at once as there are cores: more would wait for each other's turn in Python, and
    wake each other for it. Those whose task takes long are not counted, so they keep nobody
    waiting.
    """

    def __init__(self, do: Callable[[Task], Done], clock: Clock) -> None:
        """Have no socket yet."""
        self._do, self._clock = do, clock
        self._idle, self._turn = selectors.DefaultSelector(), threading.Lock()
        self._lock, self._threads = threading.Lock(), 0
        self._began = dict[int, int]()
        self._is_busy = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def add(self, connection: socket.socket) -> None:
        """Do what comes on a socket from now on."""
        self._idle.register(connection, selectors.EVENT_READ)
        self._is_busy.set()

    def _watch(self) -> None:
        """Start threads in place of those whose task takes long."""
        pause = threading.Event()
        while self._is_busy.wait():
            with self._lock:
                missing = max(0, AT_ONCE - self._at_hand())
                self._threads += missing
            for _ in range(missing):
                threading.Thread(target=self._work, daemon=True).start()
            pause.wait(LONG_MS / 1000)
            self._is_busy.clear()
            if self._began:
                self._is_busy.set()

    def _at_hand(self) -> int:
        """Return how many threads have a short task, or none."""
        now = self._clock.now_ms()
        return self._threads - sum(now - began > LONG_MS for began in [*self._began.values()])

    def _work(self) -> None:
        """Do tasks while there are not too many threads."""
        own, is_needed = threading.get_ident(), True
        while is_needed:
            with self._turn:
                connection: Any = self._idle.select()[0][0].fileobj
                self._idle.unregister(connection)
            self._began[own] = self._clock.now_ms()
            self._is_busy.set()
            try:
                serve_next(connection, self._do)
                self._idle.register(connection, selectors.EVENT_READ)
            except (EOFError, OSError):  # who asked has ended
                connection.close()
            finally:
                del self._began[own]
            with self._lock:
                is_needed = self._at_hand() <= AT_ONCE
                self._threads -= not is_needed


def serve_next(connection: socket.socket, do: Callable[[Task], Done]) -> None:
    """Do the next task that comes on a socket, and send what became of it.

    Raises:
        EOFError: the other side has ended.
        OSError: it broke the connection.
    """
    task = msgspec.msgpack.decode(receive(connection), type=Task)
    with failures(connection):
        send(connection, do(task))


def do_task(instance: Instance, task: Task) -> Done:
    """Do a task of an instance. Raises DormouseError: it fails."""
    services = instance.services
    match task.kind:
        case "compute":
            compute_task(services, task.name, task.number)
        case "count":
            table = services.table(task.name)
            if table is None:
                raise NotFoundError("the table was deleted")
            return Done(read=count_rows(table, task.body))
        case "infer":
            with suppress(DormouseError):  # who asked meets it too
                columns_of(Path(task.name), task.properties)
        case "answer":
            request = HttpRequest(
                "POST", task.name, task.query_string, task.headers, task.body, task.principal
            )
            response = serve_http(instance, request)
            return Done(response.whole, response.status, dict(response.headers), response.problem)
    return Done()


if __name__ == "__main__":
    main(*sys.argv[1:])
