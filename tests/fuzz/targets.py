"""What is fuzzed: a strategy for each target, and a check that fails where bad input is not refused
by an error that a person can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from dormouse.errors import DormouseError, InvariantError


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that reads what comes from outside.

    `native` code may end the process, so it is run in another one. `quick` is how many examples
    there are among the tests. For `guided` ones, pure Python, coverage is a guide.
    """

    strategy: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    native: bool = False
    quick: int = 100
    guided: bool = False


@contextmanager
def refusing(*kinds: type[DormouseError]) -> Iterator[None]:
    """Let errors of these kinds pass that say something; by default all that are not our bugs."""
    try:
        yield
    except DormouseError as error:
        assert isinstance(error, kinds or DormouseError), error
        assert not isinstance(error, InvariantError), error
        assert str(error).strip(), "an error says nothing"
        error.explanation.encode()  # what cannot be shown helps nobody


def all_targets() -> dict[str, Target]:
    """Return all targets by name."""
    from tests.fuzz import (
        targets_catalog,
        targets_files,
        targets_functions,
        targets_queries,
        targets_state,
        targets_stored,
        targets_text,
    )

    modules = (
        targets_catalog,
        targets_text,
        targets_state,
        targets_files,
        targets_functions,
        targets_stored,
        targets_queries,
    )
    return {name: target for module in modules for name, target in module.TARGETS.items()}
