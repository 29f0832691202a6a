"""What an audit does with what lies under an id: nothing is deleted without a positive proof."""

from __future__ import annotations

from dormouse.tables.tombstones import Tombstone

RECHECK_MS = 60 * 24 * 60 * 60 * 1000
"""How long after a deletion an audit looks for items that came late; objects are found at any time.

Only a process puts any that knew the table before: a function has 15 minutes, a run of Spark some
hours, a command line on a computer that slept some days. Messages that come later find no table.
"""
MAX_RECHECKED = 1000
"""How many tombstones an audit looks after at most; the next ones begin where it is their turn."""
UNREGISTERED_AGE_MS = 24 * 60 * 60 * 1000
"""How old an object must be to be a stranger: the state of a table is begun before its entry."""


def tombstones_to_recheck(tombstones: list[Tombstone], now_ms: int) -> list[Tombstone]:
    """Return those which an audit looks after: all, or as many as it can, others each day."""
    if len(tombstones) <= MAX_RECHECKED:
        return tombstones
    day = now_ms // (24 * 60 * 60 * 1000)
    start = day * MAX_RECHECKED % len(tombstones)
    return [*tombstones[start:], *tombstones[:start]][:MAX_RECHECKED]
