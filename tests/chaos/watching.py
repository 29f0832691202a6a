"""How deep the queues are over time, and how much memory each function's processes took."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from dormouse.client.instance import Instance
from dormouse.messages.stages import QUEUES
from dormouse_cli.local.stack import LocalStack

LOOK_SECONDS = 1.0


class Watcher:
    """A thread that looks at queues and processes every second."""

    def __init__(self, instance: Instance, stack: LocalStack) -> None:
        self._instance, self._stack = instance, stack
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")
        self.depths: list[tuple[float, Mapping[str, int]]] = []
        self.peak_bytes: dict[str, int] = {}
        self.processes: dict[str, set[int]] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    def peak_depths(self) -> dict[str, int]:
        """Return the most messages that each queue had, delayed ones among them."""
        return {queue: max(depths[queue] for _, depths in self.depths) for queue in QUEUES}

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            counts = self._instance.queues.counts(QUEUES)
            depths = {q: c.waiting + c.in_flight + c.delayed for q, c in counts.items()}
            self.depths.append((time.monotonic() - self._began, depths))
            for sandbox in self._stack.sandboxes():
                function = sandbox.function.rpartition("-")[2]
                peak = max(self.peak_bytes.get(function, 0), peak_rss_bytes(sandbox.pid))
                self.peak_bytes[function] = peak
                self.processes.setdefault(function, set()).add(sandbox.pid)


def peak_rss_bytes(pid: int) -> int:
    """Return the most memory that a process had so far; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
