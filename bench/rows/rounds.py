"""What rounds of measurements say together: medians, and medians of ratios within a round.

The machine is never the same from one minute to the next, so a system is held against the floor of
the same round, and the median taken of those.
"""

from __future__ import annotations

from statistics import median

from bench.common.figures import Figures

FLOOR = "pyarrow copy"
"""Copying the same rows, unsorted, with pyarrow as it is set: dictionaries, 1 Mi rows a group."""
PLAIN_FLOOR = "pyarrow copy, no dictionary"
"""The same with dictionaries off: with keys like these they cost time and space."""
GROUPS_FLOOR = "pyarrow copy, no dictionary, our row groups"
"""The same with row groups as small as those of shards, which make look-ups cheap."""


def median_of(figures: Figures, part: str, of: str, figure: str) -> float | None:
    """Return the median of all rounds; None if the figure was not measured."""
    rounds = [figures.get(part, of, at, figure) for at in figures.sizes(part, of)]
    values = [value for value in rounds if value is not None]
    return median(values) if values else None


def median_ratio(figures: Figures, part: str, of: str, floor: str, figure: str) -> float | None:
    """Return the median of the ratios to the floor of the same round; None if there is none."""
    ratios = []
    for at in figures.sizes(part, of):
        above, below = figures.get(part, of, at, figure), figures.get(part, floor, at, figure)
        if above is not None and below:
            ratios.append(above / below)
    return median(ratios) if ratios else None


def round_trips(figures: Figures, part: str, quick: str, slow: str, delay_s: float) -> float | None:
    """Return how many requests one after the other a job waits for that takes 5 % longer besides.

    The job was measured as `quick` and, with so many seconds before each answer, as `slow`.
    """
    trips = []
    for at in figures.sizes(part, slow):
        without, with_delay = (figures.get(part, of, at, "seconds") for of in (quick, slow))
        if without is not None and with_delay is not None:
            trips.append(max(0.0, with_delay - without / 0.95) / delay_s)
    return median(trips) if trips else None
