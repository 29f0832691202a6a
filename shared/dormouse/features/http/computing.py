"""What runs in the process that computes for another (`client.computing`)."""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from dormouse.client.computing import Done, Task, failures, receive, send
from dormouse.client.inferring import columns_of
from dormouse.client.instance import Instance
from dormouse.errors import DormouseError, NotFoundError
from dormouse.features.answer_query import compute_task
from dormouse.features.http.serve_http import serve_http
from dormouse.features.http.upkeep import count_rows
from dormouse.http.messages import HttpRequest

LEAST_BYTES = 4 * 1024**3


def main(name: str, descriptor: str) -> None:
    """Do the tasks of an instance that come on sockets, each of which has a thread."""
    limit_memory()
    control = socket.socket(fileno=int(descriptor))
    with Instance.connect(name, background=False, create=False) as instance:
        while True:
            _, descriptors, *_ = socket.recv_fds(control, 1, 1)
            for each in descriptors:
                thread = threading.Thread(target=serve, args=(instance, each), daemon=True)
                thread.start()
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


def serve(instance: Instance, descriptor: int) -> None:
    """Do one task after the other that comes on a socket, and send what became of it."""
    with socket.socket(fileno=descriptor) as connection, suppress(EOFError, OSError):
        while True:
            task = msgspec.msgpack.decode(receive(connection), type=Task)
            with failures(connection):
                send(connection, _do(instance, task))


def _do(instance: Instance, task: Task) -> Done:
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
