"""Keys in Arrow batches and in Parquet statistics."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa

from dormouse.arrow.types import COUNTS, Array, Scalar, arrow_type
from dormouse.key_forms.python import plain_part
from dormouse.keys.ranges import Key, KeyPart
from dormouse.schema.schema import Field, FieldType, Primitive, Schema

FEW_ROWS = 3
"""Up to so many rows, their keys are read faster one by one than together."""


def row_key(batch: pa.RecordBatch, row: int, schema: Schema) -> Key:
    """Return the row key of one row of `batch`, whose first columns are those of `schema`."""
    return tuple(
        key_part(batch.column(i)[row], field.type) for i, field in enumerate(schema.row_keys)
    )


def row_keys(batch: pa.RecordBatch, rows: Sequence[int], schema: Schema) -> list[Key]:
    """Return the row keys of some rows of `batch`; many are taken together, which is quicker."""
    if len(rows) <= FEW_ROWS:
        return [row_key(batch, row, schema) for row in rows]
    return taken_keys(batch, rows, schema.row_keys)


def taken_keys(
    batch: pa.RecordBatch | pa.Table, rows: Sequence[int], fields: Sequence[Field]
) -> list[Key]:
    """Return the keys of some rows of `batch`, whose first columns are `fields`, taken together."""
    wanted = pa.array(rows, pa.int64())
    parts = []
    for i, field in enumerate(fields):
        cells = batch.column(i).take(wanted)
        plain: Any = cells.cast(COUNTS[field.type]) if field.type in COUNTS else cells
        parts.append(plain.to_pylist())  # an integer, a string or bytes, as a key part is
    return list(zip(*parts, strict=True))


def key_part(value: object, kind: FieldType) -> KeyPart:
    """Return the key part of one cell, an Arrow scalar or the result of its ``as_py()``.

    A timestamp becomes microseconds since 1970, a date days since 1970. A time without a zone is
    UTC.
    """
    if isinstance(value, pa.TimestampScalar | pa.Date32Scalar | pa.Time64Scalar):
        # not as_py: Arrow's range of years is larger than Python's
        value = value.value  # type: ignore[union-attr]  # the stubs lack that of Date32Scalar
    elif isinstance(value, pa.Scalar):
        value = value.as_py()
    return plain_part(value, kind)


def key_column(parts: Sequence[KeyPart], kind: FieldType) -> Array:
    """Return key parts as a column of the Arrow type of `kind`. Requires: they fit it."""
    wanted = arrow_type(kind)
    stored = COUNTS.get(kind, wanted)
    column = pa.Array.from_buffers(
        stored, len(parts), [None, *map(pa.py_buffer, _buffers(parts, stored))]
    )
    return column if stored is wanted else column.cast(wanted)


def _buffers(parts: Sequence[KeyPart], stored: pa.DataType) -> list[bytes]:
    """Return the buffers of a column in Arrow's columnar format, without that of nulls.

    `pa.array` would import pandas where it is installed, which takes longer than a look-up.
    """
    if pa.types.is_integer(stored):
        return [struct.pack(f"={len(parts)}{'i' if stored == pa.int32() else 'q'}", *parts)]
    cells = [part.encode() if isinstance(part, str) else cast(bytes, part) for part in parts]
    if pa.types.is_fixed_size_binary(stored):
        return [b"".join(cells)]
    ends = accumulate(map(len, cells))
    return [struct.pack(f"={len(cells) + 1}i", 0, *ends), b"".join(cells)]


def key_scalar(part: KeyPart, kind: FieldType) -> Scalar:
    """Return a key part as a scalar of the Arrow type of `kind`. Requires: it fits it."""
    value: Scalar = key_column([part], kind)[0]
    return value


def statistics_part(raw: int | bytes, field: Field) -> KeyPart:
    """Return the key part of a raw minimum or maximum in the Parquet statistics of a column."""
    if field.type is Primitive.STRING and isinstance(raw, bytes):
        return raw.decode()
    return raw
