"""Columns of foreign Arrow types as plain ones, at any depth, with every value kept.

Arrow 26 has no kernels for some of these types (it neither decodes nor casts a dictionary of
`string_view`), and breaks others (a list view with a null, cast to a list, shifts what follows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array

LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, *LIST_VIEWS)
_PACKED = (pa.DictionaryType, pa.RunEndEncodedType, pa.BaseExtensionType, *LIST_VIEWS)


def plain(column: Array) -> Array:
    """Return a column without dictionaries, run ends, views of lists and extension types."""
    return rebuilt(column, _unpacked) if _is_packed(column.type) else column


def leaves(column: Array) -> Iterator[Array]:
    """Yield the columns of single values in a plain column, without those of null lists."""
    found: Any = column
    if isinstance(column.type, pa.MapType):
        found = _entries(column)
    if isinstance(found.type, pa.StructType):
        for child in found.flatten():
            yield from leaves(child)
    elif isinstance(found.type, LISTS):
        yield from leaves(found.flatten())
    else:
        yield found


def rebuilt(column: Array, replace: Callable[[Array], Array]) -> Array:
    """Return a column of the same lists, maps and structs, with the columns of single values in it
    replaced in their order.
    """
    found: Any = column
    match column.type:
        case pa.StructType():
            parts = [rebuilt(child, replace) for child in found.flatten()]
            names = [field.name for field in found.type]
            fields = [pa.field(name, p.type) for name, p in zip(names, parts, strict=True)]
            return cast(Array, pa.StructArray.from_arrays(parts, fields=fields, mask=_nulls(found)))
        case pa.MapType():
            lists: Any = rebuilt(_entries(column), replace)
            keys, items = lists.values.flatten()
            return cast(
                Array, pa.MapArray.from_arrays(lists.offsets, keys, items, mask=_nulls(found))
            )
        case kind if isinstance(kind, LISTS):
            items = rebuilt(found.flatten(), replace)  # without those of null lists
            return cast(Array, pa.ListArray.from_arrays(_offsets(found), items, mask=_nulls(found)))
        case _:
            return replace(column)


def _is_packed(kind: pa.DataType) -> bool:
    if isinstance(kind, _PACKED):
        return True
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return any(_is_packed(part) for part in parts)


def _unpacked(column: Array) -> Array:
    found: Any = column
    match column.type:
        case pa.DictionaryType(value_type=kind):
            values = found.dictionary
            if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
                values = values.cast(pa.string() if kind == pa.string_view() else pa.binary())
            return plain(values).take(found.indices)
        case pa.RunEndEncodedType():
            return plain(pc.call_function("run_end_decode", [found]))
        case pa.BaseExtensionType():
            return plain(found.storage)
        case _:
            return column


def _entries(column: Any) -> Array:
    """Return a map as a list of structs; what the slice does not have is not in it."""
    keys, items = column.type.key_field, column.type.item_field
    return cast(Array, column.cast(pa.list_(pa.struct([keys, items]))))


def _offsets(column: Any) -> pa.Int32Array:
    lengths = pc.coalesce(pc.list_value_length(column).cast(pa.int32()), pa.scalar(0, pa.int32()))
    ends = pc.call_function("cumulative_sum_checked", [lengths])
    return cast(pa.Int32Array, pa.concat_arrays([pa.array([0], pa.int32()), ends]))


def _nulls(column: Array) -> Array | None:
    return column.is_null() if column.null_count else None
