"""A segment of remembered sources, as the state names it; `statestore.sources` has its form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """An object with all sources ingested with the versions after `after`, up to `up_to`.

    Together with the table's id, these are all it takes to find a source in it by small reads:
    `index_at` is where its index begins, which has room for `slots` sources in each bucket.
    """

    id: str
    after: int
    up_to: int
    count: int
    size_bytes: int
    index_at: int
    slots: int
