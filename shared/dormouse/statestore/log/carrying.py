"""Which deltas carry others: a reader of a page then fetches few objects, in one round.

An object takes a request, however small it is, so the open page of the log takes up to 47. Some
deltas of a page therefore carry copies of those before them, so that all lie in few runs, each of
which its last has whole (`ends_at`). Of 47 deltas a reader fetches those at the places 10, 19, 27,
34, 40, 45, 46 and 47.

Where a delta will be is a guess of its writer, who may be overtaken. It carries what it names, so
what a reader looks for and does not find in the deltas of these places it fetches itself, in a
second round. Nothing depends on the guess but the number of requests.

Pure rules; `tail` knows what can be carried, `reader` looks into what was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dormouse.statestore.deltas import Delta, packed_entries
from dormouse.statestore.log.pages import PAGE_CAPACITY, place_after
from dormouse.statestore.log.segment_levels import ends_at

MOST_FETCHED = 9
"""So many deltas a reader fetches of a page at most. A commit writes some 450 bytes more for it; it
would be 710 for six."""
MOST_CARRIED = PAGE_CAPACITY - 1
MOST_BYTES = 16 * 1024
"""A delta of more, not yet compressed, is not carried: a reader fetches it itself."""


def carried_before(version: int) -> int:
    """Return how many deltas before it that one carries which makes a version.

    In the first page, version 10 carries 9, and version 19 the eight after it; 11 to 18 none.
    """
    _, before = place_after(version - 1)
    earlier = ends_at(before + 1, MOST_FETCHED)[:-1]
    return before - max(earlier, default=0)


def carriers(ids: Sequence[str], version: int, known: Collection[str]) -> list[str]:
    """Return which of the deltas that follow a version are to be fetched for all of them.

    Those that are `known` need not be; what a delta should carry that was put at its place is left
    out.
    """
    found, place = [], len(ids)
    while place > 0:
        place -= 1
        if ids[place] not in known:
            found.append(ids[place])
            place -= carried_before(version + place + 1)
    return found


def packed(deltas: Iterable[Delta]) -> list[tuple[str, bytes]]:
    """Return deltas as another one carries them, without those that are large."""
    found = [(delta.id, packed_entries(delta.entries)) for delta in deltas]
    return [(delta_id, rows) for delta_id, rows in found if len(rows) <= MOST_BYTES]
