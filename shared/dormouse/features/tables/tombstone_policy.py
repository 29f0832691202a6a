"""Which tombstones an audit checks, and from what age it reports objects of unknown ids."""

from __future__ import annotations

from dormouse.tables.tombstones import Tombstone

RECHECK_MS = 60 * 24 * 60 * 60 * 1000
"""How long after a deletion an audit looks for late DynamoDB items; objects are found at any time.

Only a process that opened the table before can write them: a function has 15 minutes, a Spark run
some hours, a command line on a computer that was asleep some days. Messages delivered later find no
table.
"""
MAX_RECHECKED = 1000
"""The most tombstones that one audit checks; each day it begins at others."""
UNREGISTERED_AGE_MS = 24 * 60 * 60 * 1000
"""From what age an object is reported: a table's state is created before its registry entry."""


def tombstones_to_recheck(tombstones: list[Tombstone], now_ms: int) -> list[Tombstone]:
    """Return the tombstones that an audit checks: all, or `MAX_RECHECKED`, others each day."""
    if len(tombstones) <= MAX_RECHECKED:
        return tombstones
    day = now_ms // (24 * 60 * 60 * 1000)
    start = day * MAX_RECHECKED % len(tombstones)
    return [*tombstones[start:], *tombstones[:start]][:MAX_RECHECKED]
