"""Sort a piece: rows that fit into memory several times.

Comparing one column is much cheaper than comparing several, and most rows differ in the first key
column already. So DataFusion sorts by the first key column alone, and then the rows that are equal
in it are put in order by the other key columns.

For example, sorted by the first of two key columns:

    rows       (a, 7) (b, 9) (b, 2) (c, 1) (d, 5) (d, 4)
    tied              (b, 9) (b, 2)        (d, 5) (d, 4)
    groups               0      0             1      1
    in order          (b, 2) (b, 9)        (d, 4) (d, 5)

The groups ascend as the first key does, so the tied rows, sorted by their groups' numbers and the
other keys, take the places that tied rows had before.

Few rows are put in order by all keys at once: DataFusion plans for longer than they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_schema, conform
from dormouse.engine import datafusion as engine
from dormouse.schema.schema import Field, Schema

FEW_ROWS = 100
_FALSE = pa.array([False])


def sort_piece(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` sorted by all keys of `schema`, whose columns come first.

    Rows with equal keys come in no particular order, but always in the same one.
    """
    table = pa.Table.from_batches(batches, arrow_schema(schema))
    pieces = table.combine_chunks().to_batches()
    if not pieces:
        return
    if table.num_rows <= FEW_ROWS:
        (few,) = pieces
        yield few.take(_order(few.columns[: len(schema.keys)]))
        return
    session = engine.session(table.num_rows)
    by_first_key = engine.key_order(schema)[:1]
    frame = engine.frame_from_batches(session, pieces).sort(*by_first_key)
    found = pa.Table.from_batches(engine.execute_frame(frame))
    (batch,) = found.combine_chunks().to_batches()  # ties may lie in two batches
    yield _with_ties_in_order(conform(batch, arrow_schema(schema)), schema.keys[1:])


def _with_ties_in_order(batch: pa.RecordBatch, others: tuple[Field, ...]) -> pa.RecordBatch:
    """Return rows that are sorted by the first column sorted by the key columns after it, too."""
    first = batch.column(0)
    same = pc.equal(first.slice(0, len(first) - 1), first.slice(1))
    if not others or not pc.any(same).as_py():
        return batch
    follows = pa.concat_arrays([_FALSE, same])
    tied = pc.or_(follows, pa.concat_arrays([same, _FALSE]))
    groups = pc.cumulative_sum(pc.cast(pc.invert(pc.filter(follows, tied)), pa.int32()))
    places = pc.indices_nonzero(tied)
    keys = [groups, *(pc.filter(column, tied) for column in batch.columns[1 : len(others) + 1])]
    in_order = places.take(_order(keys))
    rows = pa.arange(0, batch.num_rows).cast(pa.uint64())  # type: ignore[attr-defined]  # stubs lag
    return batch.take(pc.replace_with_mask(rows, tied, in_order))


def _order(keys: list[Array]) -> Array:
    """Return the positions of rows in the order of their keys."""
    names = [str(i) for i in range(len(keys))]
    order: list[tuple[str, Literal["ascending", "descending"]]] = [(n, "ascending") for n in names]
    return pc.sort_indices(pa.RecordBatch.from_arrays(keys, names=names), sort_keys=order)
