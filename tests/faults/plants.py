"""Planted faults: small changes of the code that break a promise, and the tests that must notice.

Each file ``tests/faults/<area>.yaml`` lists faults of one area:

- ``name``: the promise that is broken, in a few words;
- ``file``: which file of the product is changed;
- ``find``, ``replace``: a text that occurs there exactly once, and what it becomes;
- ``tests``: what must fail, as arguments of pytest;
- ``unnoticed``: why no test can notice it; such a fault is not run.

`make faults` plants them one at a time (`tests.faults.__main__`). That each still fits the code is
a test of its own (`test_plants`), so a change of the code takes its faults along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent


class MisfitError(Exception):
    """The text that a fault changes is not in its file exactly once."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault."""

    area: str
    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...] = ()
    unnoticed: str = ""

    def changed(self, text: str) -> str:
        """Return the text of the file with the fault in it.

        Raises:
            MisfitError: it does not fit.
        """
        count = text.count(self.find)
        if count != 1:
            raise MisfitError(f"{self.file} holds the text of {self.name!r} {count} times")
        return text.replace(self.find, self.replace)

    def plant(self, root: Path) -> None:
        """Change the file in a copy of the project at `root`."""
        path = root / self.file
        path.write_text(self.changed(path.read_text()))


def all_faults() -> list[Fault]:
    """Return all faults, area by area, in the order in which they are listed."""
    return [fault for path in sorted(FOLDER.glob("*.yaml")) for fault in _read(path)]


def _read(path: Path) -> Iterator[Fault]:
    for stored in yaml.safe_load(path.read_text()):
        tests = tuple(str(stored.pop("tests", "")).split())
        yield Fault(area=path.stem, tests=tests, **stored)
