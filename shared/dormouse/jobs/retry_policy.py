"""The retry policy: retry soon at first, then with growing intervals (backoff).

What fails for good must not slow down what would succeed, nor fill the queue with copies of its own
message. Intervals follow from the time since the beginning, so nobody has to count attempts.
"""

from __future__ import annotations

from dormouse.errors import (
    DormouseError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)

MAX_RECEIVES = 3
"""How often a function receives a message before it moves to the dead-letter queue; the template
says the same."""
MAX_PAUSE_FACTOR = 24
"""The longest pause between retries, as a multiple of the retry interval: a day for the default
of an hour."""
SWEEP_SECONDS = 5 * 60
"""The interval of the sweep; the template says the same."""
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 30, 60 * 60


def is_retry_due(begun_ms: int, since_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether a retry of what began at `begun_ms` became due after `since_ms` and up to now.

    Retries are due 1, 2, 4, 8 … intervals of `retry_ms` after the beginning, so each pause is as
    long as all before it together; from `MAX_PAUSE_FACTOR` intervals on, also at each multiple of
    that time. With an interval of an hour: after 1, 2, 4, 8, 16, 24, 32 and 48 hours. With an
    interval of 0, a retry is always due.
    """
    if retry_ms <= 0:
        return True

    def times_due(by_ms: int) -> int:
        waits = max(0, by_ms - begun_ms) // retry_ms
        return waits.bit_length() + waits // MAX_PAUSE_FACTOR

    return times_due(now_ms) > times_due(since_ms)


def is_chain_expired(begun_ms: int, requested_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether a chain of messages is too old to continue.

    The chain was begun at `begun_ms` for a request of `requested_ms`. When it expires, the sweep
    has had twice the time it needs to begin another one, in case a message of this one was lost.
    """
    age_ms = max(begun_ms - requested_ms, retry_ms)
    pause_ms = max(min(age_ms, MAX_PAUSE_FACTOR * retry_ms), SWEEP_SECONDS * 1000)
    return now_ms - begun_ms > 2 * pause_ms


def backoff_ms(attempts: int) -> int:
    """Return how long to wait after `attempts` failed attempts: twice as long after each, up to a
    limit.
    """
    doublings = min(max(attempts - 1, 0), 16)
    return min(MIN_BACKOFF_SECONDS << doublings, MAX_BACKOFF_SECONDS) * 1000


def permanent_failure(error: BaseException) -> str:
    """Return why a retry after this error is useless; an empty string if it may succeed.

    An error that is not a DormouseError may quote rows in its text, so it is never a reason to
    show.
    """
    if isinstance(error, ExceptionGroup):
        reasons = [permanent_failure(each) for each in error.exceptions]
        return "; ".join(reasons) if all(reasons) else ""
    if not isinstance(error, DormouseError):
        return ""
    may_pass = isinstance(error, UnavailableError | OutcomeUnknownError)
    return "" if may_pass and not isinstance(error, ServiceRefusedError) else error.explanation
