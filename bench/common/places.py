"""Where the benchmarks and what they measure are; measured processes import it, so it is small."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = tuple(ROOT / name for name in ("shared", "cli", "spark", "bench"))
ABSENT = ROOT / "bench" / "absent"
"""Modules in the place of packages that the layers of the functions do not have."""
