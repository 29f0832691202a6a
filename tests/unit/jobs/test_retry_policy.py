"""Retries: soon at first, then with growing intervals, and never an end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import ContendedError, CorruptDataError, OutcomeUnknownError, UnavailableError
from dormouse.jobs import (
    MAX_PAUSE_FACTOR,
    SWEEP_SECONDS,
    backoff_ms,
    is_chain_expired,
    is_retry_due,
    permanent_failure,
)

GIVE_UP_MS = 1000


def due(times: int, every_ms: int, retry_ms: int = GIVE_UP_MS) -> list[int]:
    """Return when what began at 0 was due, looked at so many times, remembering the last time."""
    found: list[int] = []
    for now_ms in range(every_ms, (times + 1) * every_ms, every_ms):
        if is_retry_due(0, found[-1] if found else 0, now_ms, retry_ms):
            found.append(now_ms)
    return found


def test_pauses_double_up_to_the_longest() -> None:
    assert due(100, GIVE_UP_MS) == [1000 * n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 72, 96)]


def test_looks_that_come_at_odd_times_find_what_became_due_between_them() -> None:
    assert due(40, 700) == [1400, 2100, 4200, 8400, 16100, 24500]


def test_without_patience_it_is_always_due() -> None:
    assert due(3, 10, retry_ms=0) == [10, 20, 30]


def test_what_begins_later_by_another_clock_is_not_due() -> None:
    assert not is_retry_due(5000, 0, 1000, GIVE_UP_MS)
    assert not is_retry_due(5000, 9000, 1000, GIVE_UP_MS)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_no_pause_is_longer_than_the_longest(since_ms: int, retry_ms: int) -> None:
    assert is_retry_due(0, since_ms, since_ms + (MAX_PAUSE_FACTOR + 1) * retry_ms, retry_ms)


@given(st.integers(0, 10**9), st.integers(0, 10**7))
def test_no_chain_is_spent_before_a_sweep_begins_the_next(begun_ms: int, retry_ms: int) -> None:
    """Looked at by every sweep, from when the chain began until it is spent."""
    sweep_ms = SWEEP_SECONDS * 1000
    now_ms = begun_ms
    while not is_chain_expired(begun_ms, 0, now_ms + sweep_ms, retry_ms):
        now_ms += sweep_ms
    assert is_retry_due(0, begun_ms, now_ms, retry_ms)


def test_a_chain_ends() -> None:
    for retry_ms in (0, 1000, 3_600_000):
        longest_ms = 2 * max(MAX_PAUSE_FACTOR * retry_ms, SWEEP_SECONDS * 1000)
        assert is_chain_expired(10**12, 0, 10**12 + longest_ms + 1, retry_ms)


def test_what_is_tried_to_no_avail_rests_twice_as_long_each_time_up_to_an_hour() -> None:
    rests = [backoff_ms(attempts) // 1000 for attempts in (0, 1, 2, 3, 7, 8, 100, 10**9)]
    assert rests == [30, 30, 60, 120, 1920, 3600, 3600, 3600]


def test_only_a_permanent_error_ends_the_retries() -> None:
    corrupt = CorruptDataError("it is damaged", hint="look")
    assert permanent_failure(corrupt) == "it is damaged; look"
    group = ExceptionGroup("", [corrupt, ExceptionGroup("", [CorruptDataError("so is this")])])
    assert permanent_failure(group) == "it is damaged; look; so is this"
    for passing in (UnavailableError(""), ContendedError("x"), OutcomeUnknownError("x")):
        assert not permanent_failure(passing)
        assert not permanent_failure(ExceptionGroup("", [corrupt, passing]))
    assert not permanent_failure(KeyError("a row"))
