"""Columns of Arrow, of a Parquet file or a frame, as columns of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, FieldType, Primitive, Schema
from dormouse.schema.type_text import show_type
from dormouse.schema.types import UNITS
from dormouse.sources.cells.casting import can_cast, cast


def check_column_types(found: pa.Schema, schema: Schema, *, of: str) -> None:
    """Check that the columns of an Arrow schema can become those of the table that have their
    names; `of` says in errors what has them.

    Raises:
        RefusedSourceError: one cannot.
    """
    for column in found:
        field = schema.field_named(column.name)
        if not can_cast(column.type, field.type, field.unit):
            raise RefusedSourceError(
                f"column {column.name!r} is {column.type} in {of}; "
                f"the table wants {show_type(field.type)}",
                hint=_hint(column.type, field.type),
            )


def caster(field: Field) -> Callable[[Array], Array]:
    """Return the function that casts the cells of a field."""
    return partial(cast, kind=field.type, unit=field.unit)


def _hint(found: pa.DataType, wanted: FieldType) -> str:
    if pa.types.is_floating(found) and wanted in (Primitive.INT, Primitive.LONG):
        return "pandas makes floats of whole numbers beside nulls: read the column as Int64 there"
    units = [unit for unit, counts in UNITS.items() if wanted in counts]
    if not units or not pa.types.is_integer(found):
        return ""
    return f'numbers need a unit: set the column\'s "unit" in the schema ({", ".join(units)})'
