"""Timestamps and dates as numbers: microseconds, and days, since 1970-01-01 in UTC."""

from __future__ import annotations

import datetime as dt
import re

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")


def parse_time(text: str) -> dt.datetime:
    """Return the time that an ISO 8601 text means.

    Raises:
        ValueError: it is not a time, or is finer than a microsecond, which would be cut off.
    """
    if _FINER.search(text):
        raise ValueError("times are whole microseconds")
    return dt.datetime.fromisoformat(text)


def to_microseconds(time: dt.datetime) -> int:
    """Return a time as microseconds since 1970; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def to_days(date: dt.date) -> int:
    """Return a date as days since 1970."""
    return (date - _EPOCH.date()).days


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return the time, in UTC, of microseconds since 1970. Raises OverflowError beyond 9999."""
    return _EPOCH + microseconds * _MICROSECOND


def from_days(days: int) -> dt.date:
    """Return the date of days since 1970. Raises OverflowError beyond the year 9999."""
    return _EPOCH.date() + dt.timedelta(days=days)
