"""The process that begins a process for each statement: a fork of itself, which has imported all.

Imports take most of the time of a small statement, so they are done once. This process has a single
thread, and runs nothing of DataFusion, whose threads would be missing in a fork. What a statement
does to its process ends with it; the next one begins as the first did.

The caller sends a byte on the control socket, with three open files: a socket for this run, and the
two that `child.computing` gets. This process answers on the run's socket with the id of the process
that it began, and when that has ended with how, as `Popen.returncode` has it. If the caller closes
the run's socket, that process is killed; if it closes standard input, or ends, all of them are.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from dormouse import lifeline

MODULE = "dormouse.statements.server.start"
"""What is run as a process; see there."""
FORKS = sys.platform == "linux"
"""Elsewhere, libraries of the system refuse to work after a fork, so no process is forked."""
IDLE_SECONDS = 600.0
"""How long this process waits for another statement before it ends."""
NUMBER = struct.Struct("!i")
_LIFELINE = 0

Begin: TypeAlias = Callable[[int, int], None]
"""Run a statement, by a socket for messages and a pipe for results."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A process that was begun; the pipe `ended` closes with it."""

    pid: int
    caller: socket.socket
    ended: int


class ForkServer:
    """Begins processes, kills them, and says how they ended."""

    def __init__(self, control: socket.socket, begin: Begin) -> None:
        """Begin nothing yet."""
        self._control, self._begin = control, begin
        self._runs: dict[int, _Run] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(_LIFELINE, selectors.EVENT_READ)
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Begin processes until the caller is gone, or has asked for none for long."""
        while ready := self._selector.select(None if self._runs else IDLE_SECONDS):
            for key, _ in ready:
                if key.fd == _LIFELINE:
                    os.killpg(0, signal.SIGKILL)
                elif key.fd == self._control.fileno():
                    if not self._accepted():
                        return
                elif key.fd == key.data.ended:
                    self._reap(key.data)
                elif key.data.pid in self._runs:
                    self._selector.unregister(key.data.caller)
                    os.kill(key.data.pid, signal.SIGKILL)

    def _accepted(self) -> bool:
        """Begin the process that is asked for; return whether one was."""
        asked, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        if not asked:
            return False
        caller, *inherited = descriptors
        ended, ends = os.pipe()
        pid = os.fork() if FORKS else _spawned(ends, inherited)
        if pid == 0:
            self._close(caller, ended)
            self._run(*inherited)
        for descriptor in (ends, *inherited):
            os.close(descriptor)
        run = _Run(pid, socket.socket(fileno=caller), ended)
        self._runs[pid] = run
        self._selector.register(run.caller, selectors.EVENT_READ, run)
        self._selector.register(run.ended, selectors.EVENT_READ, run)
        _tell(run, pid)
        return True

    def _close(self, *descriptors: int) -> None:
        """Close, in the fork, what is of this process alone, and of other runs."""
        self._selector.close()
        self._control.close()
        for run in self._runs.values():
            run.caller.close()
            os.close(run.ended)
        for descriptor in descriptors:
            os.close(descriptor)

    def _run(self, channel: int, results: int) -> NoReturn:
        """Run the statement, in the fork, and end; nothing of the server is to run there."""
        code = 1
        try:
            lifeline.watch(_LIFELINE)
            self._begin(channel, results)
            code = 0
        finally:
            os._exit(code)

    def _reap(self, run: _Run) -> None:
        _, status = os.waitpid(run.pid, 0)
        _tell(run, os.waitstatus_to_exitcode(status))
        del self._runs[run.pid]
        for source in (run.caller, run.ended):
            with contextlib.suppress(KeyError):  # a run that is killed has no caller any more
                self._selector.unregister(source)
        run.caller.close()
        os.close(run.ended)


def _tell(run: _Run, number: int) -> None:
    with contextlib.suppress(OSError):  # the caller has gone away
        run.caller.sendall(NUMBER.pack(number))


def _spawned(ends: int, inherited: Sequence[int]) -> int:
    """Begin a process that is no fork; it has `ends` open until it ends."""
    for descriptor in (ends, *inherited):
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-P", "-m", MODULE, *map(str, inherited)]
    return os.spawnv(os.P_NOWAIT, sys.executable, command)
