"""Planted faults: small changes of the code that break a promise, and the tests that must notice.

Each file ``tests/faults/<area>.yaml`` maps each function to tests, and each test to the change
(or a list of changes) that it must notice::

    Log.append:
      test_when_no_attempt_is_answered_the_outcome_is_unknown: drop doubtful
      test_a_last_look_at_a_page_with_room_does_not_prove_that_an_append_is_lost:
      - never page.is_full
      - drop doubtful
      unnoticed:
        always page.is_open: a closed page is refused before

The name of the test says what breaks. **A function** is named without its module: ``Log.append``,
``outer.inner``, the class ``Log``, the constants ``LIMIT`` and ``Log.LIMIT``. If several have the
name, the one is meant in which the change is possible; where that leaves several, the end of the
module stands in front: ``statestore.log:append``. ``log:`` alone is the module, as for imports.
**A test** is named likewise: ``test_x``, ``test_x[parameters]``, ``test_log:test_x``,
``TestMachine``; also a file or a folder of tests, or several names with spaces between. Under
``unnoticed`` are changes that no test can notice, each with the reason; these are not run.

**A change** quotes code, in any format; it must stand in the function exactly once (docstrings do
not count), or have the number of the place behind it: ``drop log.flush() #2``.

==================== ==============================================================================
``never X``          the expression is false
``always X``         the expression is true
``not X``            the expression is negated
``drop X``           left out: statements, an operand of `and`, `or`, `+` …, an argument, an
                     element, a pair of a dict, a clause of a comprehension, an `except`, a
                     decorator
``unwrap X:``        the body of a statement (`if`, `with`, `try` …) without that statement
``move X after Y``   statements come after others, or ``before`` them
``X -> Y``           expressions, statements, arguments, pairs or headers become others
==================== ==============================================================================

Statements are separated by ``;`` or line ends. The header stands for a compound statement: ``drop
if page.is_full:``, ``except KeyError: -> except ValueError:``.

In a file that is not Python, the path is the key, and a change is ``drop text`` or ``text ->
text``; the text must be in the file exactly once.

`make faults` plants the faults one at a time (`tests.faults.__main__`). That each still fits the
code is a test of its own (`test_plants`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.faults.code import ROOT, Code, Place
from tests.faults.snippets import MisfitError

FOLDER = Path("tests/faults")
UNNOTICED = "unnoticed"


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault: a change of a function (or a file), and the tests that must notice it."""

    area: str
    target: str
    change: str
    tests: tuple[str, ...] = ()
    unnoticed: str = ""

    def __str__(self) -> str:
        """Return how people find it."""
        return f"{self.area}: {self.target}: {self.change}".replace("\n", "; ")

    def planted(self, code: Code) -> tuple[Path, str]:
        """Return the file that the fault changes, and its text with the fault in it.

        Raises:
            MisfitError: it does not fit.
        """
        found = self.target_in(code)
        if isinstance(found, Place):
            return found.path, found.changed(self.change)
        return code.root / self.target, _changed_text(found, self.change)

    def target_in(self, code: Code) -> Place | str:
        """Return the function that the fault changes, or the text of a file that is not Python.

        Raises:
            MisfitError: there is no such function, or there are several.
        """
        path = code.root / self.target
        return path.read_text() if path.is_file() else code.place(self.target, self.change)


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping of a node."""
        names = [key.value for key, _ in node.value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise MisfitError(f"{twice[0]!r} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep)


def all_faults(root: Path = ROOT) -> list[Fault]:
    """Return all faults, area by area, in the order in which they are listed."""
    paths = sorted((root / FOLDER).glob("*.yaml"))
    return [fault for path in paths for fault in read_faults(path.stem, path.read_text())]


def read_faults(area: str, text: str) -> Iterator[Fault]:
    """Yield the faults of an area.

    Raises:
        MisfitError: the text is no mapping of functions and tests.
    """
    stored = yaml.load(text, _Loader)
    if not isinstance(stored, dict):
        raise MisfitError(f"{area} is no mapping of functions")
    for target, by_test in stored.items():
        for tests, value in by_test.items():
            if tests == UNNOTICED:
                yield from (Fault(area, target, c, unnoticed=why) for c, why in value.items())
                continue
            changes = value if isinstance(value, list) else [value]
            yield from (Fault(area, target, change, tuple(tests.split())) for change in changes)


def _changed_text(text: str, change: str) -> str:
    dropped = change.removeprefix("drop ")
    old, _, new = (dropped, "", "") if dropped != change else change.partition(" -> ")
    if text.count(old) != 1:
        raise MisfitError(f"{old!r} is there {text.count(old)} times")
    return text.replace(old, new)
