"""For all tests: the same examples in every run, no deadlines, and processors that are kept busy.

A run tells of the change it is made for, on a slow machine too. `--hypothesis-profile=explore`
chooses other examples each time, and more; so does `make fuzz`.

Where several processes run the tests, each makes the fixtures of its session and modules. So a file
is run by one process; what shares more than a file, or less, is said here, and what begins first.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("dormouse", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("dormouse")

GUIDE = "tests/system/test_guide.py"
LONGEST = (
    GUIDE,
    "tests/system",
    "tests/template/test_permissions.py",
    "tests/spark",
    "tests/local",
    "tests/simulation",
    "tests/contract/test_state_store.py",
)
"""What takes longest, and is begun first: else one process is at it when all others have ended."""
TOGETHER = ("tests/system", "tests/local", "tests/spark")
"""Folders whose files share what takes long to set up: one process runs all of a folder."""
APART = ("tests/simulation", "tests/contract/test_state_store.py")
"""Where tests share nothing: each goes to the process that is free."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are processors: some of them wait, for a local stack."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduler:
    """Return the processes what is said here, in the order in which it was collected."""
    config.option.loadscopereorder = False
    return Scheduler(config, log)


class Scheduler(LoadScopeScheduling):
    """Hands out folders, files and single tests, each to the first process that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Return the name of what one process runs: a folder, a file, or a test alone."""
    path = nodeid.partition("::")[0]
    if path.startswith(APART):
        return nodeid
    if path == GUIDE:
        return path
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=lambda item: place_of(item.nodeid))


def place_of(nodeid: str) -> int:
    """Return how far at the front a test is run, from 0."""
    return next((n for n, path in enumerate(LONGEST) if nodeid.startswith(path)), len(LONGEST))


def pytest_configure() -> None:
    """Flush nothing to the disk, which takes most of what a small file does: tests end first."""
    os.fsync = _leave_to_the_kernel


def _leave_to_the_kernel(_: object) -> None:
    """Do nothing."""


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the tests and modules, which stay to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
