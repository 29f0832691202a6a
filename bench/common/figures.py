"""Figures as the benchmarks print them: a JSON line each, and tables for people at the end.

Every measurement emits figures; `runner` collects them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number: of which subject (`of`, such as a mode), at which size."""

    part: str
    of: str
    at: int
    figure: str
    value: float


def emit(part: str, of: str, at: int, **values: float) -> None:
    """Print figures that belong together, a line each."""
    for name, value in values.items():
        line = asdict(Figure(part, of, at, name, float(f"{value:.4g}")))
        print(json.dumps(line), flush=True)


def parsed(line: str) -> Figure:
    """Return the figure that was printed as a line."""
    return Figure(**json.loads(line))


class Figures:
    """All figures of a run, to be asked for by name."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        """Hold figures; of two with the same name the later counts."""
        self.all: dict[tuple[str, str, int, str], float] = {}
        self._sizes: dict[str, dict[str, set[int]]] = {}
        for f in figures:
            self.all[f.part, f.of, f.at, f.figure] = f.value
            self._sizes.setdefault(f.part, {}).setdefault(f.of, set()).add(f.at)

    def get(self, part: str, of: str, at: int, figure: str) -> float | None:
        """Return a figure; None if it was not measured in this run."""
        return self.all.get((part, of, at, figure))

    def sizes(self, part: str, of: str) -> list[int]:
        """Return the sizes at which a subject was measured, in order."""
        return sorted(self._sizes.get(part, {}).get(of, ()))

    def subjects(self, part: str) -> list[str]:
        """Return the subjects of a part, as they were measured first."""
        return list(self._sizes.get(part, ()))


def short(value: float | None) -> str:
    """Return a number as people read it, with three digits that count."""
    if value is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'K' else size):.3g} {unit}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )
