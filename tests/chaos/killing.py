"""Function processes are killed in the middle of what they do, wherever that is."""

from __future__ import annotations

import random
import threading
import time

from dormouse_cli.local.lambda_host import Sandbox
from dormouse_cli.local.stack import LocalStack
from tests.chaos.tally import Tally

_TICK_SECONDS = 0.02


class Killer:
    """A thread that lets some runs of functions die by SIGKILL; a share of them, chosen by a seed.

    A run dies up to `spread_seconds` after it was seen to have begun. If it is over by then, its
    process dies idle, or in the next run.
    """

    def __init__(
        self, stack: LocalStack, seed: int, tally: Tally, share: float, spread_seconds: float = 1.0
    ) -> None:
        self._stack, self._tally = stack, tally
        self._random = random.Random(f"{seed}-kills")
        self._share, self._spread_seconds = share, spread_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer")

    def start(self) -> None:
        """Begin to kill."""
        self._thread.start()

    def stop(self) -> None:
        """Kill no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        seen: set[str] = set()
        due: list[tuple[float, Sandbox]] = []
        while not self._stopping.wait(_TICK_SECONDS):
            now = time.monotonic()
            for sandbox in self._stack.sandboxes():
                request_id = sandbox.request_id
                if request_id is None or request_id in seen:
                    continue
                seen.add(request_id)
                draw, share = self._random.random(), self._random.random()
                if draw < self._share:
                    due.append((now + share * self._spread_seconds, sandbox))
            for _, sandbox in [each for each in due if each[0] <= now]:
                if sandbox.alive:
                    is_busy = sandbox.request_id is not None
                    sandbox.crash()
                    self._tally.count("kills", sandbox.function.rpartition("-")[2])
                    self._tally.count("killed", "busy" if is_busy else "idle")
            due = [each for each in due if each[0] > now]
