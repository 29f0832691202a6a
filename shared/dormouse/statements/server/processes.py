"""The processes of statements, as the process that asks sees them.

A fork server is started with the first statement, and begins a process for each (`fork_server`). It
ends when this process does, when no statement came for long, or by `end_server`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

from dormouse import lifeline
from dormouse.errors import InvariantError
from dormouse.settings import python_environment
from dormouse.statements.server.fork_server import MODULE, NUMBER

_ATTEMPTS = 2
"""A server that has just ended, because it was idle for long, is replaced once."""


@dataclass(frozen=True, slots=True)
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket

    def close(self) -> None:
        self.control.close()
        lifeline.kill(self.process)


class StatementProcess:
    """A process that runs one statement."""

    def __init__(self, server: _Server, run: socket.socket) -> None:
        """Wait until it has begun.

        Raises:
            OSError: the server has ended.
        """
        self._server, self._run = server, run
        self._code: int | None = None
        self.pid = self._number()

    def kill(self) -> None:
        """Kill it, if it still runs."""
        with contextlib.suppress(OSError):
            self._run.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code, or the negative number of a signal."""
        if self._code is None:
            try:
                self._code = self._number()
            except OSError:  # somebody killed the server: nothing of it is left running
                self._server.close()
                self._code = -signal.SIGKILL
        return self._code

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        self.wait()
        self._run.close()

    def _number(self) -> int:
        received = b""
        while len(received) < NUMBER.size:
            piece = self._run.recv(NUMBER.size - len(received))
            if not piece:
                raise ConnectionError("the server has ended")
            received += piece
        return int(NUMBER.unpack(received)[0])


class _Processes:
    """Begins processes by a server, which it starts when it needs one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of no server, and of no thread that starts one."""
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def begin(self, channel: int, results: int) -> StatementProcess:
        with self._lock:
            for _ in range(_ATTEMPTS):
                server = self._running()
                run, servers = socket.socketpair()
                try:
                    with servers:
                        descriptors = [servers.fileno(), channel, results]
                        socket.send_fds(server.control, [b"s"], descriptors)
                    return StatementProcess(server, run)
                except OSError:
                    run.close()
                    self._end()
                except BaseException:  # Ctrl-C: the server kills what it may have begun
                    run.close()
                    raise
        raise InvariantError("the process that computes statements cannot be started")

    def end(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> _Server:
        if self._server is None:
            self._server = _started()
        return self._server

    def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None


_PROCESSES = _Processes()


def begin(channel: int, results: int) -> StatementProcess:
    """Begin the process of a statement, which inherits a socket for messages and a pipe.

    Raises:
        InvariantError: none can be started.
    """
    return _PROCESSES.begin(channel, results)


def end_server() -> None:
    """End the server, and what it has begun; the next statement starts another."""
    _PROCESSES.end()


def _started() -> _Server:
    control, servers = socket.socketpair()
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), **python_environment()}
    # Arrow's allocator would start a thread, which a fork would not have
    environment["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    with servers:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(servers.fileno())],
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[servers.fileno()],
        )
    return _Server(process, control)


atexit.register(end_server)
os.register_at_fork(after_in_child=_PROCESSES.forget)  # the server is not that of the fork
