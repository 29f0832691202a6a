"""Attempts at a part of a job: crashed ones in a row count, until one ends."""

from __future__ import annotations

import pytest

from dormouse.errors import UnavailableError
from dormouse.jobs import clear_crashes, crashed_attempts, record_attempt
from tests.support.adapters import CountingIds, FakeClock
from tests.support.memory_storage import MemoryStorage
from tests.support.world import Crash

RUNS = "table/jobs/job/tries/0000-0001/"
IDS = CountingIds(FakeClock())


@pytest.fixture
def notes() -> MemoryStorage:
    return MemoryStorage()


def run(notes: MemoryStorage, error: Exception | None = None) -> None:
    with record_attempt(notes, IDS, RUNS):
        if error is not None:
            raise error


def crash(notes: MemoryStorage) -> None:
    with pytest.raises(Crash):
        run(notes, Crash())


def test_runs_that_ended_without_a_word_are_counted(notes: MemoryStorage) -> None:
    assert crashed_attempts(notes, RUNS) == []
    crash(notes)
    crash(notes)
    assert len(crashed_attempts(notes, RUNS)) == 2


def test_a_part_that_got_on_between_two_crashes_has_not_crashed_twice_in_a_row(
    notes: MemoryStorage,
) -> None:
    crash(notes)
    run(notes)
    crash(notes)
    assert len(crashed_attempts(notes, RUNS)) == 1


def test_a_run_that_said_why_it_failed_is_no_crash(notes: MemoryStorage) -> None:
    with pytest.raises(UnavailableError):
        run(notes, UnavailableError("for now"))
    assert crashed_attempts(notes, RUNS) == []


def test_crashes_before_a_recorded_end_are_not_counted_again(notes: MemoryStorage) -> None:
    crash(notes)
    crash(notes)
    clear_crashes(notes, RUNS)
    assert crashed_attempts(notes, RUNS) == []
    crash(notes)
    assert len(crashed_attempts(notes, RUNS)) == 1
