"""Lay changes of a state over the rows of a snapshot, a column at a time.

A column of the snapshot is read when its turn comes, and is gone when the one that replaces it is
made. So a load takes little more memory than the state that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.statestore.snapshot.changes import GONE, StateChanges
from dormouse.statestore.snapshot.columns import (
    Column,
    column,
    hand_back,
    in_one,
    piece,
    places_among,
)
from dormouse.statestore.snapshot.digests import packed, unpacked
from dormouse.statestore.snapshot.items import COLUMNS, ITEMS, REFERENCE

ColumnOf: TypeAlias = Callable[[str, str], Column]
"""Returns a column of an item, by the names of both."""
RowsOf: TypeAlias = Callable[[str], pa.Table]
"""Returns the rows of an item."""


def laid_over(lower: ColumnOf, changes: StateChanges) -> RowsOf:
    """Return the rows of a snapshot with changes in their place.

    The rows of partitions and shards must be asked for before those of references, which name
    these by their places. The rows of an item leave `changes` when they are asked for, and memory
    when they are laid over: a cold load has a third of what changed in memory besides the state.

    Raises:
        ValueError: a reference is to a shard or partition that is not there.
    """
    merged: dict[str, _Merge] = {}

    def rows_of(item: str) -> pa.Table:
        names, above = ITEMS[item], changes.rows.pop
        if item == "reference":
            return _references(lower, above(item), merged["partition"], merged["shard"])
        if "digest" in names:
            return _remembered(lower, item, above(item))
        merge = _Merge(lower(item, "id"), above(item), "id")
        if item in ("partition", "shard"):
            merged[item] = merge
        rest = {name: merge.replaced(lower(item, name), name) for name in names if name != "id"}
        return pa.table({"id": merge.names, **rest})

    return rows_of


class _Merge:
    """Rows in the order of their names, and rows that replace some of them, come between or are
    gone.
    """

    def __init__(self, before: Column, above: pa.Table, name: str) -> None:
        """Find out where rows go that are named `before`; `name` is the column of the others'."""
        self._is_same = not len(above)
        if self._is_same:
            self.names = before
            return
        changed = pc.is_in(before, piece(above, name))
        self._added = _present(above)
        del above
        fresh, self._added = piece(self._added, name), self._added.drop_columns([name])
        gone = before.filter(changed)
        self._again = gone.filter(pc.is_in(gone, fresh))
        self._is_again = pc.is_in(before, self._again) if len(self._again) else None
        self._before, self._most = len(before), len(before) + len(fresh) - 1
        both, places = _with_added(before, pc.invert(changed), fresh)
        del before, gone
        order = pc.sort_indices(both)
        hand_back(len(both))
        self.names, self._places = both.take(order), places.take(order)

    def replaced(self, before: Column, name: str) -> Column:
        """Return the column of that name of all rows, from those before."""
        return before if self._is_same else _taken(before, self._added, name, self._places)

    def moved(self, rows: Column) -> Column:
        """Return the present places of rows, by the places before; null for rows that are gone."""
        if self._is_same:
            return rows
        now = pc.inverse_permutation(  # type: ignore[attr-defined]  # the stubs lack it
            self._places, max_index=self._most
        )[: self._before]
        if self._is_again is not None:  # other rows of the same names are there instead
            now = pc.replace_with_mask(now, self._is_again, places_among(self._again, self.names))
        present: Column = now.take(rows)
        return present


def _with_added(before: Column, is_kept: Column, added: Column) -> tuple[Column, Column]:
    """Return values that are kept and those added, and the places of all in both, one after the
    other.
    """
    kept = pc.indices_nonzero(is_kept).cast(pa.int32())
    fresh = pa.array(range(len(before), len(before) + len(added)), pa.int32())
    return pa.concat_arrays([before.take(kept), added]), pa.concat_arrays([kept, fresh])


def _taken(before: Column, added: pa.Table, name: str, places: Column) -> Column:
    """Return the values at places in a column with that of the rows added after it."""
    return in_one(pa.chunked_array([before, piece(added, name)], before.type).take(places))


def _present(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows[GONE]))


def _remembered(lower: ColumnOf, item: str, above: pa.Table) -> pa.Table:
    """Return ids and numbers: digests in the place of ids if all have digests."""
    number = ITEMS[item][1]
    digests = lower(item, "digest")
    if digests.null_count:
        name, names = "id", lower(item, "id")
    else:
        added = packed(column(above, "id")) if len(above) else pa.array([], COLUMNS["digest"])
        if added is None:
            name, names = "id", unpacked(digests)
        else:
            name, names = "digest", digests
            above = pa.table({"digest": added, number: above[number], GONE: above[GONE]})
    merge = _Merge(names, above, name)
    return pa.table({name: merge.names, number: merge.replaced(lower(item, number), number)})


def has_digests(rows: pa.Table) -> bool:
    """Return whether rows have digests instead of ids."""
    return "digest" in rows.column_names and not rows["digest"].null_count


def _references(lower: ColumnOf, above: pa.Table, partitions: _Merge, shards: _Merge) -> pa.Table:
    """Return references that name partition and shard by their present places.

    One to a shard or partition that is gone is gone, too. If the changes do not say so, the counts
    that follow do not fit them.
    """
    before = _pairs(
        partitions.moved(lower("reference", "partition_row")),
        shards.moved(lower("reference", "shard_row")),
    )
    changed, is_present = _places(above, partitions, shards), pc.invert(piece(above, GONE))
    fresh, added = changed.filter(is_present), above.select(REFERENCE[2:]).filter(is_present)
    del above
    if fresh.null_count:
        raise ValueError("what changed has references to shards or partitions not there")
    hand_back(len(before))
    changed = changed.drop_null()
    is_kept = pc.and_(pc.is_valid(before), pc.invert(pc.is_in(before, changed)))
    pairs, places = _with_added(before, is_kept, fresh)
    del before
    order = pc.sort_indices(pairs)
    pairs, places = pairs.take(order), places.take(order)
    del order
    hand_back(len(pairs))
    marks = {n: _taken(lower("reference", n), added, n, places) for n in REFERENCE[2:]}
    low = pc.bit_wise_and(pairs, pa.scalar(_LOW, pa.int64())).cast(pa.int32())
    high = pc.shift_right(pairs, 32).cast(pa.int32())
    return pa.table({"partition_row": high, "shard_row": low, **marks})


_LOW = 2**32 - 1


def _places(references: pa.Table, partitions: _Merge, shards: _Merge) -> Column:
    """Return the places of references among the ids; those that are not there have none."""
    return _pairs(
        places_among(piece(references, "partition"), partitions.names),
        places_among(piece(references, "id"), shards.names),
    )


def _pairs(partition_rows: Column, shard_rows: Column) -> Column:
    high = pc.shift_left(partition_rows.cast(pa.int64()), 32)
    return pc.add(high, shard_rows.cast(pa.int64()))
