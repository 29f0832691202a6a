"""Read ingested JSON as batches of the table: one object on each line, or one array of objects.

A nullable column may be missing from an object. `json_cells` describes how values are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import DecimalException
from typing import BinaryIO, TypeVar

import msgspec
import pyarrow as pa

from dormouse.arrow.types import Array, arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, Schema
from dormouse.sources.cells.casting import cell_refusal, check_file_columns, convert
from dormouse.sources.cells.json_cells import check_names, json_column
from dormouse.sources.cells.text_cells import exact_number
from dormouse.sources.files.csv_structure import strip_bom
from dormouse.sources.rejects import Finish, Rejects, without_rejected

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 16 * 1024 * 1024
LINE_BYTES = 16 * 1024 * 1024
"""The longest allowed line: no other limit bounds the memory that a line needs."""
ARRAY_BYTES = 64 * 1024 * 1024
"""The largest allowed array, which is read as a whole."""
_NULL = b"null"
_FORM_HINT = "each line holds one object, or the file is one array of objects"
_T = TypeVar("_T")
_array = msgspec.json.Decoder(list[msgspec.Raw])
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(dict[str, object], float_hook=exact_number)


@dataclass(slots=True)
class Rows:
    """Lines that are not blank: their line numbers, their bytes, and their values by name."""

    numbers: list[int]
    lines: list[bytes]
    objects: list[dict[str, msgspec.Raw]]

    def place(self, row: int) -> str:
        """Return the line of the file in which a row is, as text."""
        return f"line {self.numbers[row]}"

    def cells(self, name: str) -> list[bytes | None]:
        """Return the values of one name as written; None where it is missing or null."""
        found = [values.get(name) for values in self.objects]
        cells = [None if cell is None else bytes(cell) for cell in found]
        return [None if cell == _NULL else cell for cell in cells] if _NULL in cells else cells


def read_json_lines(
    file: BinaryIO,
    schema: Schema,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of JSON lines; blank lines are skipped. With `rejects`, lines that
    cannot be read, or that `finish` refuses, are left out.

    Raises:
        RefusedSourceError: a line is not a JSON object, or its names or values do not fit the
            table.
    """
    for lines in _pieces(_lines(file)):

        def convert(
            first: int, end: int, lines: Sequence[tuple[int, bytes]] = lines
        ) -> pa.RecordBatch:
            return finish(_batch(_rows(lines[first:end]), schema))

        if rejects is None:
            yield convert(0, len(lines))
        else:
            yield from without_rejected(lines, convert, rejects)


def _pieces(lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines, as many at a time as become one batch."""
    piece: list[tuple[int, bytes]] = []
    size_bytes = 0
    for number, text in lines:
        piece.append((number, text))
        size_bytes += len(text)
        if len(piece) == BATCH_ROWS or size_bytes >= BATCH_BYTES:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def _rows(lines: Sequence[tuple[int, bytes]]) -> Rows:
    objects = [_object(number, text, _objects) for number, text in lines]
    return Rows([number for number, _ in lines], [text for _, text in lines], objects)


def read_json_objects(
    file: BinaryIO, rejects: Rejects | None = None
) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the line number, the size in bytes and the values of each object in a file of JSON
    lines; numbers that doubles do not hold are decimals. With `rejects`, other lines are left out.

    Raises:
        RefusedSourceError: a line is not a JSON object.
    """
    for number, text in _lines(file):
        try:
            values = _object(number, text, _values)
        except RefusedSourceError as error:
            if rejects is None:
                raise
            rejects.add(number, text, error)
        else:
            yield number, len(text), values


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, or the objects of an array, with the numbers of their
    lines from 1.
    """
    is_first = True
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
        if len(line) > LINE_BYTES:
            raise RefusedSourceError(f"line {number} is longer than {LINE_BYTES:,} bytes")
        text = strip_bom(line) if number == 1 else line
        if text and not text.isspace():
            if is_first and text.lstrip().startswith(b"["):
                yield from _elements(number, text + file.read(ARRAY_BYTES + 1))
                return
            is_first = False
            yield number, text


def _elements(line: int, array: bytes) -> Iterator[tuple[int, bytes]]:
    if len(array) > ARRAY_BYTES:
        raise RefusedSourceError(
            f"the JSON array is larger than {ARRAY_BYTES:,} bytes",
            hint="write one object on each line: jq -c '.[]'",
        )
    try:
        found = _array.decode(array)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedSourceError(
            f"the JSON array from line {line} on cannot be read: {error}", hint=_FORM_HINT
        ) from error
    start = end = 0
    for text in map(bytes, found):
        before, start = start, array.index(text, end)
        line, end = line + array.count(b"\n", before, start), start + len(text)
        yield line, text


def _object(number: int, line: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(line)
    except RecursionError as error:
        raise RefusedSourceError(f"line {number} is nested too deep") from error
    except DecimalException as error:
        raise RefusedSourceError(f"line {number} has a number of an extreme exponent") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedSourceError(
            f"line {number} is not a JSON object: {error}", hint=_FORM_HINT
        ) from error


def _batch(rows: Rows, schema: Schema) -> pa.RecordBatch:
    names = {f.name for f in schema.fields}
    for number, values in zip(rows.numbers, rows.objects, strict=True):
        if not values.keys() <= names:
            try:
                check_file_columns(list(values), schema, of="the line")
            except RefusedSourceError as error:
                raise RefusedSourceError(f"line {number}: {error}", hint=error.hint) from error
    cells = {field.name: rows.cells(field.name) for field in schema.fields}
    columns = [_column(cells[field.name], rows, field) for field in schema.fields]
    _check_twice(rows, cells)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _column(cells: list[bytes | None], rows: Rows, field: Field) -> Array:
    if not field.nullable and None in cells:
        reason = "there is no value, and the column cannot be null"
        raise cell_refusal(rows.place(cells.index(None)), field, reason)
    return convert(cells, field, rows.place, lambda cells: json_column(cells, field))


def _check_twice(rows: Rows, cells: dict[str, list[bytes | None]]) -> None:
    """Check that no object has a name twice; the decoder would silently keep the last value.

    A line has one colon for each name, and the colons in its values. Only if there are more colons
    than that, the names of each line are decoded and compared.
    """
    names = sum(map(len, rows.objects))
    within = sum(b"".join(filter(None, column)).count(b":") for column in cells.values())
    if b"".join(rows.lines).count(b":") == names + within:
        return
    for number, line in zip(rows.numbers, rows.lines, strict=True):
        try:
            check_names(line)
        except ValueError as error:
            raise RefusedSourceError(f"line {number}: {error}") from error
