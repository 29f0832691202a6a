"""What goes wrong with a request on its way to AWS, chosen by a seed; pure.

Each service has a schedule of its own: faults that come now and then, and storms of some seconds in
which most requests fail, longer than the SDK repeats them.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """How a request fares. The first two did nothing; the outcome of the next three is unknown."""

    REFUSED = "refused: the service is busy"
    DROPPED = "dropped: the connection breaks before the request arrives"
    UNANSWERED = "unanswered: it is done, and the connection breaks"
    FAILED = "failed: it is done, and answered with an error of the service"
    CUT = "cut: it is done, and the connection breaks within the answer"
    PARTIAL = "partial: of a batch, one entry is not taken"
    LATE = "late: it arrives after a while"


WEIGHTS = {
    Kind.REFUSED: 5,
    Kind.DROPPED: 2,
    Kind.UNANSWERED: 2,
    Kind.FAILED: 2,
    Kind.CUT: 2,
    Kind.PARTIAL: 2,
    Kind.LATE: 1,
}
LATE_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault, and a number from 0 up to 1 for its particulars: where to cut, how late."""

    kind: Kind
    share: float


@dataclass(frozen=True)
class FaultRates:
    """Shares of requests that fail, and seconds of and between storms."""

    share: float = 0.04
    storm_share: float = 0.7
    storm_seconds: tuple[float, float] = (2.0, 6.0)
    calm_seconds: tuple[float, float] = (20.0, 60.0)


@dataclass(slots=True)
class FaultSchedule:
    """The faults of one service: the n-th request in a second fares alike in two runs."""

    service: str
    seed: int
    rates: FaultRates = FaultRates()
    _random: random.Random = field(init=False)
    _changes: list[float] = field(init=False)
    _forecast: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}-{self.service}")
        self._forecast = random.Random(f"{self.seed}-{self.service}-storms")
        self._changes = [0.0]

    def storms(self, seconds: float) -> bool:
        """Return whether there is a storm so many seconds after the beginning."""
        while self._changes[-1] <= seconds:
            begin = self._changes[-1] + self._forecast.uniform(*self.rates.calm_seconds)
            self._changes += [begin, begin + self._forecast.uniform(*self.rates.storm_seconds)]
        return bisect_right(self._changes, seconds) % 2 == 0

    def fault(self, seconds: float) -> Fault | None:
        """Choose what becomes of the next request; None if nothing goes wrong with it."""
        draw, share = self._random.random(), self._random.random()
        kind = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        bad = self.rates.storm_share if self.storms(seconds) else self.rates.share
        return Fault(kind, share) if draw < bad else None
