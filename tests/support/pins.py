"""What files of requirements pin, for tests that hold them against each other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = tuple(f"shared/layer-{name}.txt" for name in ("core", "engine", "statements"))
"""What functions and Spark jobs carry."""
PINNED = (*SHIPPED, *sorted(path.name for path in ROOT.glob("requirements*.txt")))
"""All files of requirements."""
_PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?: ; [^-]+)?(?: --hash=sha256:[0-9a-f]{64})+"
)


def pins_in(file: str) -> dict[str, str]:
    """Return the version of each package that a file pins.

    Raises:
        ValueError: a line is no pin, or has something else than hashes of the package's files; or
            there are two versions of a package, for different Pythons.
    """
    pins = [_pin(line) for line in _lines(file)]
    if len(dict(pins)) < len(pins):
        raise ValueError(f"{file} has a package that is not pinned to one version")
    return dict(pins)


def _lines(file: str) -> list[str]:
    """Return the lines of a file without comments; one that goes on in the next is one with it."""
    text = (ROOT / file).read_text().replace("\\\n", "")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _pin(line: str) -> tuple[str, str]:
    found = _PIN.fullmatch(line)
    if found is None:
        raise ValueError(f"{line.partition(' ')[0]!r} is not pinned by hashes alone")
    return found["name"], found["version"]
