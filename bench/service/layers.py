"""The packages of the functions' layers: a folder with them alone, and what comes from which."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = {f"{name} layer": f"layer-{name}.txt" for name in ("core", "engine", "statements")}
OWN = "Dormouse"
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)
_IMPORTED = re.compile(r"^import time:\s+(\d+) \|\s+\d+ \| +(\S+)$", re.MULTILINE)


class Layers:
    """The packages that functions have, in a folder of links; nothing else of this environment."""

    def __init__(self, folder: Path) -> None:
        """Link the packages into a new folder."""
        folder.mkdir()
        self._folder = folder
        self.origins = {"dormouse": OWN, "functions": OWN}
        for layer, pins in LAYERS.items():
            for name in _PINNED.findall((ROOT / "shared" / pins).read_text()):
                self._link(name, layer)

    def _link(self, name: str, layer: str) -> None:
        found = distribution(name)
        tops = {file.parts[0] for file in found.files or () if ".." not in file.parts}
        for top in sorted(tops - {"__pycache__"}):
            target = self._folder / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))
            self.origins.setdefault(top.removesuffix(".py").partition(".")[0], layer)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these packages."""
        paths = (self._folder, ROOT, ROOT / "shared")
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **variables},
            capture_output=True,
            text=True,
        )

    def shares(self, module: str) -> dict[str, float]:
        """Return which share of the time of importing a module each origin takes."""
        shown = self.run("-X", "importtime", "-c", f"import {module}").stderr
        return shares(shown, self.origins)


def shares(shown: str, origins: Mapping[str, str]) -> dict[str, float]:
    """Return the share of each origin in what ``-X importtime`` showed; else it is Python's own."""
    found = dict.fromkeys(("Python", *LAYERS, OWN), 0.0)
    for microseconds, module in _IMPORTED.findall(shown):
        found[origins.get(module.partition(".")[0], "Python")] += int(microseconds)
    total = sum(found.values()) or 1.0
    return {origin: time / total for origin, time in found.items()}
