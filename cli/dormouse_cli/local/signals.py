"""Who gets SIGINT and SIGTERM: a stack that is to stop, or a command that runs against one.

Python's handlers run in the main thread only, and only between two of its instructions. A signal
that comes just before the main thread blocks (in a lock, in waitpid), or that the system hands to
another thread, does not wake it. So signals come as bytes through a pair of sockets, which the
handler in C writes wherever it runs (`signal.set_wakeup_fd`), and the main thread reads.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import typer

from dormouse import lifeline
from dormouse_cli.terminal import note

_ENDING = (signal.SIGINT, signal.SIGTERM)
_ENDED = 0
"""Among the numbers of signals, that a command has ended by itself."""


class Interruptions:
    """Numbers for the main thread to wait for: of signals, and those that other threads put."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to which a byte is written for each number."""
        return self._writer.fileno()

    def put(self, number: int) -> None:
        """Add a number below 256; nothing happens once it is closed, as no one waits any more."""
        with suppress(OSError):
            self._writer.send(bytes([number]))

    def get(self) -> int:
        """Wait for a number and return it."""
        return self._reader.recv(1)[0]

    def close(self) -> None:
        """Close the sockets."""
        self._reader.close()
        self._writer.close()


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit code, in the shell's form: 127 if not found, 128 + n for signal n.

    Signals that would end this process go to the command instead, which decides.
    """
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except FileNotFoundError:
        note(f"command not found: {command[0]}")
        return 127
    before = [signal.getsignal(number) for number in _ENDING]
    with interruptible(after=before) as interruptions:
        waiter = lifeline.when_ended(process, lambda _: interruptions.put(_ENDED))
        while (number := interruptions.get()) != _ENDED:
            typed_at_the_terminal = number == signal.SIGINT and sys.stdin.isatty()
            if not typed_at_the_terminal:  # else the terminal has sent it to the command, too
                process.send_signal(number)
        waiter.join()
    code = process.wait()
    return 128 - code if code < 0 else code


def serve(
    command: Sequence[str] | None, variables: Mapping[str, str], announce: Callable[[], None]
) -> None:
    """While a server runs in the background, run a command with `variables` beside those of this
    process, and end with its exit code; without one, announce the server, and wait for Ctrl-C.
    """
    if command:
        raise typer.Exit(run_command(command, {**os.environ, **variables}))
    with interruptible() as interruptions:
        announce()
        note("serving; Ctrl-C ends it")
        interruptions.get()


@contextmanager
def interruptible(
    after: Sequence["signal._HANDLER"] = (signal.SIG_IGN, signal.SIG_IGN),
) -> Iterator[Interruptions]:
    """Return what gets SIGINT and SIGTERM, which do not end this process within the block.

    `after` the block others get them; by default they are ignored: the stack stops, and must not
    end before it has saved.
    """
    interruptions = Interruptions()
    before = signal.set_wakeup_fd(interruptions.fileno(), warn_on_full_buffer=False)
    for number in _ENDING:
        signal.signal(number, _awake)
    try:
        yield interruptions
    finally:
        for number, handler in zip(_ENDING, after, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        interruptions.close()


def _awake(number: int, frame: FrameType | None) -> None:
    """Do nothing: without a handler in Python, none in C would write the signal's number."""
