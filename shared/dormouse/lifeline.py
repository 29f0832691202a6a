"""Run a module in a process that cannot outlive its parent: the local stack, and Spark.

The child's standard input is a pipe that only the parent holds open. However the parent ends, even
by SIGKILL, the kernel closes the pipe, and the child takes its whole process group down with it.
Unlike `PR_SET_PDEATHSIG` this works on any Unix, and does not fire when merely the thread that
started the child ends.

This file is run by its path, so that nothing of this package is importable in a Lambda function.
"""

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

STANDARD_ERROR = 2


def start(
    module: str,
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stdout: int | IO[bytes] = STANDARD_ERROR,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `python -m module` in a process group of its own that ends when this process does.

    What it prints goes to standard error, unless said otherwise. It inherits `pass_fds` under the
    same numbers.
    """
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).resolve()), module, *arguments],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=pass_fds,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):  # the whole group may have ended already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def when_ended(process: subprocess.Popen[bytes], call: Callable[[int], object]) -> threading.Thread:
    """Call a function with the exit code of a process, from another thread, once it has ended."""
    waiter = threading.Thread(target=lambda: call(process.wait()), daemon=True)
    waiter.start()
    return waiter


def watch(descriptor: int) -> None:
    """Kill the process group of this process once nobody has the other end of a pipe open."""
    threading.Thread(target=_die_when_closed, args=(descriptor,), daemon=True).start()


def _die_when_closed(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Watch standard input, and run the module named by the first argument with the others."""
    module, rest = arguments[0], list(arguments[1:])
    watched = os.dup(0)  # the module itself sees an empty standard input, as on AWS
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    watch(watched)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
