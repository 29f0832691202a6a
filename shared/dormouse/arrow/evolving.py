"""The columns of a shard as the table has them now: a shard keeps the types of its time.

Types have widened since, and members of structs were added, dropped and renamed
(`schema.evolution`). Parts are found by their ids: what was added later is null.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import Array, arrow_type, nulls
from dormouse.errors import InvalidRequestError, UnavailableError
from dormouse.schema.evolution import becomes, is_same, parts_of
from dormouse.schema.schema import Field
from dormouse.schema.types import ListType, MapType, StructType, show_type


def becoming(stored: Field, current: Field) -> Field:
    """Return a field as a shard has it, whose values become those of the same field in the table.
    Raises UnavailableError: they do not: the shard was written by a later schema.
    """
    if not becomes(stored, current):
        raise UnavailableError(
            f"column {current.name!r} became {show_type(stored.type)} while the table was read",
            hint="try again; the table's current schema is used then",
        )
    return stored


def evolved_rows(
    batch: pa.RecordBatch, stored: Mapping[str, Field], fields: Sequence[Field]
) -> pa.RecordBatch:
    """Return those of `fields` that a batch of a shard has, under their present names and in their
    present types. The columns of the batch are `stored`, in this order, by their present names.
    """
    by_name = {field.name: field for field in fields}
    columns = [
        evolved(column, then, by_name[name])
        for column, (name, then) in zip(batch.columns, stored.items(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(stored))


def evolved(column: Array, stored: Field, current: Field) -> Array:
    """Return a column of a shard in its field's type now. Raises InvalidRequestError."""
    if is_same(stored, current):
        return column
    match current.type:
        case ListType() | MapType():
            return _evolved_entries(column, stored, current)
        case StructType():
            return _evolved_struct(column, stored, current)
    try:
        return column.cast(arrow_type(current.type))
    except pa.ArrowInvalid:  # the message quotes the value
        raise unfit_time() from None


def unfit_time() -> InvalidRequestError:
    """Return the error that nanoseconds cannot hold a time of an earlier type."""
    return InvalidRequestError(
        "a stored time is not in the years 1677 to 2262, which the nanoseconds that its column has "
        "now can hold",
        hint="it is of a version from before the alteration, or was ingested during it: restore "
        "the version before, or read other columns",
    )


def _evolved_entries(column: Any, stored: Field, current: Field) -> Array:
    """Return a column of lists or maps with other entries, which stay where they are."""
    pairs = zip(parts_of(stored), parts_of(current), strict=True)
    if isinstance(current.type, ListType):
        ((then, now),) = pairs
        entries = evolved(column.values, then, now)
        kind: pa.DataType = pa.list_(entries.type)
    else:
        both = zip((column.keys, column.items), pairs, strict=True)
        keys, items = (evolved(cells, then, now) for cells, (then, now) in both)
        fields = [pa.field("key", keys.type, nullable=False), pa.field("value", items.type)]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        kind = pa.map_(keys.type, items.type)
    result: Array = pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], column.null_count, column.offset, [entries]
    )
    return result


def _evolved_struct(column: Any, stored: Field, current: Field) -> Array:
    parts_by_id = {part.id: (place, part) for place, part in enumerate(parts_of(stored))}
    cells, parts = [], parts_of(current)
    for part in parts:
        if part.id in parts_by_id:
            place, then = parts_by_id[part.id]
            cells.append(evolved(column.field(place), then, part))
        else:
            cells.append(nulls(len(column), part.type))
    fields = [pa.field(part.name, each.type) for part, each in zip(parts, cells, strict=True)]
    mask = column.is_null() if column.null_count else None
    result: Array = pa.StructArray.from_arrays(cells, fields=fields, mask=mask)
    return result
