"""The processes that read files for one that must not end with them: `serve`, `console`, `work`.

A file may end the process that reads it: out of memory, or by a fault of a library. So these leave
ingest jobs to a process of their own kind, which takes them from the queue as any other does. If it
dies, another follows; the second death at one file sets that file aside (`ingest_or_isolate`).
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from dormouse import lifeline
from dormouse.client.instance import Instance
from dormouse.errors import DiskFullError
from dormouse.folder.worker import INGEST_QUEUE
from dormouse.system import Clock

logger = logging.getLogger("dormouse")

MODULE = "dormouse.client.reader"
MOST_PAUSE_MS = LIVED_MS = 60_000
"""A process that lived so long is followed by another at once."""
END_SECONDS = 10.0
"""How long it may take to hand back what it had begun."""
LOOK_SECONDS = 1.0


class ReadingProcess:
    """Runs the ingest jobs of the folder `root`; with `environment`, from when it is needed."""

    def __init__(self, root: Path, environment: Mapping[str, str], clock: Clock) -> None:
        self._root, self._environment, self._clock = root, environment, clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_ms = self._pause_ms = 0
        self._is_over = False

    def keep(self, is_needed: Callable[[], bool]) -> None:
        """Start the process if it `is_needed` and does not run; after quick deaths, not at once."""
        with self._lock:
            if self._is_over or (self._process is not None and self._process.poll() is None):
                return
            now_ms = self._clock.now_ms()
            if self._process is not None:
                lifeline.kill(self._process)  # with whatever it has left
                longer_ms = min(2 * self._pause_ms + 1000, MOST_PAUSE_MS)
                self._pause_ms = 0 if now_ms - self._started_ms > LIVED_MS else longer_ms
                how = self._process.returncode
                logger.warning("the process that reads files ended with %d; another follows", how)
                self._process = None
            # a clock that was set back lets nobody wait
            if not 0 <= now_ms - self._started_ms < self._pause_ms and is_needed():
                self._started_ms, self._process = now_ms, self._run()

    def end(self) -> None:
        """End it; what it had begun is handed back. Start none any more."""
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):  # a library may hang
                    self._process.wait(END_SECONDS)
                lifeline.kill(self._process)

    def _run(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, sys.path))
        return lifeline.start(
            MODULE,
            [str(self._root)],
            cwd=self._root,
            environment={**self._environment, "PYTHONPATH": path},
        )


def main(root: str) -> None:
    """Run the ingest jobs of a folder until SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Instance.open(root, background=False, create=False) as instance:
            assert instance.folder is not None
            while True:
                try:
                    instance.folder.worker.work_for(LOOK_SECONDS, (INGEST_QUEUE,))
                except DiskFullError:  # the queue has the message until there is room
                    threading.Event().wait(LOOK_SECONDS)
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once: what follows hands back what was begun
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(*sys.argv[1:])
