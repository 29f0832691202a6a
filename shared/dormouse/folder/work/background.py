"""The thread that works in the background while its process lives.

It ends with the process: it looks whether the main thread has ended, and leaves the stage it is in
(`leaving`). It is no daemon: the interpreter waits for it, so no native code is torn down under it.
"""

from __future__ import annotations

import os
import threading

from dormouse.errors import DormouseError, is_panic
from dormouse.folder.work.deliveries import logger
from dormouse.folder.work.leaving import Leaving, LeavingError
from dormouse.folder.work.worker import Worker

POLL_SECONDS = 0.5
"""How long an idle worker waits before it asks SQLite for messages of other processes."""
END_POLL_SECONDS = 0.05
FAILED_SECONDS = 5.0


class Background:
    """The background thread of one handle of an instance. It begins when it is first needed.

    Without `enabled` there never is one: the process works while it waits, and before it ends.
    `was_woken` says whether this process sent any work.
    """

    def __init__(self, leaving: Leaving, *, enabled: bool) -> None:
        """Begin with no thread."""
        self._leaving, self.enabled = leaving, enabled
        self.was_woken = False
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = 0
        self.worker: Worker | None = None

    @property
    def runs(self) -> bool:
        """Whether the thread runs, in this process."""
        thread = self._thread
        return thread is not None and thread.is_alive() and self._process == os.getpid()

    def wake(self) -> None:
        """Let the thread look for messages now; start it if it does not run."""
        self._wake.set()
        self.was_woken = True
        if self.enabled and not self.runs:
            self._start()

    def stop(self) -> None:
        """End the thread, and wait until it has left what it does."""
        self._leaving.leave()
        self._wake.set()
        thread = self._thread
        if thread is not None and self._process == os.getpid():
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self.runs or self.worker is None or self._leaving:
                return
            self._process = os.getpid()
            self._thread = threading.Thread(target=self._work, name="dormouse", daemon=False)
            self._thread.start()

    def _work(self) -> None:
        assert self.worker is not None
        while not self._leaving:
            try:
                is_busy = self.worker.step()
            except LeavingError:
                return
            except BaseException as error:
                if not (isinstance(error, Exception) or is_panic(error)):
                    raise
                # While the interpreter ends, no thread can be started, and it may end just now.
                self._pause(FAILED_SECONDS)
                if not self._leaving:
                    said = error.explanation if isinstance(error, DormouseError) else type(error)
                    logger.warning("the worker could not look for work: %s", said)
                    logger.debug("it failed here", exc_info=error)
                continue
            if not is_busy:
                self._pause(POLL_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Wait to be woken; the end of the main thread wakes nobody, so look for it often."""
        for _ in range(max(1, round(seconds / END_POLL_SECONDS))):
            if self._leaving or self._wake.wait(END_POLL_SECONDS):
                break
        self._wake.clear()
