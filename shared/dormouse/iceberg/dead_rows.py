"""Find the rows of shards in dead key ranges: from footers, and keys at the ends of ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dormouse.cache import Cache
from dormouse.iceberg.avro import RowRange
from dormouse.iceberg.liveness import LiveShard
from dormouse.keys import Key, KeyRange
from dormouse.ports import Storage
from dormouse.query.rows import count_slices
from dormouse.shards.reading import Slice
from dormouse.tables.table import Table


def find_dead_rows(
    storage: Storage, table: Table, shards: Mapping[str, LiveShard], cache: Cache | None = None
) -> dict[str, tuple[RowRange, ...]]:
    """Return the row numbers of the dead rows of shards, by shard id.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    parts = {key: _parts(live.dead) for key, live in shards.items()}
    slices = [Slice(shards[key].shard, part) for key, cut in parts.items() for part in cut]
    counted = iter(count_slices(storage, table, slices, cache))
    found = {}
    for key, cut in parts.items():
        rows, at = [], 0
        for part in cut:
            end = at + next(counted)
            if part in shards[key].dead and at < end:
                rows.append((at, end))
            at = end
        found[key] = tuple(rows)
    return found


def _parts(dead: Sequence[KeyRange]) -> list[KeyRange]:
    """Return the dead ranges and those before and between them, in order."""
    parts: list[KeyRange] = []
    end: Key = ()
    for gap in dead:
        if end < gap.min:
            parts.append(KeyRange(end, gap.min))
        parts.append(gap)
        end = gap.max or ()
    return parts
