"""What goes wrong in a run, and how often: drawn once from the seed, then call by call.

Each run draws faults of its own: most kinds are off in it, and those that are on come at rates
of their own, everywhere or at one kind of call alone. So some runs see what two hundred evenly bad
ones would not: a service that never answers, or one crash an hour and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log
from random import Random

from tests.simulation.processes import Call, Fate

SERVICES = ("s3", "results", "sources", "pages", "items", "tables", "tracker", "sqs", "spark")
FAULTS = tuple(fate for fate in Fate if fate is not Fate.LANDS)
HOUR_MS = 3600 * 1000
LONGEST_PAUSE_MS = 6 * HOUR_MS
LARGEST_SKEW_MS = 2 * 60 * 1000
"""The clocks of processes are apart by up to twice this."""


@dataclass
class FaultInjector:
    """The faults of one run; none without any rates.

    `at` limits faults to calls it is true of. A `storm` refuses most calls of one service for a
    time. `pauses` is the share of calls before which a process falls asleep; messages are given out
    `twice`, sent `late`, or lost at those rates. Processes die in `native` code at that rate, and,
    if time is `limited`, when a function's time is over. What is read of objects with checksums is
    wrong at the rate `flips`, what lies there is damaged for good at the rate `rot`.
    """

    random: Random
    rates: dict[Fate, float] = field(default_factory=dict)
    at: Callable[[Call], bool] = lambda call: True
    storms: float = 0.0
    pauses: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    lost: float = 0.0
    untold: float = 0.0
    native: float = 0.0
    flips: float = 0.0
    rot: float = 0.0
    limited: bool = False
    skew_ms: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _storm: tuple[str, int] = ("", 0)

    def __str__(self) -> str:
        """Return what goes wrong, and how often."""
        rates = [f"{fate.value}: {rate:.4f}" for fate, rate in self.rates.items()]
        names = ("storms", "pauses", "twice", "late", "lost", "untold", "native", "flips", "rot")
        names = (*names, "skew_ms")
        others = [f"{name}: {getattr(self, name):.4g}" for name in names if getattr(self, name)]
        others += ["functions have their time"] if self.limited else []
        return ", ".join([*rates, *others]) or "no faults"

    def fate(self, call: Call, now_ms: int) -> Fate:
        """Draw the fate of a call."""
        if call.is_native:
            return Fate.DIES_BEFORE if self.happens("native") else Fate.LANDS
        if self._is_stormy(call, now_ms):
            return self._counted(Fate.REFUSED)
        if self.rates and self.at(call):
            drawn = self.random.random()
            for fate, rate in self.rates.items():
                drawn -= rate
                if drawn < 0:
                    return self._counted(fate)
        return Fate.LANDS

    def pause_ms(self) -> int:
        """Draw for how long a process sleeps before its call: mostly not at all."""
        if self.random.random() >= self.pauses:
            return 0
        self.counts["pause"] += 1
        return int(self.between(1000, LONGEST_PAUSE_MS))

    def happens(self, what: str) -> bool:
        """Draw whether a message is given out ``twice``, comes ``late``, is ``lost``, and so on."""
        if self.random.random() >= float(getattr(self, what)):
            return False
        self.counts[what] += 1
        return True

    def damaged(self, body: bytes) -> bytes:
        """Return bytes of which one bit is another, or the end is missing.

        Mostly one of the first bits: in so small shards, nearly all others are those of the footer.
        """
        if not body or self.random.random() < 0.2:
            return body[: self.random.randrange(len(body) or 1)]
        at = int(len(body) * self.random.random() ** 3)
        return body[:at] + bytes([body[at] ^ 1 << self.random.randrange(8)]) + body[at + 1 :]

    def skew(self) -> int:
        """Draw how far the clock of a process is off."""
        return self.random.randint(-self.skew_ms, self.skew_ms) if self.skew_ms else 0

    def between(self, low: float, high: float) -> float:
        """Draw a number, of each order of magnitude as likely."""
        return exp(self.random.uniform(log(low), log(high)))

    def _is_stormy(self, call: Call, now_ms: int) -> bool:
        if not self.storms:
            return False
        service, until_ms = self._storm
        if now_ms < until_ms:
            return call.service == service and self.random.random() < 0.8
        if self.random.random() < self.storms:
            self.counts["storm"] += 1
            until_ms = now_ms + int(self.between(1000, 20 * 60 * 1000))
            self._storm = (self.random.choice(SERVICES), until_ms)
        return False

    def _counted(self, fate: Fate) -> Fate:
        self.counts[fate.value] += 1
        return fate


def random_faults(random: Random) -> FaultInjector:
    """Draw the faults of a run."""
    injector = FaultInjector(random)
    for fate in FAULTS:
        if random.random() < 0.4:
            injector.rates[fate] = injector.between(0.0005, 0.04)
    if random.random() < 0.3:
        injector.at = _focus(random)
        injector.rates = {fate: min(0.3, 8 * rate) for fate, rate in injector.rates.items()}
    for name, low, high in (
        ("storms", 0.0005, 0.005),
        ("pauses", 0.0005, 0.02),
        ("twice", 0.02, 0.5),
        ("late", 0.02, 0.3),
        ("untold", 0.02, 0.3),
        ("native", 0.005, 0.1),
    ):
        if random.random() < 0.4:
            setattr(injector, name, injector.between(low, high))
    if random.random() < 0.25:
        injector.lost = injector.between(0.02, 0.4)
    for name, low, high in (("flips", 0.02, 0.5), ("rot", 0.002, 0.03)):
        if random.random() < 0.25:
            setattr(injector, name, injector.between(low, high))
    injector.limited = random.random() < 0.5
    if random.random() < 0.4:
        injector.skew_ms = int(injector.between(10, LARGEST_SKEW_MS))
    return injector


def _focus(random: Random) -> Callable[[Call], bool]:
    service = random.choice(("s3", "pages", "items", "tables", "tracker", "sqs", "spark"))
    if random.random() < 0.5:
        return lambda call: call.service == service
    return lambda call: not call.is_read


def no_faults(random: Random) -> FaultInjector:
    """Return an injector that lets everything land."""
    return FaultInjector(random)
