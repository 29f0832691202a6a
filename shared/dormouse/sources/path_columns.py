"""Read columns whose values are in the names of folders, as Hive and Spark write them.

The rows of ``carrier=AA/part-0.parquet`` have `AA` in the column `carrier`. Only names of the
table's columns count. The text is a value as in CSV, with ``%`` escapes; Spark's name for null is
null. Where the file has values of the column itself, they must be the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_schema, nulls
from dormouse.errors import RefusedSourceError
from dormouse.schema.columns import FoundColumn
from dormouse.schema.schema import Field, Schema
from dormouse.schema.type_text import show_type
from dormouse.sources.cells.casting import describe_without_values
from dormouse.sources.cells.text_cells import text_parser
from dormouse.sources.inferring.inferred_text import TextColumn

NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for null."""


def named_folders(key: str) -> list[tuple[str, str]]:
    """Return the names and values of the folders of a path that are written ``name=value``."""
    pairs = (folder.partition("=") for folder in key.split("/")[:-1])
    return [(unquote(name), unquote(text)) for name, equals, text in pairs if name and equals]


def folder_prefix(path: Path) -> str:
    """Return those of a folder's own names that are written ``name=value``, as a key has them."""
    return "".join(f"{part}/" for part in path.parts if part.find("=") > 0)


def path_values(key: str, schema: Schema) -> dict[str, Array]:
    """Return the value, as a column of one row, that each column of the table gets from a key.

    Raises:
        RefusedSourceError: it is no value of the column's type, or folders contradict each other.
    """
    fields = {field.name: field for field in schema.fields}
    texts: dict[str, str] = {}
    for name, text in named_folders(key):
        if name in fields and texts.setdefault(name, text) != text:
            raise RefusedSourceError(f"two folders of the file give column {name!r} other values")
    return {name: _value(fields[name], text) for name, text in texts.items()}


def _value(field: Field, text: str) -> Array:
    parse = text_parser(field)
    if parse is None:
        raise RefusedSourceError(
            f"the folder of column {field.name!r} gives it a value, and it is a "
            f"{show_type(field.type)}",
            hint="only columns of single values can be in the names of folders",
        )
    if text == NULL:
        if not field.nullable:
            raise RefusedSourceError(
                f"the folder of column {field.name!r} says null, and the column cannot be null"
            )
        return nulls(1, field.type)
    try:
        return parse(pa.array([text]))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise RefusedSourceError(
            f"the folder of column {field.name!r} gives no {show_type(field.type)}",
            hint=describe_without_values(error, field.type),
        ) from error


def without_required(schema: Schema, names: Mapping[str, object]) -> Schema:
    """Return the schema for readers of files that may lack these columns, which may be keys."""
    read = copy.copy(schema)  # unchecked: a key is never nullable in a table
    for part in ("row_keys", "sort_keys", "values"):
        fields = (replace(f, nullable=f.nullable or f.name in names) for f in getattr(schema, part))
        object.__setattr__(read, part, tuple(fields))
    return read


def with_path_values(
    batches: Iterator[pa.RecordBatch], schema: Schema, values: Mapping[str, Array]
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the values of the path in their columns.

    Raises:
        RefusedSourceError: a row has another value there.
    """
    whole, before = arrow_schema(schema), 0
    for batch in batches:
        columns = list(batch.columns)
        for name, value in values.items():
            at = whole.get_field_index(name)
            _check_same(columns[at], value, before, name)
            columns[at] = pc.take(value, pa.array([0] * batch.num_rows, pa.int64()))
        yield pa.RecordBatch.from_arrays(columns, schema=whole)
        before += batch.num_rows


def _check_same(column: Array, value: Array, before: int, name: str) -> None:
    """Check that a column has no other value than that of a path; nulls are filled by it."""
    if column.null_count == len(column):
        return
    same: Array = column.is_null() if value.null_count else pc.equal(column, value[0])
    filled: Any = pc.call_function("coalesce", [same, pa.scalar(True)])
    row = pc.index(filled, False).as_py()
    if row >= 0:
        raise RefusedSourceError(
            f"row {before + row + 1}, column {name!r}: the value is not that of the file's folder",
            hint=f"rename the folder, or drop the column {name!r} from the file",
        )


def infer_path_columns(local: Path, known: set[str]) -> Iterator[FoundColumn]:
    """Yield the columns that the names of a file's folders add to those that it has.

    Their types read the names of all folders beside them.
    """
    for folder in reversed(local.parents):
        for name, _ in named_folders(f"{folder.name}/"):
            if name in known:
                continue
            known.add(name)
            beside = (path.name for path in folder.parent.iterdir() if path.is_dir())
            texts = [
                text for each in beside for own, text in named_folders(f"{each}/") if own == name
            ]
            column = TextColumn()
            column.see(pa.array([None if text == NULL else text for text in texts], pa.string()))
            found = column.found(name)
            yield replace(found, found=f"{found.found}, of folders")
