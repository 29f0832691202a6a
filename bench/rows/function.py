"""What the template gives a function: its memory, its threads and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from bench.common.runner import ROOT
from dormouse_cli.local.translation import load

MB_PER_CORE = 1769
"""The memory with which Lambda gives a function the time of one core."""

MEMORY_BYTES = "DORMOUSE_MEMORY_BYTES"


@dataclass(frozen=True, slots=True)
class Function:
    """The environment, memory, temporary storage and cores of a function."""

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

    def with_memory(self, memory_mb: int) -> Function:
        """Return the function with other memory; sorting and merging have the same part of it."""
        part = int(self.environment[MEMORY_BYTES]) / self.memory_mb
        return replace(
            self,
            environment={**self.environment, MEMORY_BYTES: str(int(part * memory_mb))},
            memory_mb=memory_mb,
        )


@cache
def function(stage: str) -> Function:
    """Return the function of a stage, such as ``export_rows``."""
    resources: Any = load(ROOT / "template.yaml")["Resources"]
    name = "".join(word.title() for word in stage.split("_"))
    properties = resources[f"{name}Function"]["Properties"]
    variables = properties["Environment"]["Variables"]
    environment = {name: str(value) for name, value in variables.items()}
    scratch_mb = properties.get("EphemeralStorage", {}).get("Size", 512)
    return Function(environment, properties["MemorySize"], scratch_mb)
