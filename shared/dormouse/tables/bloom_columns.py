"""The columns of a table whose shards have Bloom filters, as the property `bloom_columns` says."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.type_text import show_type
from dormouse.schema.types import FILTERED, Primitive
from dormouse.tables.properties import Properties


def bloom_columns(schema: Schema, properties: Properties) -> tuple[str, ...]:
    """Parse and check the property `bloom_columns`; return the names, each once.

    Raises:
        InvalidRequestError: a column is unknown, or its type can have no filter.
    """
    named = [name.strip() for name in properties.bloom_columns.split(",")]
    found = tuple(dict.fromkeys(name for name in named if name))
    for name in found:
        field = next((field for field in schema.fields if field.name == name), None)
        if field is None:
            raise InvalidRequestError(
                f"bloom_columns: the table has no column {name!r}",
                hint="its columns are " + ", ".join(field.name for field in schema.fields),
            )
        if field.type not in FILTERED:
            raise InvalidRequestError(
                f"bloom_columns: {name} is {show_type(field.type)}, which can have no Bloom filter",
                hint="these types can: "
                + ", ".join(show_type(kind) for kind in Primitive if kind in FILTERED),
            )
    return found
