"""Ingested CSV files → batches of the table.

The first line names the columns, in any order. A cell left empty is null; ``""`` is empty text.
Times are ISO 8601 (UTC without a zone) or microseconds since 1970, dates ISO 8601 or days since
1970, bytes are base64, lists, maps and structs are JSON.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dormouse.errors import RefusedSourceError
from dormouse.model.schema import DecimalType, Field, FieldType, Primitive, Schema
from dormouse.shards.arrow import Array, arrow_schema, arrow_type, nulls
from dormouse.shards.casting import check_columns, check_nulls, convert
from dormouse.shards.decimals import decimals
from dormouse.shards.json_cells import cell_decoder, column

_NUMBER = r"^-?[0-9]+$"
_QUOTED_LINE = re.compile(r"(Expected \d+ columns, got \d+).*", re.DOTALL)
"""How Arrow quotes a line that has too many cells, or too few."""
BLOCK_BYTES = 4 * 1024 * 1024
"""How much of a file is parsed at once; no line can be longer."""


def read_csv(file: BinaryIO, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of a CSV file.

    Raises:
        RefusedSourceError: it is damaged, or its columns or values are not the table's.
    """
    text = {f.name: pa.string() for f in schema.fields}
    try:
        reader = csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=text,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        check_columns(reader.schema.names, schema)
        row = 1
        for batch in reader:
            yield _converted(batch, schema, row)
            row += batch.num_rows
    except UnicodeDecodeError as error:
        raise RefusedSourceError("the names of the CSV file's columns are not UTF-8") from error
    except pa.ArrowException as error:
        reason = _QUOTED_LINE.sub(r"\1", str(error))
        raise RefusedSourceError(f"the CSV file cannot be read: {reason}") from error


def _converted(batch: pa.RecordBatch, schema: Schema, first_row: int) -> pa.RecordBatch:
    columns = [_column(batch, field, first_row) for field in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _column(batch: pa.RecordBatch, field: Field, first_row: int) -> Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return nulls(batch.num_rows, field.type)
    cells = batch.column(at)
    check_nulls(cells, field, first_row)
    return convert(cells, field, first_row, _parser(field.type))


def _parser(kind: FieldType) -> Callable[[Array], Array]:
    match kind:
        case Primitive.BYTES:
            return _bytes
        case Primitive.FLOAT | Primitive.DOUBLE:
            return lambda cells: _floats(cells, arrow_type(kind))
        case Primitive.TIMESTAMP:
            return _times
        case Primitive.DATE:
            return _dates
        case DecimalType():
            return lambda cells: decimals(cells, kind)
        case Primitive():
            return lambda cells: cells.cast(arrow_type(kind))
        case _:
            decode = cell_decoder(kind).decode
            return lambda cells: column(
                [None if cell is None else decode(cell) for cell in cells.to_pylist()], kind
            )


def _bytes(cells: Array) -> Array:
    try:
        return pa.array(
            [None if c is None else base64.b64decode(c, validate=True) for c in cells.to_pylist()],
            pa.binary(),
        )
    except binascii.Error as error:
        raise ValueError(f"bytes are written in base64: {error}") from error


def _floats(cells: Array, kind: pa.DataType) -> Array:
    numbers = cells.cast(kind)
    meant = pc.match_substring_regex(cells, r"(?i)^[+-]?inf(inity)?$")
    if pc.any(pc.and_not(pc.is_inf(numbers), meant)).as_py():
        raise ValueError(f"the number is too large for {kind}")
    return numbers


def _dates(cells: Array) -> Array:
    kind = arrow_type(Primitive.DATE)
    numeric = pc.match_substring_regex(cells, _NUMBER)
    if not pc.any(numeric).as_py():
        return cells.cast(kind)
    days = pc.if_else(numeric, cells, None).cast(pa.int32()).cast(kind)
    return pc.coalesce(days, pc.if_else(numeric, None, cells).cast(kind))


def _times(cells: Array) -> Array:
    kind = arrow_type(Primitive.TIMESTAMP)
    numeric = pc.match_substring_regex(cells, _NUMBER)
    if pc.any(numeric).as_py():
        numbers = pc.if_else(numeric, cells, None).cast(pa.int64()).cast(kind)
        return pc.coalesce(numbers, _times(pc.if_else(numeric, None, cells)))
    zoned = pc.match_substring_regex(cells, r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    dated = pc.match_substring_regex(cells, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    suffix = pc.if_else(zoned, "", pc.if_else(dated, "T00:00:00Z", "Z"))
    times: Array = pc.binary_join_element_wise(cells, suffix, "").cast(kind)
    return times
