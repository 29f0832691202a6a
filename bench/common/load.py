"""What else the machine did while it measured: figures of a busy machine are not to be trusted."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from statistics import fmean

MOST = 0.7
"""With more load from others than this, in cores, figures are marked as unfit."""
_STAT = Path("/proc/stat")
_TICKS = os.sysconf("SC_CLK_TCK")


class Load:
    """How many cores others kept busy, measurement by measurement."""

    def __init__(self) -> None:
        """Begin with none."""
        self.seen: list[float] = []
        self._before = (0.0, 0.0, 0.0)

    def begin(self) -> None:
        """Note the counters before a measurement, which is a process that will be waited for."""
        self._before = _now()

    def end(self) -> None:
        """Note what others did since `begin`."""
        self.add(*(after - before for before, after in zip(self._before, _now(), strict=True)))

    def add(self, seconds: float, busy_seconds: float, own_seconds: float) -> None:
        """Note a measurement: how long it took, and what all processes and its own did in it."""
        if seconds > 0:
            self.seen.append(max(0.0, busy_seconds - own_seconds) / seconds)

    def sentence(self) -> str:
        """Return what was seen, and whether the figures are fit to be quoted."""
        if not self.seen:
            return "Nothing was measured."
        mean, most = fmean(self.seen), max(self.seen)
        said = (
            f"While measuring, other processes kept {mean:.2f} cores busy, {most:.2f} in the "
            "measurement with the most."
        )
        if mean > MOST:
            return f"**UNFIT: the machine was not quiet.** {said} Figures are fit up to {MOST}."
        return said


def _now() -> tuple[float, float, float]:
    """Return the time, the busy time of all cores, and that of own processes, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (
        time.monotonic(),
        busy_seconds(_STAT.read_text()),
        sum(one.ru_utime + one.ru_stime for one in used),
    )


def busy_seconds(stat: str) -> float:
    """Return the time that all cores were busy or not the machine's own, from ``/proc/stat``."""
    user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / _TICKS
