"""Read the rows of row groups that were found: fetch and verify them whole, and decode them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from dormouse.ports.services import Objects
from dormouse.readers.decoding import FetchedRows, numbers_of
from dormouse.readers.ranged_reads import coalesce, fetch_sections
from dormouse.readers.reading import RowGroups
from dormouse.readers.threads import DECODE_THREADS, in_threads, reading_threads
from dormouse.schema.schema import Field, Schema
from dormouse.stored.paths import shard_path


def read_row_groups(
    objects: Objects,
    table_id: str,
    found: Sequence[RowGroups],
    schema: Schema,
    columns: Sequence[str],
) -> list[list[pa.RecordBatch]]:
    """Read the row groups found for disjoint slices; return the rows of each shard, in its order.

    Each row group is read once, even if several slices need it, and neighbours are read together.
    All bytes are verified by their CRCs.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    by_shard = sorted((g for g in found if g.numbers), key=_place)
    shards = [list(groups) for _, groups in groupby(by_shard, key=lambda g: g.slice.shard.id)]
    keys = _keys_to_read(found, schema)
    asked = [schema.field_named(name) for name in columns]
    needed = list(dict.fromkeys([*keys, *asked]))
    spans = [coalesce(groups[0].index.sections(numbers_of(groups), needed)) for groups in shards]
    with (
        reading_threads(objects, sum(map(len, spans))) as start_read,
        in_threads(len(shards), DECODE_THREADS) as start_decoding,
    ):
        files = [
            fetch_sections(
                start_read,
                objects,
                shard_path(table_id, groups[0].slice.shard.id),
                groups[0].slice.shard.size_bytes,
                wanted,
            )
            for groups, wanted in zip(shards, spans, strict=True)
        ]
        started = [
            start_decoding(FetchedRows(file, groups, schema, keys, needed, columns).decoded)
            for file, groups in zip(files, shards, strict=True)
        ]
        return [wait() for wait in started]


def _keys_to_read(found: Sequence[RowGroups], schema: Schema) -> Sequence[Field]:
    """Return the row keys, and as many sort keys as the longest end of a range has."""
    ranges = [groups.slice.range for groups in found]
    parts = max((max(len(r.min), len(r.max or ())) for r in ranges), default=0)
    return schema.keys[: max(parts, len(schema.row_keys))]


def _place(groups: RowGroups) -> tuple[object, ...]:
    shard = groups.slice.shard
    return shard.low, shard.id, groups.slice.range.low
