"""Figures: a JSON line each as they are measured, and tables, goals and pages that show them."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

END = "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number: of which subject (`of`, such as a system), at which size or round."""

    part: str
    of: str
    at: int
    figure: str
    value: float


def emit(part: str, of: str, at: int, **values: float) -> None:
    for name, value in values.items():
        line = asdict(Figure(part, of, at, name, float(f"{value:.4g}")))
        print(json.dumps(line), flush=True)


def parsed(lines: str) -> list[Figure]:
    return [Figure(**json.loads(line)) for line in lines.splitlines() if line.startswith("{")]


class Figures:
    def __init__(self, figures: Iterable[Figure]) -> None:
        """Hold figures; of two with the same name the later counts."""
        self.all: dict[tuple[str, str, int, str], float] = {}
        self._sizes: dict[str, dict[str, set[int]]] = {}
        for f in figures:
            self.all[f.part, f.of, f.at, f.figure] = f.value
            self._sizes.setdefault(f.part, {}).setdefault(f.of, set()).add(f.at)

    def parts(self) -> list[str]:
        return list(self._sizes)

    def subjects(self, part: str) -> list[str]:
        return list(self._sizes.get(part, ()))

    def sizes(self, part: str, of: str) -> list[int]:
        """Return the sizes or rounds in which a subject was measured, in order."""
        return sorted(self._sizes.get(part, {}).get(of, ()))

    def names(self, part: str) -> set[str]:
        return {name for in_part, _, _, name in self.all if in_part == part}

    def get(self, part: str, of: str, at: int, figure: str) -> float | None:
        return self.all.get((part, of, at, figure))

    def median(self, part: str, of: str, figure: str) -> float | None:
        rounds = [self.get(part, of, at, figure) for at in self.sizes(part, of)]
        values = [value for value in rounds if value is not None]
        return median(values) if values else None

    def ratio(self, part: str, of: str, to: str, figure: str) -> float | None:
        """Return the median of the ratios to another subject in the same round; None without any.

        The machine is never the same from one minute to the next, so only figures of one round are
        compared.
        """
        rounds = self.sizes(part, of)
        pairs = [[self.get(part, each, at, figure) for each in (of, to)] for at in rounds]
        ratios = [above / below for above, below in pairs if above is not None and below]
        return median(ratios) if ratios else None


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
        if self.measured is None:
            return "not in this run"
        met = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        return "met" if met else "NOT MET"

    def row(self) -> list[str]:
        """Return the goal as a line of a table, with digits enough to see on which side it lies."""
        measured, sign = self.measured, ">=" if self.at_least else "<="
        shown = f"{measured:.4g}" if measured is not None and measured < 1000 else short(measured)
        return [str(self.number), self.what, shown, f"{sign} {short(self.bound)}", self.verdict]


def quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def short(value: float | None) -> str:
    """Return a number as people read it, with three digits that count."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'K' else size):.3g} {unit}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def table_of(figures: Figures, part: str, columns: Mapping[str, str]) -> str:
    """Return the medians of a part, a subject a row; `columns` are the titles of its figures."""
    rows = (
        [of, *(short(figures.median(part, of, name)) for name in columns)]
        for of in figures.subjects(part)
    )
    return table(["", *columns.values()], rows)


def table_of_goals(goals: Iterable[Goal]) -> str:
    head = ("goal", "what", "measured", "bound", "verdict")
    return table(head, [goal.row() for goal in goals])


def section(title: str, text: str) -> str:
    """Return a text below a heading, which begins with a capital letter."""
    return f"### {title[0].upper()}{title[1:]}\n\n{text}"


def measured_on(rest: str = "") -> str:
    """Say when and on what was measured, and what else is to be said of it."""
    return (
        f"Measured on {dt.datetime.now(dt.UTC):%d %B %Y}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}{rest}."
    )


def begin(by: str) -> str:
    return f"<!-- figures: made by make {by} -->"


def page_with(page: str, by: str, text: str) -> str:
    """Return a page with `text` as the figures of a target of make.

    Raises:
        ValueError: it has no marks of that target.
    """
    before, mark, rest = page.partition(begin(by))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page has no {begin(by)} with {END} after it")
    return f"{before}{mark}\n\n{text}\n\n{END}{after}"
