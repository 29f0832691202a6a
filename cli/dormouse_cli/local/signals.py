"""Who gets SIGINT and SIGTERM: a stack that is to stop, or a command that runs against one."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

import typer

_ENDING = (signal.SIGINT, signal.SIGTERM)


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit code, in the shell's form: 127 if not found, 128 + n for signal n.

    Signals that would end this process go to the command instead, which decides.
    """
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except FileNotFoundError:
        typer.echo(f"command not found: {command[0]}", err=True)
        return 127
    with _forwarding(process):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def interruptible() -> Iterator["SimpleQueue[int]"]:
    """Return a queue that gets SIGINT and SIGTERM, which do not end this process within the block.

    After the block they are ignored: the stack stops, and must not end before it has saved.
    """
    # An event would not do: a signal within its wait() finds the lock held that set() needs.
    interruptions: SimpleQueue[int] = SimpleQueue()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruptions.put(number)

    for number in _ENDING:
        signal.signal(number, interrupt)
    try:
        yield interruptions
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:
        typed_at_the_terminal = number == signal.SIGINT and sys.stdin.isatty()
        if not typed_at_the_terminal:  # else the terminal has sent it to the command, too
            process.send_signal(number)

    with _handling(forward):
        yield


@contextmanager
def _handling(handler: "signal._HANDLER") -> Iterator[None]:
    before = [signal.signal(number, handler) for number in _ENDING]
    try:
        yield
    finally:
        for number, handle in zip(_ENDING, before, strict=True):
            signal.signal(number, handle)
