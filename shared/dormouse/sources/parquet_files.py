"""Read ingested Parquet files as batches of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, FieldType, Schema
from dormouse.schema.types import UNITS
from dormouse.sources.casting import (
    can_cast,
    cast,
    check_file_columns,
    convert_batch,
    type_name,
)
from dormouse.sources.parquet_batches import batch_rows, open_parquet


def read_parquet(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; its columns may have narrower types than the table's.

    Raises:
        RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    try:
        with open_parquet(local) as file:
            _check_types(file.schema_arrow, schema)
            place, row = _Rows(file.metadata), 0
            # one thread: the consumer of the batches works at the same time
            for batch in file.iter_batches(batch_rows(local, file), use_threads=False):
                yield convert_batch(batch, schema, partial(place, row), _caster)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _check_types(found: pa.Schema, schema: Schema) -> None:
    check_file_columns(found.names, schema)
    for column in found:
        field = schema.field_named(column.name)
        if not can_cast(column.type, field.type, field.unit):
            raise RefusedSourceError(
                f"column {column.name!r} is {column.type} in the file; "
                f"the table wants {type_name(field.type)}",
                hint=_hint(column.type, field.type),
            )


def _hint(found: pa.DataType, wanted: FieldType) -> str:
    units = [unit for unit, counts in UNITS.items() if counts is wanted]
    if not units or not pa.types.is_integer(found):
        return ""
    return f'numbers need a unit: set the column\'s "unit" in the schema ({", ".join(units)})'


class _Rows:
    """Finds the row group of a file that contains a row; messages count both from 1."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata

    def __call__(self, first: int, row: int) -> str:
        at = first + row
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            if at < rows:
                return f"row {first + row + 1}, which is row {at + 1} of row group {number + 1}"
            at -= rows
        return f"row {first + row + 1}"


def _caster(field: Field) -> Callable[[Array], Array]:
    return partial(cast, kind=field.type, unit=field.unit)
