"""Columns of a shard found by the ids of the table's fields: its schema may have changed since.

A shard has the columns the table had when it was written, under the names they had then. Their ids
are in the file as Parquet field ids. Names say nothing: one may have been dropped and given again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.errors import UnavailableError
from dormouse.schema.schema import Field, Schema

_FIELD_ID = b"PARQUET:field_id"


def stored_schema(schema: Schema) -> pa.Schema:
    """Return ``arrow_schema(schema)`` with the ids which Parquet files are to have."""
    return pa.schema(
        [
            column.with_metadata({_FIELD_ID: str(field.id).encode()})
            for column, field in zip(arrow_schema(schema), schema.fields, strict=True)
        ]
    )


def names_by_id(metadata: pq.FileMetaData) -> dict[int, str]:
    """Return the names of a shard's columns, by the ids of their fields."""
    return {
        int(column.metadata[_FIELD_ID]): column.name
        for column in metadata.schema.to_arrow_schema()
        if column.metadata and _FIELD_ID in column.metadata
    }


def stored_names(names: Mapping[int, str], fields: Iterable[Field]) -> dict[str, str]:
    """Return the names that some columns of a table have in a shard, by their names in the table.

    A column that is not there was added later: it is null in all rows of the shard.

    Raises:
        UnavailableError: a column is not there that cannot be null: the table lost it since its
            schema was looked up.
    """
    stored = {}
    for field in fields:
        if field.id in names:
            stored[field.name] = names[field.id]
        elif not field.nullable:
            raise UnavailableError(
                f"column {field.name!r} (id {field.id}) was dropped while the table was read",
                hint="try again, with the schema the table has now",
            )
    return stored


def rename_columns(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return the columns of a shard's batch under the names of the table: the keys of `names`."""
    columns = [batch.column(stored) for stored in names.values()]
    return pa.RecordBatch.from_arrays(columns, names=list(names))
