"""A total order of the cells of every type, and their equality.

Floats are ordered as conditions compare them: -inf, …, 0.0, …, inf, NaN. -0.0 equals 0.0, and all
NaNs are equal. Equal cells are ordered by their bits, so that choosing one of several equal cells
never depends on the order of the input, and returns one of them bit by bit.

The bits of a float, read as an integer, are already in the right order for positive numbers.
Negative numbers are in reverse order, because the sign is stored apart from the magnitude, and NaNs
with a sign come first. `to_sortable` inverts the magnitude of negative numbers, and shifts the
integers so that the NaNs with a sign wrap around to the end.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array

_BITS: dict[Any, Any] = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_NEGATIVE_NANS: dict[Any, int] = {pa.float32(): 2**23 - 1, pa.float64(): 2**52 - 1}
"""The number of NaNs with a sign bit: by their bits, they precede all other floats."""


def to_sortable(column: Array) -> Array:
    """Return a column, not nested, that Arrow sorts and compares in this order.

    Cells that differ in their bits stay different; equal cells become neighbours.
    """
    kind = column.type
    bits = _BITS.get(kind)
    if bits is None:
        return column
    by_bits = _swapped(column.view(bits))
    # the subtraction wraps around, which moves NaNs with a sign after all other NaNs
    wrapped: Array = pc.subtract(by_bits, pa.scalar(_NEGATIVE_NANS[kind], bits))
    return wrapped


def from_sortable(column: Array, kind: pa.DataType) -> Array:
    """Return the cells from which `to_sortable` made `column`; integers beyond
    the range of `kind` wrap around.
    """
    bits = _BITS.get(kind)
    if bits is not None:
        by_bits: Array = pc.add(column, pa.scalar(_NEGATIVE_NANS[kind], bits))
        return _swapped(by_bits).view(kind)
    return column if column.type == kind else column.cast(kind, safe=False)


def canonical(column: Array) -> Array:
    """Return a column, not nested, in which equal cells have equal bits."""
    kind = column.type
    if kind not in _BITS:
        return column
    positive = pc.add(column, pa.scalar(0.0, kind))
    one: Array = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), positive)
    return one


def sort_columns(column: Array) -> list[Array]:
    """Return columns by which Arrow sorts a column of any type; slow for nested types.

    Equal cells are equal in all of them except the last, which is equal only for identical cells.
    """
    if not pa.types.is_nested(column.type):
        exact = to_sortable(column)
        return [exact] if column.type not in _BITS else [to_sortable(canonical(column)), exact]
    # times as numbers: Arrow's range of years is larger than Python's
    plain: Any = column.cast(_plain(column.type))
    cells = plain.to_pylist()
    return [
        pa.array([None if cell is None else repr(shown(cell)) for cell in cells], pa.string())
        for shown in (_unified_cell, _exact_cell)
    ]


def _unified_cell(cell: object) -> object:
    if isinstance(cell, float):
        return math.nan if math.isnan(cell) else cell + 0.0
    return _of_parts(cell, _unified_cell)


def _exact_cell(cell: object) -> object:
    return struct.pack(">d", cell) if isinstance(cell, float) else _of_parts(cell, _exact_cell)


def _of_parts(cell: object, shown: Callable[[object], object]) -> object:
    if isinstance(cell, list | tuple):
        return [shown(part) for part in cell]
    return {k: shown(v) for k, v in cell.items()} if isinstance(cell, dict) else cell


def _swapped(bits: Array) -> Array:
    """Invert the magnitude of negative numbers, which reverses their order;
    applied twice, it restores them.
    """
    magnitude = pa.scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    negative = pc.less(bits, pa.scalar(0, bits.type))
    swapped: Array = pc.if_else(negative, pc.bit_wise_xor(bits, magnitude), bits)
    return swapped


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.MapType):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if isinstance(kind, pa.ListType):
        return pa.list_(_plain(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind
