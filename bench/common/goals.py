"""A bound, and what was measured: how the benchmarks say whether a goal is met."""

from __future__ import annotations

from dataclasses import dataclass

from bench.common.figures import short

HEAD = ("goal", "what", "measured", "bound", "verdict")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound, and what was measured; `measured` is None if this run did not."""

    number: int
    what: str
    measured: float | None
    bound: float
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Return whether the goal is met."""
        if self.measured is None:
            return "not in this run"
        met = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        return "met" if met else "NOT MET"

    def row(self) -> list[str]:
        """Return the goal as a line of a table."""
        sign = ">=" if self.at_least else "<="
        return [
            str(self.number),
            self.what,
            _exact(self.measured),
            f"{sign} {short(self.bound)}",
            self.verdict,
        ]


def ratio(above: float | None, below: float | None) -> float | None:
    """Divide if both were measured."""
    return above / below if above is not None and below else None


def _exact(measured: float | None) -> str:
    """Return a number with digits enough to see on which side of a bound it lies."""
    return f"{measured:.4g}" if measured is not None and measured < 1000 else short(measured)
