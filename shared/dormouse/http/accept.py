"""Content negotiation: which of the media types that there are a client prefers (RFC 9110)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ALL = "*/*"


def preferred_type(headers: Mapping[str, str], offered: Iterable[str]) -> str | None:
    """Return the offered media type that a client prefers; None if it accepts none of them.

    Its header Accept rates a type by the most specific range that matches it (RFC 9110, 12.5.1). Of
    types that it rates the same, the one that it names first, then the one that is offered first.
    Without the header, any type is accepted.

    For example, of ``text/csv;q=0, */*;q=0.5, application/json``, JSON is preferred, then all but
    CSV.
    """
    ranges = [_rated(part) for part in (headers.get("accept", "").strip() or _ALL).split(",")]
    best: tuple[float, int] | None = None
    found = None
    for media_type in offered:
        rating = _rating(media_type, ranges)
        if rating[0] > 0 and (best is None or rating > best):
            best, found = rating, media_type
    return found


def _rating(media_type: str, ranges: list[tuple[str, float]]) -> tuple[float, int]:
    """Return the quality of a type, and the negative place of the range that says so."""
    for wanted in (media_type, media_type.partition("/")[0] + "/*", _ALL):
        for place, (media_range, quality) in enumerate(ranges):
            if media_range == wanted:
                return quality, -place
    return 0.0, 0


def _rated(text: str) -> tuple[str, float]:
    """Return a range and its quality; what is no quality is 0."""
    media_range, *parameters = (part.strip().lower() for part in text.split(";"))
    given = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        quality = float(given)
    except ValueError:
        return media_range, 0.0
    return media_range, quality if 0 <= quality <= 1 else 0.0
