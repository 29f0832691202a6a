"""Ids that sort by time, whatever the clock does; folders of one process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dormouse.system import SystemClock, TimeOrderedIds
from tests.support.adapters import FakeClock

HOUR_MS = 3_600_000
FORKS = """
import os, sys
from pathlib import Path
from dormouse.system import OwnFolder
folder = OwnFolder(dir=sys.argv[1])
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(Path(folder.name).is_dir())
"""


def test_a_fork_that_exits_leaves_a_folder_to_its_parent_whose_exit_removes_it(
    tmp_path: Path,
) -> None:
    made = subprocess.run(
        [sys.executable, "-c", FORKS, tmp_path], capture_output=True, text=True, check=True
    )
    assert (made.stdout, list(tmp_path.iterdir())) == ("True\n", [])


def test_an_id_is_32_hex_digits_that_begin_with_the_time() -> None:
    made = TimeOrderedIds(FakeClock(ms=0x018BCFE56800), randbits=lambda bits: 2**bits - 1).new()
    assert made == "018bcfe56800" + "7" + "f" * 19


@given(st.lists(st.integers(-HOUR_MS, HOUR_MS), min_size=1, max_size=50))
def test_ids_ascend_even_when_the_clock_stands_still_or_is_set_back(steps: list[int]) -> None:
    clock = FakeClock()
    ids = TimeOrderedIds(clock)
    made = []
    for step_ms in steps:
        clock.ms += step_ms
        made.append(ids.new())
    assert all(earlier < later for earlier, later in zip(made, made[1:], strict=False))
    assert {len(each) for each in made} == {32}


def test_many_ids_of_one_millisecond_never_run_into_the_next() -> None:
    clock = FakeClock()
    ids = TimeOrderedIds(clock, randbits=lambda bits: 2**bits - 1)
    last = max(ids.new() for _ in range(1000))
    clock.ms += 1
    assert last < ids.new()


def test_two_processes_of_one_millisecond_give_different_ids() -> None:
    clock = FakeClock()
    assert TimeOrderedIds(clock).new() != TimeOrderedIds(clock).new()


def test_threads_never_get_the_same_id() -> None:
    ids = TimeOrderedIds(FakeClock())
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(ids.new() for _ in range(500)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 4000


def test_the_system_clock_returns_milliseconds_since_1970() -> None:
    year_2020_ms, year_2200_ms = 1_577_836_800_000, 7_258_118_400_000
    assert year_2020_ms < SystemClock().now_ms() < year_2200_ms
