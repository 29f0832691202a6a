"""Find the columns of a shard by the ids of the table's fields, because the
schema may have changed since.

A shard has the columns that the table had when the shard was written, with the names of that time.
The ids of the fields are stored in the file as Parquet field ids. Names do not identify a column: a
name may have been dropped and used again for another column.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import arrow_schema
from dormouse.errors import UnavailableError
from dormouse.schema.schema import Field, Schema

_FIELD_ID = b"PARQUET:field_id"


def stored_schema(schema: Schema) -> pa.Schema:
    """Return ``arrow_schema(schema)`` with the field ids that are stored in Parquet files, for
    nested fields too.
    """
    return pa.schema(
        [
            _with_ids(column, iter((field.id, *field.nested_ids)))
            for column, field in zip(arrow_schema(schema), schema.fields, strict=True)
        ]
    )


def _with_ids(field: pa.Field[Any], ids: Iterator[int]) -> pa.Field[Any]:
    """Return an Arrow field with the next id as its own, and the ids after it for its parts."""
    own: dict[bytes | str, bytes | str] = {_FIELD_ID: str(next(ids)).encode()}
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, ids))
    elif pa.types.is_map(kind):
        key = _with_ids(kind.key_field, ids)
        kind = pa.map_(key, _with_ids(kind.item_field, ids))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_ids(member, ids) for member in kind])
    return field.with_type(kind).with_metadata(own)


def present_fields(ids: Container[int], fields: Iterable[Field]) -> list[Field]:
    """Return the `fields` that a shard has, whose columns are of the fields `ids`.

    A field that the shard lacks was added to the table later: it is null in all rows of the shard.

    Raises:
        UnavailableError: the shard lacks a field that cannot be null: it was dropped from the table
            after the schema was read.
    """
    present = []
    for field in fields:
        if field.id in ids:
            present.append(field)
        elif not field.nullable:
            raise UnavailableError(
                f"column {field.name!r} (id {field.id}) was dropped while the table was read",
                hint="try again; the table's current schema is used then",
            )
    return present


def stored_names(names: Mapping[int, str], fields: Iterable[Field]) -> dict[str, str]:
    """Return the names that those of `fields` that a shard has have there, by their names in the
    table. `names` are the names of the shard's columns by field id.
    """
    return {field.name: names[field.id] for field in present_fields(names, fields)}
