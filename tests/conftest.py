"""For all tests: what is run, in which order, with how many examples, by which process.

`make test` leaves out the folders of `LONG`, and tries a part of what takes long elsewhere;
`make test-all` sets the variable `WHOLE`, and runs all there is; a slice of that, by turns, is for
each change. A path that is named on the command line is run in any case.

Where several processes run the tests, each makes the fixtures of its session and modules. So a file
is run by one process; what shares more than a file, or less, is said here, and what begins first.
Examples are the same in every run: it judges the change it is made for.
`--hypothesis-profile=explore` chooses other examples each time, and more; so does `make fuzz`.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.support.depth import PARTS, ROOT, SLICES, TURN, is_whole, turn

gc.disable()  # until all is collected: it would pass over the same modules again and again

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=15)
settings.register_profile("whole", deadline=None, derandomize=True, max_examples=400)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("whole" if is_whole() else "quick")

LONG = (
    "tests/bench",
    "tests/bit_flips",
    "tests/chaos",
    "tests/console",
    "tests/engines",
    "tests/faults/test_changed.py",
    "tests/local",
    "tests/spark",
    "tests/system",
    "tests/template/test_permissions.py",
    "tests/wheel",
)
"""Stacks of processes, a browser, Spark, other engines, environments that are made."""
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 * 2**30
"""Room to spare: a container often has 64 MiB here, which tests would fill."""
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
SLICE_OF = {
    GUIDE: 0,
    "tests/system": 1,
    "tests/local": 2,
    "tests/spark": 3,
    "tests/engines": 4,
    "tests/template/test_permissions.py": 5,
    "tests/chaos": 6,
    "tests/console": 7,
    "tests/wheel": 8,
    "tests/faults": 9,
}
"""The slices of what takes longest. All else is divided among all slices, by names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of a slice."""
    parser.addoption("--slice", help=f"run one of {SLICES} slices, from 0; or the one of this turn")


def pytest_report_header(config: pytest.Config) -> str:
    """Say what the run tries, and how to try the same again."""
    number = chosen_slice(config)
    if number is not None:
        places = " ".join(place for place, of in SLICE_OF.items() if of == number)
        return f"slice {number} of {SLICES}: {places} and a tenth of all else (--slice={number})"
    if is_whole():
        return "everything is tried"
    return f"turn {turn()}: one in {PARTS} crash points (again: {TURN}={turn()})"


def chosen_slice(config: pytest.Config) -> int | None:
    """Return the number of the slice that is run; None if it is more."""
    given = config.getoption("--slice")
    return None if given is None else turn() % SLICES if given == "turn" else int(given)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes long, unless all is run or it is asked for."""
    if not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    asked = any(argument.startswith(path) for argument in asked_of(config))
    return True if path in LONG and not (is_whole() or asked) else None


def asked_of(config: pytest.Config) -> list[str]:
    """Return the paths that the command line names, from the root of the project."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return []
    paths = (Path(argument.partition("::")[0]).resolve() for argument in config.args)
    return [path.relative_to(ROOT).as_posix() for path in paths if path.is_relative_to(ROOT)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are processors: some of them wait, for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduler:
    """Return the scheduler that follows what is said here, in the order of collection."""
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


def slice_of(nodeid: str) -> int:
    """Return the slice that a test is in; what one process runs together is in one."""
    path = nodeid.partition("::")[0]
    named = next((number for place, number in SLICE_OF.items() if path.startswith(place)), None)
    return zlib.crc32(group_of(nodeid).encode()) % SLICES if named is None else named


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of the slice, if there is one; begin with what takes longest."""
    number = chosen_slice(config)
    if number is not None:
        left_out = [item for item in items if slice_of(item.nodeid) != number]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if slice_of(item.nodeid) == number]
    items.sort(key=lambda item: place_of(item.nodeid))


def place_of(nodeid: str) -> int:
    """Return how far at the front a test is run, from 0."""
    return next((n for n, path in enumerate(LONGEST) if nodeid.startswith(path)), len(LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    """Flush nothing to the disk, and keep temporary files in memory where there is room for them.

    A disk takes most of the time of a small file. Tests look for what is left in the folder of
    temporary files, so each process has its own.
    """
    os.fsync = _leave_to_the_kernel
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES
    if has_room and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)
    if hasattr(config, "workerinput"):
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")
        Path(tempfile.tempdir).chmod(0o711)  # tests that become another user pass through it


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete the process's folder of temporary files."""
    if hasattr(config, "workerinput"):
        shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)


def _leave_to_the_kernel(_: object) -> None:
    """Do nothing."""


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the tests and modules, which stay to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)
