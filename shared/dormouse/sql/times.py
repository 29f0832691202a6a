"""Intervals and truncated times of conditions: how text means them, and calculation with constants.

An interval has months, days and microseconds, which are added in this order, as DataFusion does.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import FieldType, Primitive
from dormouse.schema.times import from_microseconds, to_microseconds
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS

_PART = re.compile(r"\s*([+-]?\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.IGNORECASE)
_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day": 1, "week": 7}
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_MOST_YEARS = 10_000
_DAY = 24 * 3_600_000_000
TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""What date_trunc can cut times to."""
_UNITS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_FIRST = to_microseconds(dt.datetime(1, 1, 1, tzinfo=dt.UTC))
_LAST = to_microseconds(dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC))
_FIRST_NS = to_microseconds(dt.datetime(1678, 1, 1, tzinfo=dt.UTC))
_LAST_NS = to_microseconds(dt.datetime(2261, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC))


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time; the parts may have different signs."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        """Return the interval in SQL, the same for equal ones."""
        parts = (
            (self.months, "months"),
            (self.days, "days"),
            (self.microseconds, "microseconds"),
        )
        return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 days"

    def negated(self) -> Interval:
        """Return the interval that takes back what this one adds."""
        return Interval(-self.months, -self.days, -self.microseconds)


def parse_interval(text: str) -> Interval:
    """Return the interval that a text such as ``1 month -2 days 90 seconds`` means.

    Raises:
        InvalidRequestError: it means none, or more than 10,000 years.
    """
    months = days = microseconds = at = 0
    while found := _PART.match(text, at):
        at = found.end()
        count, unit = Decimal(found[1]), found[2].lower().removesuffix("s")
        if unit in _MICROSECONDS and (exact := count * _MICROSECONDS[unit]) == int(exact):
            microseconds += int(exact)
        elif unit in _DAYS and count == int(count):
            days += int(count) * _DAYS[unit]
        elif unit in _MONTHS and count == int(count):
            months += int(count) * _MONTHS[unit]
        else:
            at = -1
            break
    if at <= 0 or text[at:].strip():
        raise InvalidRequestError(
            f"{text[:60]!r} is not an interval",
            hint="write INTERVAL '1 day', or '2 hours 30 minutes'; units: "
            + ", ".join((*_MONTHS, *_DAYS, *_MICROSECONDS)),
        )
    years = abs(months) / 12 + abs(days) / 366 + abs(microseconds) / _DAY / 366
    if years > _MOST_YEARS:
        raise InvalidRequestError(f"an interval has at most {_MOST_YEARS:,} years")
    return Interval(months, days, microseconds)


def shifted(count: int, kind: FieldType, interval: Interval) -> int:
    """Return a timestamp or date, moved by an interval.

    Raises:
        InvalidRequestError: there is no such time.
    """
    per, finer = (1000, count % 1000) if kind in NANOSECONDS else (1, 0)
    try:
        if kind is Primitive.DATE:
            return to_microseconds(_moved(from_microseconds(count * _DAY), interval)) // _DAY
        moved = to_microseconds(_moved(from_microseconds(count // per), interval)) * per + finer
    except OverflowError:
        raise InvalidRequestError("the time would be outside of the years 1 to 9999") from None
    first, last = time_limits(kind)
    if not first <= moved <= last:
        raise InvalidRequestError("the time would be outside of the years 1678 to 2261")
    return moved


def time_limits(kind: FieldType) -> tuple[int, int]:
    """Return the first and the last time of a type that can be calculated with: of the years 1 to
    9999; counted in nanoseconds, 1678 to 2261.
    """
    if kind is Primitive.DATE:
        return _FIRST // _DAY, _LAST // _DAY
    if kind in NANOSECONDS:
        return _FIRST_NS * 1000, _LAST_NS * 1000
    return _FIRST, _LAST


def truncation_limits(kind: FieldType) -> tuple[int, int]:
    """Return the first and the last time of a type that DataFusion can truncate: it counts the
    nanoseconds.
    """
    per_day = {Primitive.DATE: _DAY}.get(Primitive(kind), 1)
    per = 1000 if kind in NANOSECONDS else 1
    first, last = _FIRST_NS, _LAST_NS
    return first * per // per_day, last * per // per_day


def shift_limits(kind: FieldType, interval: Interval) -> tuple[int, int]:
    """Return the first and the last time of a type that an interval can be added to.

    Months and days are of different lengths, so the limits leave out a few days more.
    """
    first, last = time_limits(kind)
    if kind not in NANOSECONDS:  # others can count far more than these years
        return first, last
    days = interval.months * 31 + interval.days + interval.microseconds // _DAY
    slack = (abs(interval.months) + 2) * _DAY * 1000
    by = days * _DAY * 1000
    first, last = max(first, first - by + slack), min(last, last - by - slack)
    return (first, last) if first <= last else (1, 0)  # it is longer than all these years


def truncated(count: int, kind: FieldType, unit: str) -> int:
    """Return the first moment of the unit that a timestamp lies in. Raises OverflowError beyond
    the years that Python has.
    """
    per = 1000 if kind in NANOSECONDS else 1
    microseconds = count // per
    if unit in _UNITS:
        return (microseconds - microseconds % _UNITS[unit]) * per
    day = from_microseconds(microseconds).replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        day -= dt.timedelta(days=day.weekday())
    elif unit == "quarter":
        day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    elif unit == "month":
        day = day.replace(day=1)
    elif unit == "year":
        day = day.replace(month=1, day=1)
    return to_microseconds(day) * per


def after_unit(count: int, kind: FieldType, unit: str) -> int:
    """Return the first moment of the unit after the one that a timestamp lies in. Raises
    OverflowError beyond the years that Python has.
    """
    per = 1000 if kind in NANOSECONDS else 1
    start = truncated(count, kind, unit)
    if unit in _UNITS:
        return start + _UNITS[unit] * per
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit, 0)
    step = Interval(months, 0 if months else {"week": 7}.get(unit, 1))
    return to_microseconds(_moved(from_microseconds(start // per), step)) * per


def is_time(kind: FieldType) -> bool:
    """Return whether a type has times that intervals can be added to."""
    return kind in TIMESTAMPS or kind is Primitive.DATE


def _moved(time: dt.datetime, interval: Interval) -> dt.datetime:
    """Return a time, moved by an interval. Raises OverflowError beyond the years of Python."""
    years, month = divmod(time.year * 12 + time.month - 1 + interval.months, 12)
    if not dt.MINYEAR <= years <= dt.MAXYEAR:
        raise OverflowError("the year is beyond those of Python")
    day = min(time.day, calendar.monthrange(years, month + 1)[1])
    moved = time.replace(year=years, month=month + 1, day=day)
    return moved + dt.timedelta(days=interval.days, microseconds=interval.microseconds)
