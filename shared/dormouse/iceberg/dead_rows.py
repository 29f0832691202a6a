"""Find the dead rows of shards: those in dead key ranges, from footers and the keys at their ends,
and those that deletions hide, by reading the columns that these name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dormouse.cache import Cache
from dormouse.iceberg.avro import RowRange
from dormouse.iceberg.liveness import LiveShard
from dormouse.keys import Key, KeyRange
from dormouse.ports import Storage
from dormouse.query.rows import count_slices, hidden_rows
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
        if shards[key].deletions:
            live = shards[key]
            hidden = hidden_rows(storage, table, live.shard, live.deletions, cache or Cache(0))
            rows += ((row, row + 1) for row in hidden)
        found[key] = tuple(_joined(rows))
    return found


def _joined(rows: Iterable[RowRange]) -> Iterator[RowRange]:
    """Yield ranges in order, those that touch or overlap as one."""
    last: RowRange | None = None
    for start, end in sorted(rows):
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], end)
            continue
        if last is not None:
            yield last
        last = start, end
    if last is not None:
        yield last


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
