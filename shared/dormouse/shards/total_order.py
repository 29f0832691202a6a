"""A total order of the cells of any type, in which only equal cells are alike.

Floating numbers are ordered by their bits as IEEE 754 orders all of them: -NaN, -inf, …, -0.0,
0.0, …, inf, NaN. So which of several cells is least never depends on the order they come in.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.shards.arrow import Array

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def ordered(column: Array) -> Array:
    """Give a column that Arrow sorts, groups and compares as the order says; not nested ones."""
    bits = _BITS.get(column.type)
    return column if bits is None else _swapped(column.view(bits))


def restored(column: Array, kind: pa.DataType) -> Array:
    """Give the cells that `ordered` made `column` of; whole numbers beyond `kind` wrap around."""
    if kind in _BITS:
        return _swapped(column).view(kind)
    return column if column.type == kind else column.cast(kind, safe=False)


def comparable(column: Array) -> Array:
    """Give a column that Arrow sorts, of a column of any type; slow for nested ones.

    In those, NaNs are alike, whatever their bits.
    """
    if not pa.types.is_nested(column.type):
        return ordered(column)
    # times as numbers: Arrow's years go beyond those of Python
    plain: Any = column.cast(_plain(column.type))
    cells = plain.to_pylist()
    return pa.array([None if cell is None else repr(cell) for cell in cells], pa.string())


def _swapped(bits: Array) -> Array:
    """Turn the order of negative numbers, which is that of their magnitudes, around, or back."""
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
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind
