"""What the template gives a function: its memory, its threads and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from bench.measure import ROOT
from dormouse_cli.local.resources import Resources, load, translate

MB_PER_CORE = 1769
"""The memory with which Lambda gives a function the time of one core."""

ROWS_MEMORY = "RowsMemory"
"""The parameter of the template that says how much memory functions of rows have, in MB."""


@dataclass(frozen=True, slots=True)
class Function:
    environment: Mapping[str, str]
    memory_mb: int
    scratch_mb: int = 512

    @property
    def cores(self) -> int:
        """How many cores its threads see: Lambda rounds up, and limits the time of them all."""
        return -(-self.memory_mb // MB_PER_CORE)

    @property
    def cpu_share(self) -> float:
        """The time of how many cores Lambda gives all of its threads together."""
        return self.memory_mb / MB_PER_CORE


LARGEST_MB = 3008
"""What the benchmarks of rows give each function, so that its threads have two cores as its peers
have; what it costs with less is measured by `bench.cost`.
"""


@cache
def function(stage: str, memory_mb: int = LARGEST_MB) -> Function:
    """Return the function of a stage, such as ``export_rows``, in an instance whose functions of
    rows have so much memory.
    """
    translated = translate(ROOT / "template.yaml", {ROWS_MEMORY: str(memory_mb)})
    resources = Resources(translated, "http://localhost")
    name = "".join(word.title() for word in stage.split("_"))
    given: Any = resources.properties(f"{name}Function")
    environment = {name: str(value) for name, value in given["Environment"]["Variables"].items()}
    return Function(environment, int(given["MemorySize"]), given["EphemeralStorage"]["Size"])


def default_mb() -> int:
    """Return the memory that functions of rows have unless an instance is deployed with another."""
    template: Any = load(ROOT / "template.yaml")
    return int(template["Parameters"][ROWS_MEMORY]["Default"])
