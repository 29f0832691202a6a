"""How deep a run of the tests goes: quickly for each change, or all there is.

`make test` tries a part of what can be tried at length, `make test-all` all of it. The part is
chosen by the number of the commit (`turn`), so that 24 commits in a row try every crash point,
and ten run every slice of all tests.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeVar

from hypothesis import settings

ROOT = Path(__file__).parents[2]
Choice = TypeVar("Choice")

WHOLE, TURN = "DORMOUSE_TESTS_WHOLE", "DORMOUSE_TESTS_TURN"
SLICES = 10
PARTS = 8
"""Of the crash points of an operation, `make test` tries one in so many."""


def is_whole() -> bool:
    """Return whether everything is tried."""
    return bool(os.environ.get(WHOLE))


@cache
def turn() -> int:
    """Return which turn it is of what takes turns: the number of the commit, or the one given.

    A shallow clone does not know how many commits there are; its commit's hash serves then.
    """
    given = os.environ.get(TURN)
    if given:
        return int(given)
    if _git("rev-parse", "--is-shallow-repository") == "false":
        return int(_git("rev-list", "--count", "HEAD"))
    return zlib.crc32(_git("rev-parse", "HEAD").encode())


def _git(*arguments: str) -> str:
    """Return what git says; nothing outside a checkout, or without git."""
    try:
        run = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return run.stdout.strip()


def examples(usual: int) -> int:
    """Return how many examples a slow property is tried with, where others get `usual` in 100."""
    return max(1, usual * settings.default.max_examples // 100)


def calls_in_turn(first: int, parts: int = PARTS) -> Iterator[int]:
    """Yield the numbers of calls whose turn it is, one in `parts`, without end; or of all calls."""
    return count(first) if is_whole() else count(first + turn() % parts, parts)


def in_turn(choices: Sequence[Choice], parts: int = PARTS) -> Sequence[Choice]:
    """Return those whose turn it is, one in `parts`; all of them where everything is tried."""
    return choices if is_whole() else choices[turn() % parts :: parts]


def in_long_turn(choices: Sequence[Choice]) -> Sequence[Choice]:
    """Return the one whose turn it is for `PARTS` commits, in which `in_turn` tries all with it."""
    return choices if is_whole() else [choices[turn() // PARTS % len(choices)]]
