"""What the template gives a function: its memory, its threads and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.common.runner import ROOT
from dormouse_cli.local.translation import load

MB_PER_CORE = 1769
"""The memory with which Lambda gives a function the time of one core."""


@dataclass(frozen=True, slots=True)
class Function:
    """The environment, memory and cores of a function."""

    environment: Mapping[str, str]
    memory_mb: int

    @property
    def cores(self) -> int:
        """How many cores its threads see: Lambda rounds up, and limits the time of them all."""
        return -(-self.memory_mb // MB_PER_CORE)


def function(stage: str) -> Function:
    """Return the function of a stage, such as ``compact``."""
    resources: Any = load(ROOT / "template.yaml")["Resources"]
    properties = resources[f"{stage.title()}Function"]["Properties"]
    variables = properties["Environment"]["Variables"]
    environment = {name: str(value) for name, value in variables.items()}
    return Function(environment, properties["MemorySize"])
