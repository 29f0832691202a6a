"""Refuse rows whose row key is too large, before any of them is written; used by `formats`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.schema.key_types import MAX_KEY_BYTES
from dormouse.schema.schema import Primitive, Schema

_HINT = "keys are stored in memory and in every index: put long texts in a value column"


def with_fitting_keys(
    batches: Iterable[pa.RecordBatch], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows of a file as long as their row keys are not too large.

    Raises:
        RefusedSourceError: one is; says which row, and the column that takes most of its key.
    """
    before = 0
    for batch in batches:
        sizes = [_sizes(batch.column(f.name), f.type) for f in schema.row_keys]
        total = sizes[0]
        for size in sizes[1:]:
            total = pc.add(total, size)
        if batch.num_rows and pc.max(total).as_py() > MAX_KEY_BYTES:
            is_larger = pc.greater(total, pa.scalar(MAX_KEY_BYTES, pa.int64()))
            row = pc.index(is_larger, True).as_py()
            longest = max(range(len(sizes)), key=lambda column: sizes[column][row].as_py())
            raise RefusedSourceError(
                f"row {before + row + 1}, column {schema.row_keys[longest].name!r}: the row key "
                f"takes {total[row].as_py():,} bytes, and may take {MAX_KEY_BYTES:,}",
                hint=_HINT,
            )
        before += batch.num_rows
        yield batch


def _sizes(column: Array, kind: object) -> Array:
    """Return the bytes of each part as `schema.key_types` counts them."""
    if kind in (Primitive.STRING, Primitive.BYTES):
        lengths: Array = pc.call_function("binary_length", [column])
        return pc.cast(lengths, pa.int64())
    return pa.repeat(pa.scalar(8, pa.int64()), len(column))
