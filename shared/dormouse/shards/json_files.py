"""Ingested JSON lines → batches of the table: one object on each line, in UTF-8.

A column that may be null may be absent from an object. `json_cells` says how values are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.schema import Field, Schema
from dormouse.shards.arrow import Array, arrow_schema
from dormouse.shards.casting import check_columns, convert, refused
from dormouse.shards.csv_structure import without_mark
from dormouse.shards.json_cells import check_names, json_column

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 16 * 1024 * 1024
LINE_BYTES = 16 * 1024 * 1024
"""How long a line may be: of all that is read of a file it alone has no bound of its own."""
_NULL = b"null"
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Row(NamedTuple):
    """One line that is not blank: its number, its bytes, and the values in it by name."""

    number: int
    line: bytes
    cells: dict[str, msgspec.Raw]


def read_json_lines(file: BinaryIO, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of JSON lines; blank lines are skipped.

    Raises:
        RefusedSourceError: a line is no JSON object, or its names or values are not the table's.
    """
    rows: list[Row] = []
    held_bytes = 0
    for number, line in _lines(file):
        rows.append(Row(number, line, _object(number, line)))
        held_bytes += len(line)
        if len(rows) == BATCH_ROWS or held_bytes >= BATCH_BYTES:
            yield _batch(rows, schema)
            rows, held_bytes = [], 0
    if rows:
        yield _batch(rows, schema)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
        if len(line) > LINE_BYTES:
            raise RefusedSourceError(f"line {number} is longer than {LINE_BYTES:,} bytes")
        text = without_mark(line) if number == 1 else line
        if text and not text.isspace():
            yield number, text


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
    for row in rows:
        if not row.cells.keys() <= names:
            try:
                check_columns(list(row.cells), schema, of="the line")
            except RefusedSourceError as error:
                raise RefusedSourceError(f"line {row.number}: {error}", hint=error.hint) from error
    raws = {field.name: _raws(rows, field) for field in schema.fields}
    columns = [_column(raws[field.name], rows, field) for field in schema.fields]
    _check_twice(rows, raws)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _raws(rows: list[Row], field: Field) -> list[bytes | None]:
    found = [row.cells.get(field.name) for row in rows]
    raws = [None if raw is None else bytes(raw) for raw in found]
    return [None if raw == _NULL else raw for raw in raws]


def _column(raws: list[bytes | None], rows: list[Row], field: Field) -> Array:
    def place(row: int) -> str:
        return f"line {rows[row].number}"

    if not field.nullable and None in raws:
        reason = "there is no value, and the column cannot be null"
        raise refused(place(raws.index(None)), field, reason)
    return convert(raws, field, place, lambda raws: json_column(raws, field))


def _check_twice(rows: list[Row], raws: dict[str, list[bytes | None]]) -> None:
    """Check that no object has a name twice, of which the decoder would keep the last.

    If none has, there is one colon for each name, besides those in values; where there are more, a
    look at the names decides.
    """
    found = sum(row.line.count(b":") for row in rows)
    values = (b"".join(filter(None, column)) for column in raws.values())
    if found == sum(len(row.cells) for row in rows) + sum(text.count(b":") for text in values):
        return
    for row in rows:
        try:
            check_names(row.line)
        except ValueError as error:
            raise RefusedSourceError(f"line {row.number}: {error}") from error
