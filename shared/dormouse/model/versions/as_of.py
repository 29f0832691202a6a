"""How people and requests name a version of a table: by its number, a tag or a time."""

from __future__ import annotations

import datetime as dt
import re
from typing import TypeAlias

from dormouse.errors import InvalidRequestError

AsOf: TypeAlias = int | str | dt.datetime
"""A version, a tag, or an aware time; as text, too."""

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def is_tag(text: str) -> bool:
    """Return whether a tag can be named so: no tag looks like a version or a time."""
    return _TAG.fullmatch(text) is not None


def check_tag(tag: str) -> None:
    """Refuse what cannot be the name of a tag. Raises InvalidRequestError."""
    if not is_tag(tag):
        raise InvalidRequestError(
            f"{tag!r} cannot be the name of a tag",
            hint="use up to 128 letters, digits, dots, dashes and underscores, a letter first",
        )


def parse_as_of(text: str) -> AsOf:
    """Parse the number of a version, a tag, or a time; a time without a zone is UTC.

    Raises:
        InvalidRequestError: it is none of these.
    """
    if is_tag(text):
        return text
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        if re.fullmatch(r"\d+", text):  # Python takes 19 digits for a time
            raise ValueError(text)
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is neither a version nor a tag nor a time",
            hint="a version is a whole number, a time is as 2026-01-31T12:00:00Z",
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def checked_as_of(as_of: object) -> AsOf:
    """Return a version as its number, a tag or a time; text is parsed.

    Raises:
        InvalidRequestError: it cannot be a version of any table, or is a time without a zone.
    """
    if isinstance(as_of, str):
        return parse_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        if as_of.tzinfo is None:
            raise InvalidRequestError(
                f"the time {as_of} has no time zone", hint="give it one, as UTC"
            )
        return as_of
    if isinstance(as_of, bool) or not isinstance(as_of, int) or as_of < 0:
        raise InvalidRequestError(
            f"{as_of!r} is not a version of a table",
            hint="give its number, its tag, or a time with its zone",
        )
    return as_of


def milliseconds_of(time: dt.datetime) -> int:
    """Return an aware time as milliseconds since 1970, rounded down."""
    return (time - _EPOCH) // _MILLISECOND


def iso_time(time_ms: int) -> str:
    """Return milliseconds since 1970 as `parse_as_of` takes them: 2026-01-31T12:00:00.000Z."""
    time = _EPOCH + time_ms * _MILLISECOND
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
