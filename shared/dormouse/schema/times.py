"""Times and dates as numbers: micro- or nanoseconds and days since 1970, and since midnight."""

from __future__ import annotations

import datetime as dt
import re

from dormouse.schema.types import MAX_TIME, NANOSECONDS, ZONED, Primitive

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FRACTION = re.compile(r"([.,]\d{6})(\d+)")


def parse_count(text: str, kind: Primitive) -> int:
    """Return the number that an ISO 8601 text means as a timestamp of a type.

    Raises:
        ValueError: it is not a time, is finer than the type, or has a zone and the type has none.
        OverflowError: it lies outside the years that Python has.
    """
    time, nanoseconds = _split(text)
    if time.tzinfo is not None and kind not in ZONED:
        raise ValueError("it has a time zone, and the column has none")
    if nanoseconds and kind not in NANOSECONDS:
        raise ValueError("times are whole microseconds")
    # astimezone raises for a time outside the years that Python has
    microseconds = to_microseconds(time.astimezone(dt.UTC) if time.tzinfo else time)
    return microseconds * 1000 + nanoseconds if kind in NANOSECONDS else microseconds


def type_of_time(text: str) -> Primitive:
    """Return the type that an ISO 8601 time has by itself. Raises ValueError if it is none."""
    time, nanoseconds = _split(text)
    if time.tzinfo is None:
        return Primitive.TIMESTAMP_NTZ_NS if nanoseconds else Primitive.TIMESTAMP_NTZ
    return Primitive.TIMESTAMP_NS if nanoseconds else Primitive.TIMESTAMP


def _split(text: str) -> tuple[dt.datetime, int]:
    """Return the time of a text in whole microseconds, and the nanoseconds beside these."""
    found = _FRACTION.search(text)
    if found is None:
        return dt.datetime.fromisoformat(text), 0
    finer = found[2].rstrip("0")
    if len(finer) > 3:
        raise ValueError("times are whole nanoseconds")
    rest = text[: found.start(2)] + text[found.end() :]
    return dt.datetime.fromisoformat(rest), int(finer.ljust(3, "0"))


def show_count(count: int, kind: Primitive) -> str:
    """Return a timestamp as ISO 8601. Raises OverflowError beyond the year 9999."""
    if kind not in NANOSECONDS:
        return _iso(from_microseconds(count), kind)
    microseconds, nanoseconds = divmod(count, 1000)
    text = _iso(from_microseconds(microseconds), kind)
    if not nanoseconds:
        return text
    whole, zone = (text[:-6], text[-6:]) if kind in ZONED else (text, "")
    fraction = "" if "." in whole else ".000000"
    return f"{whole}{fraction}{nanoseconds:03d}{zone}"


def _iso(time: dt.datetime, kind: Primitive) -> str:
    return (time if kind in ZONED else time.replace(tzinfo=None)).isoformat()


def parse_clock(text: str) -> int:
    """Return the microseconds since midnight of an ISO 8601 time of day.

    Raises:
        ValueError: it is none, has a zone, or is finer than a microsecond.
    """
    found = _FRACTION.search(text)
    if found is not None:
        if found[2].strip("0"):
            raise ValueError("times are whole microseconds")
        text = text[: found.start(2)] + text[found.end() :]
    return clock_count(dt.time.fromisoformat(text))


def clock_count(clock: dt.time) -> int:
    """Return a time of day as microseconds since midnight. Raises ValueError if it has a zone."""
    if clock.tzinfo is not None:
        raise ValueError("a time of day has no zone")
    seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
    return seconds * 1_000_000 + clock.microsecond


def show_clock(microseconds: int) -> str:
    """Return a time of day as ISO 8601. Raises OverflowError beyond a day."""
    return from_clock(microseconds).isoformat()


def from_clock(microseconds: int) -> dt.time:
    """Return the time of day of microseconds since midnight. Raises OverflowError beyond a day."""
    if not 0 <= microseconds <= MAX_TIME:
        raise OverflowError("that is no time of a day")
    return (_EPOCH + microseconds * _MICROSECOND).time()


def to_microseconds(time: dt.datetime) -> int:
    """Return a time as microseconds since 1970; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def to_count(time: dt.datetime, kind: Primitive) -> int:
    """Return a time as a timestamp of a type; pandas' times have nanoseconds beside Python's."""
    if kind not in NANOSECONDS:
        return to_microseconds(time)
    return to_microseconds(time) * 1000 + int(getattr(time, "nanosecond", 0))


def to_days(date: dt.date) -> int:
    """Return a date as days since 1970."""
    return (date - _EPOCH.date()).days


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return the time, in UTC, of microseconds since 1970. Raises OverflowError beyond 9999."""
    return _EPOCH + microseconds * _MICROSECOND


def from_days(days: int) -> dt.date:
    """Return the date of days since 1970. Raises OverflowError beyond the year 9999."""
    return _EPOCH.date() + dt.timedelta(days=days)
