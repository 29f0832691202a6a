"""A segment of source ids, as the state names it. `statestore.source_codec` has its stored form."""

from __future__ import annotations

import msgspec


class SourceSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An object that holds all sources ingested after version `after`, up to version `up_to`.

    With the table's id, these fields are enough to find a source in it with small reads: `index_at`
    is the position of its hash index, which has room for `slots` sources in each bucket.
    """

    id: str
    after: int
    up_to: int
    count: int
    size_bytes: int
    index_at: int
    slots: int
