"""Ingested JSON lines → batches of the table: one object on each line, in UTF-8.

A column that may be null may be absent from an object. `json_cells` says how values are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.schema import Field, Schema
from dormouse.shards.arrow import Array, arrow_schema
from dormouse.shards.casting import check_columns, type_name, unquoting
from dormouse.shards.json_cells import cell_decoder, column

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 16 * 1024 * 1024
LINE_BYTES = 16 * 1024 * 1024
"""How long a line may be: of all that is read of a file it alone has no bound of its own."""
_NULL = msgspec.Raw(b"null")
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

Row = tuple[int, dict[str, msgspec.Raw]]


def read_json_lines(file: BinaryIO, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of a file of JSON lines; blank lines are skipped.

    Raises:
        RefusedSourceError: a line is no JSON object, or its names or values are not the table's.
    """
    rows: list[Row] = []
    held_bytes = 0
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
        if len(line) > LINE_BYTES:
            raise RefusedSourceError(f"line {number} is longer than {LINE_BYTES:,} bytes")
        if line.isspace():
            continue
        rows.append((number, _object(number, line)))
        held_bytes += len(line)
        if len(rows) == BATCH_ROWS or held_bytes >= BATCH_BYTES:
            yield _batch(rows, schema)
            rows, held_bytes = [], 0
    if rows:
        yield _batch(rows, schema)


def _object(number: int, line: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _objects.decode(line)
    except RecursionError as error:
        raise RefusedSourceError(f"line {number} is nested too deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedSourceError(
            f"line {number} is not a JSON object: {error}", hint="each line holds one object"
        ) from error


def _batch(rows: list[Row], schema: Schema) -> pa.RecordBatch:
    names = {f.name for f in schema.fields}
    for number, row in rows:
        if not row.keys() <= names:
            try:
                check_columns(list(row), schema, of="the line")
            except RefusedSourceError as error:
                raise RefusedSourceError(f"line {number}: {error}", hint=error.hint) from error
    columns = [_column(rows, field) for field in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _column(rows: list[Row], field: Field) -> Array:
    decode = cell_decoder(field.type).decode
    values: list[object] = []
    for number, row in rows:
        try:
            value = decode(row.get(field.name, _NULL))
        except RecursionError as error:
            raise _refused(number, field, "it is nested too deep") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _refused(number, field, unquoting(error, field.type)) from error
        if value is None and not field.nullable:
            raise _refused(number, field, "there is no value, and the column cannot be null")
        values.append(value)
    try:
        return column(values, field.type)
    except (pa.ArrowException, ValueError, OverflowError):
        for (number, _), value in zip(rows, values, strict=True):
            try:
                column([value], field.type)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                reason = f"the value does not fit: {unquoting(error, field.type)}".rstrip(": ")
                raise _refused(number, field, reason) from error
        raise


def _refused(number: int, field: Field, reason: str) -> RefusedSourceError:
    return RefusedSourceError(
        f"line {number}, column {field.name!r} ({type_name(field.type)}): {reason}"
    )
