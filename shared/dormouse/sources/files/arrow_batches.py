"""Columns of Arrow, of a Parquet file or a frame, as columns of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from dormouse.arrow.inference import VARIANT_AS_TEXT, is_variant
from dormouse.arrow.plain import plain
from dormouse.arrow.types import Array, nulls
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, FieldType, Primitive, Schema
from dormouse.schema.type_text import show_type
from dormouse.schema.types import UNITS
from dormouse.sources.cells.casting import Place, can_cast, cast, convert_batch, unreadable

Converter = Callable[[Field], Callable[[Array], Array]]


def convert_arrow(
    batch: pa.RecordBatch, schema: Schema, place: Place, converter: Converter
) -> pa.RecordBatch:
    """Return a batch of a file or frame as rows of the table; `converter` is of `arrow_converter`.

    Raises:
        RefusedSourceError: a column or a value does not fit the table.
    """
    columns = [
        _plain(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    plain_batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return convert_batch(plain_batch, schema, place, converter)


def arrow_converter(
    found: pa.Schema, schema: Schema, *, of: str, declared: pa.Schema | None = None
) -> Converter:
    """Return what converts the columns of an Arrow schema to those of the table.

    It refuses a column of another type at its first value: a library gives some type to a column
    without values, too. `of` says in errors what has the columns. `declared` is the schema with the
    types that a file names besides those of Arrow; either is good.
    """
    misfits = {}
    for field in schema.fields:
        at = found.get_field_index(field.name)
        if at < 0:
            continue
        kinds = [found.field(at).type, *([declared.field(at).type] if declared else [])]
        if not any(can_cast(kind, field.type, field.unit) for kind in kinds):
            misfits[field.name] = partial(_misfit, field, kinds[-1], of)

    def converter(field: Field) -> Callable[[Array], Array]:
        def build(column: Array) -> Array:
            if column.null_count == len(column):
                return nulls(len(column), field.type)
            if field.name in misfits:
                raise misfits[field.name]()
            return cast(column, kind=field.type, unit=field.unit)

        return build

    return converter


def _plain(name: str, column: Array) -> Array:
    try:
        return plain(column)
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"column {name!r}, which is {column.type}") from error


def _misfit(field: Field, kind: pa.DataType, of: str) -> RefusedSourceError:
    return RefusedSourceError(
        f"column {field.name!r} is {kind} in {of}; the table wants {show_type(field.type)}",
        hint=_hint(kind, field.type),
    )


def _hint(found: pa.DataType, wanted: FieldType) -> str:
    if isinstance(found, pa.StructType) and is_variant(found):
        return f"that is a VARIANT: {VARIANT_AS_TEXT}"
    if pa.types.is_floating(found) and wanted in (Primitive.INT, Primitive.LONG):
        return (
            "pandas makes floats of whole numbers beside nulls: convert_dtypes() makes Int64 of "
            "them again; beyond 2^53, read the column as Int64"
        )
    units = [unit for unit, counts in UNITS.items() if wanted in counts]
    if not units or not pa.types.is_integer(found):
        return ""
    return f'numbers need a unit: set the column\'s "unit" in the schema ({", ".join(units)})'
