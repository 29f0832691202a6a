"""Ingested Parquet files → batches of the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.schema import Field, Schema
from dormouse.shards.arrow import Array, arrow_schema, nulls
from dormouse.shards.casting import (
    can_cast,
    cast,
    check_columns,
    check_nulls,
    convert,
    type_name,
)
from dormouse.shards.parquet_batches import batch_rows, open_parquet


def read_parquet(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of a Parquet file; its columns may be of narrower types than the table's.

    Raises:
        RefusedSourceError: it is damaged, or its columns or values are not the table's.
    """
    try:
        with open_parquet(local) as file:
            _check_types(file.schema_arrow, schema)
            row = 1
            # one thread: whoever takes the batches is busy with them meanwhile
            for batch in file.iter_batches(batch_rows(local, file), use_threads=False):
                yield _converted(batch, schema, row)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _check_types(found: pa.Schema, schema: Schema) -> None:
    check_columns(found.names, schema)
    for column in found:
        wanted = schema.field_named(column.name).type
        if not can_cast(column.type, wanted):
            raise RefusedSourceError(
                f"column {column.name!r} is {column.type} in the file; "
                f"the table wants {type_name(wanted)}"
            )


def _converted(batch: pa.RecordBatch, schema: Schema, first_row: int) -> pa.RecordBatch:
    columns = [_column(batch, field, first_row) for field in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _column(batch: pa.RecordBatch, field: Field, first_row: int) -> Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return nulls(batch.num_rows, field.type)
    column = batch.column(at)
    check_nulls(column, field, first_row)
    return convert(column, field, first_row, lambda cells: cast(cells, field.type))
