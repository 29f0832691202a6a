"""When what was not done is tried again: soon at first, then more and more rarely.

What fails for good must not take from what would succeed, nor bury its own message under copies.
Pauses follow from how long ago a thing was begun, so nobody has to count tries.
"""

from __future__ import annotations

from dormouse.errors import DormouseError, OutcomeUnknownError, UnavailableError

MAX_RECEIVES = 3
"""How often a message comes to its function, as the template says: then it is given up."""
MAX_PAUSE_FACTOR = 24
"""Of patiences: a day, with the patience of an hour that jobs have by default."""
SWEEP_SECONDS = 5 * 60
"""How often the sweep runs, as the template says."""
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 30, 60 * 60


def is_retry_due(begun_ms: int, since_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether what was begun then has become due again after `since_ms`, and by now.

    That is after one patience, two, four, eight and so on, each pause as long as all before it
    together; from `MAX_PAUSE_FACTOR` on after each such time. With a patience of 0 it always is.
    """
    if retry_ms <= 0:
        return True

    def times_due(by_ms: int) -> int:
        waits = max(0, by_ms - begun_ms) // retry_ms
        return waits.bit_length() + waits // MAX_PAUSE_FACTOR

    return times_due(now_ms) > times_due(since_ms)


def is_chain_expired(begun_ms: int, requested_ms: int, now_ms: int, retry_ms: int) -> bool:
    """Return whether a chain of messages, begun then for what was requested then, goes on no more.

    By then the sweep has had twice the time to begin another, in case this one was lost.
    """
    age_ms = max(begun_ms - requested_ms, retry_ms)
    pause_ms = max(min(age_ms, MAX_PAUSE_FACTOR * retry_ms), SWEEP_SECONDS * 1000)
    return now_ms - begun_ms > 2 * pause_ms


def backoff_ms(attempts: int) -> int:
    """Return how long what was tried so often to no avail is left alone: each time twice as
    long."""
    doublings = min(max(attempts - 1, 0), 16)
    return min(MIN_BACKOFF_SECONDS << doublings, MAX_BACKOFF_SECONDS) * 1000


def permanent_failure(error: Exception) -> str:
    """Return why another attempt after this error is of no use; empty if it may succeed.

    What is none of our errors may quote rows, so it is no reason for others to read.
    """
    if isinstance(error, ExceptionGroup):
        reasons = [permanent_failure(each) for each in error.exceptions]
        return "; ".join(reasons) if all(reasons) else ""
    if not isinstance(error, DormouseError):
        return ""
    return "" if isinstance(error, UnavailableError | OutcomeUnknownError) else error.explanation
