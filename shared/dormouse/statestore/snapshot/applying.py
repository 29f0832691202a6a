"""Lay changes of a state over the rows of a snapshot, a column at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.statestore.snapshot.changes import GONE, StateChanges
from dormouse.statestore.snapshot.columns import Column, column, piece
from dormouse.statestore.snapshot.digests import packed, unpacked
from dormouse.statestore.snapshot.items import COLUMNS, REFERENCE, sorted_by

RowsOf: TypeAlias = Callable[[str], pa.Table]
"""Returns the rows of an item."""


def laid_over(lower: RowsOf, changes: StateChanges) -> RowsOf:
    """Return the rows of a snapshot with changes in their place.

    The rows of partitions and shards must be asked for before those of references, which name
    these by their places.

    Raises:
        ValueError: a reference is to a shard or partition that is not there.
    """
    ids: dict[str, tuple[Column, Column]] = {}

    def rows_of(item: str) -> pa.Table:
        below, above = lower(item), changes.rows[item]
        if item == "reference":
            return _references(below, above, ids["partition"], ids["shard"])
        if "digest" in below.column_names:
            below, above = _alike(below, above)
        name = below.column_names[0]
        made = _replaced(below, above, name) if len(above) else below
        if item in ("partition", "shard"):
            ids[item] = column(below, name), column(made, name)
        return made

    return rows_of


def _replaced(below: pa.Table, above: pa.Table, name: str) -> pa.Table:
    kept = below.filter(pc.invert(pc.is_in(below[name], piece(above, name))))
    return sorted_by(pa.concat_tables([kept, _present(above).select(below.column_names)]), name)


def _present(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows[GONE]))


def _alike(below: pa.Table, above: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return rows of both with digests as names if all have digests, else with ids."""
    number = below.column_names[1]
    if not has_digests(below):
        return below.select(["id", number]), above
    digests = packed(column(above, "id")) if len(above) else pa.array([], COLUMNS["digest"])
    if digests is None:
        ids = unpacked(column(below, "digest"))
        return pa.table({"id": ids, number: below[number]}), above
    named = pa.table({"digest": digests, number: above[number], GONE: above[GONE]})
    return below.select(["digest", number]), named


def has_digests(rows: pa.Table) -> bool:
    """Return whether rows have digests instead of ids."""
    return "digest" in rows.column_names and not rows["digest"].null_count


def _references(
    below: pa.Table,
    above: pa.Table,
    partitions: tuple[Column, Column],
    shards: tuple[Column, Column],
) -> pa.Table:
    """Return references that name partition and shard by their places in the later ids."""
    touched = _places(above, partitions[0], shards[0])
    stored = _pairs(column(below, "partition_row"), column(below, "shard_row"))
    kept = below.filter(pc.invert(pc.is_in(stored, touched)))
    added = _present(above)
    to_partition, to_shard = (pc.index_in(before, now) for before, now in (partitions, shards))
    places = {
        "partition_row": pa.concat_arrays(
            [
                to_partition.take(column(kept, "partition_row")),
                pc.index_in(piece(added, "partition"), partitions[1]),
            ]
        ),
        "shard_row": pa.concat_arrays(
            [
                to_shard.take(column(kept, "shard_row")),
                pc.index_in(piece(added, "id"), shards[1]),
            ]
        ),
    }
    marks = pa.concat_tables([kept.select(REFERENCE[2:]), added.select(REFERENCE[2:])])
    made = pa.table({**places, **{name: piece(marks, name) for name in REFERENCE[2:]}})
    order = pc.sort_indices(_pairs(column(made, "partition_row"), column(made, "shard_row")))
    return made.take(order).combine_chunks()


def _places(references: pa.Table, partitions: Column, shards: Column) -> Column:
    """Return the places of references among the ids; those that were not there have none."""
    found = pc.index_in(piece(references, "partition"), partitions)
    return _pairs(found, pc.index_in(piece(references, "id"), shards)).drop_null()


def _pairs(partition_rows: Column, shard_rows: Column) -> Column:
    high = pc.shift_left(partition_rows.cast(pa.int64()), 32)
    return pc.add(high, shard_rows.cast(pa.int64()))
