"""Read ingested CSV and JSON files as batches of the table.

The first record of CSV names the columns, in any order, unless the table's properties say that
there is no header. An empty field is null; ``""`` is empty text. Lists, maps and structs are
written in JSON.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import DecimalException
from functools import partial
from itertools import islice
from typing import BinaryIO, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dormouse.arrow.types import Array, arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files.casting import (
    Place,
    check_columns,
    convert,
    convert_batch,
    exact_number,
    text_parser,
)
from dormouse.files.cells import check_names, json_column
from dormouse.files.change_data import ChangeData
from dormouse.files.rejects import (
    NOT_ASKED,
    Finish,
    Rejects,
    RowNumbers,
    refuse_each,
    without_rejected,
)
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import TIMESTAMPS, Primitive
from dormouse.tables.properties import CsvDialect

# The syntax of CSV files, strictly by RFC 4180: divide a file into blocks of
# whole records, and validate them.
#
# Arrow parses records fast, but tolerates misplaced quotes: one stray quote can turn half a file
# into a single value. Each block is therefore validated first, by what is left of it without its
# quoted fields, about as fast as Arrow parses. Only a block that is not well formed is read again
# field by field, to find the position of the error.

BLOCK_BYTES = 1024 * 1024
"""How much of a file is parsed at once."""
RECORD_BYTES = 4 * 1024 * 1024
"""The largest allowed record."""
FIELD_LINES = 1000
"""How many line ends a quoted field may contain: two stray quotes turn
everything between them into one field."""
_HINT = (
    "a field is enclosed in quotes as a whole, and quotes within are doubled; the properties "
    "csv_quote and csv_separator say which characters these are"
)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole records, as they are in the file; `line` is that of the first, counted from 1."""

    data: bytes
    line: int
    line_ends: int = 0

    def line_of(self, at: int) -> int:
        """Return the line number of the byte at offset `at` of the block."""
        return self.line + self.data.count(b"\n", 0, at)


@dataclass(frozen=True, slots=True)
class Record:
    """One record: the line where it begins, its end in its block, its fields as written."""

    line: int
    end: int
    fields: tuple[bytes, ...]

    @property
    def is_blank(self) -> bool:
        """Return whether the record is an empty line."""
        return self.fields == (b"",)


class CsvStructure:
    """The grammar of one dialect; `names` are the names of the columns, once they are known."""

    def __init__(self, dialect: CsvDialect) -> None:
        self.names: tuple[str, ...] = ()
        self.numbers: RowNumbers = NOT_ASKED
        self._quote, self._separator = dialect.quote.encode(), dialect.separator.encode()
        quote, separator = re.escape(self._quote), re.escape(self._separator)
        never = b"(?!)"
        opened = b"%b[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote, quote)
        quoted = opened + quote if quote else never
        self._opened = re.compile(opened if quote else never)
        self._quoted = re.compile(quoted)
        plain, end = b"[^%b%b\r\n]*+" % (separator, quote), b"(?:%b|\r?\n)" % separator
        self._field = re.compile(b"(%b|%b)(%b|\r?\n|\\Z)" % (quoted, plain, separator))
        self._unquoted = re.compile(b"[^%b\r\n]*" % quote)
        # Runs of quoted fields and what is between them: to match each by itself takes longer. What
        # follows a field is looked at for each: a run that failed by its last would be tried again
        # from each field of it, in the square of their number.
        begins = b"%b(?<![^%b\n]%b)" % (quote, separator, quote)
        whole = quoted[len(quote) :] + b"(?=[%b\r\n]|\\Z)" % separator
        run = begins + whole + b"(?:%b(?:%b%b)*+%b%b)*+" % (end, plain, end, quote, whole)
        self._quoted_runs = re.compile(run if quote else never)

    def end_of_records(self, data: bytes) -> int:
        """Return the offset after the last complete record of `data`; 0 if there is none.

        `data` begins with a record. A line end after an odd number of quotes is in a quoted field.

        For example, in `a,"b⏎c",d⏎e,"f⏎` the last line end follows 3 quotes, so it is inside the
        field `"f⏎…`. The search goes back to the line end before the third quote: after `d`, it
        follows 2 quotes, so the complete records are `a,"b⏎c",d⏎`.
        """
        end = data.rfind(b"\n") + 1
        if not self._quote or self._quote not in data:
            return end
        quotes = data.count(self._quote, 0, end)
        while quotes % 2:
            earlier = data.rfind(b"\n", 0, data.rfind(self._quote, 0, end)) + 1
            quotes -= data.count(self._quote, earlier, end)
            end = earlier
        return end

    def validate(self, block: TextBlock) -> None:
        """Check that quotes and line ends are where RFC 4180 allows them.
        Raises RefusedSourceError: one is not; the message says in which line and column.
        """
        if not self._is_well_formed(block.data):
            for _ in self.records(block):
                pass

    def check_lines(self, block: TextBlock, records: int) -> None:
        """Check that no field of a well-formed block with that many records spans too many lines.
        Raises RefusedSourceError: one does; the message says in which line and column it begins.
        """
        if block.line_ends - records > FIELD_LINES and any(
            field[0].count(b"\n") > FIELD_LINES for field in self._quoted.finditer(block.data)
        ):
            for _ in self.records(block):
                pass

    def records(self, block: TextBlock) -> Iterator[Record]:
        """Yield the records of a block, read field by field, blank lines included.
        Raises RefusedSourceError: the block is not well formed; the message says in which line and
        column.
        """
        data, at, line = block.data, 0, block.line
        while at < len(data):
            first_line, ended = line, self._separator
            fields: list[bytes] = []
            while ended == self._separator:
                match = self._field.match(data, at)
                if match is None:
                    raise self._broken(block, at, len(fields))
                field, ended = match.groups()
                if field.count(b"\n") > FIELD_LINES:
                    reason = f"the quoted field has more than {FIELD_LINES:,} line ends"
                    raise self.refused(line, len(fields), reason, _HINT)
                fields.append(field)
                line += data.count(b"\n", at, match.end())
                at = match.end()
            yield Record(first_line, at, tuple(fields))

    def text(self, field: bytes) -> bytes:
        """Return the text of a field without its enclosing quotes, and doubled quotes undone."""
        if self._quote and field.startswith(self._quote):
            return field[1:-1].replace(self._quote * 2, self._quote)
        return field

    def refused(self, line: int, column: int, reason: str, hint: str = "") -> RefusedSourceError:
        """Return the error for one field; `column` counts from 0."""
        name = repr(self.names[column]) if column < len(self.names) else str(column + 1)
        return RefusedSourceError(f"line {line}, column {name}: {reason}", hint=hint)

    def _is_well_formed(self, data: bytes) -> bool:
        """Return whether each quote and carriage return is where it is allowed.

        In well-formed data, no quote is left once the fields in quotes are taken out, each between
        separators or line ends; nor is a carriage return without a line feed.

        For example, `a,"b""c",d` is left as `a,,d`. In `a,b"c",d` the first quote follows `b` and
        the second begins no field that ends, so both are left.
        """
        outside = self._quoted_runs.sub(b"", data)
        is_quote_left = bool(self._quote) and self._quote in outside
        return not is_quote_left and outside.count(b"\r") == outside.count(b"\r\n")

    def _broken(self, block: TextBlock, at: int, column: int) -> RefusedSourceError:
        """Return the error for the malformed field at offset `at` of a block."""
        data, match = block.data, self._opened.match(block.data, at)
        if match is None:
            stop = self._unquoted.match(data, at)
            end = stop.end() if stop else at
            reason, hint = "a quote inside a field that does not begin with one", _HINT
            if data[end : end + 1] == b"\r":
                reason = "a carriage return without a line feed, outside of quotes"
                hint = "lines end in LF or CRLF"
            return self.refused(block.line_of(end), column, reason, hint)
        if match.end() == len(data):
            reason = "the quote that opens the field is not closed"
            return self.refused(block.line_of(at), column, reason, _HINT)
        reason = "text after the quote that closes the field"
        return self.refused(block.line_of(match.end()), column, reason, _HINT)


class CsvBlocks:
    """Reads a file block by block."""

    def __init__(self, file: BinaryIO, structure: CsvStructure) -> None:
        """Start after a UTF-8 byte order mark. Raises RefusedSourceError: the file is in UTF-16."""
        self._file, self._structure = file, structure
        self._data, self._line = strip_bom(file.read(BLOCK_BYTES)), 1
        self._next = file.read(BLOCK_BYTES)

    def header(self) -> list[bytes]:
        """Read the first record that is not blank, and return the texts of its fields.
        Raises RefusedSourceError: there is none, or it is not well formed.
        """
        while self._data:
            block = self._take()
            for record in self._structure.records(block):
                if not record.is_blank:
                    self._data = block.data[record.end :] + self._data
                    self._line = block.line_of(record.end)
                    return [self._structure.text(field) for field in record.fields]
        raise RefusedSourceError(
            "the file is empty: the names of its columns are missing",
            hint="the property csv_header says whether there are any",
        )

    def __iter__(self) -> Iterator[TextBlock]:
        """Yield blocks, each validated. Raises RefusedSourceError if a block is not well formed."""
        while self._data:
            block = self._take()
            self._structure.validate(block)
            yield block

    def _take(self) -> TextBlock:
        """Read the next complete records from the file, without validating them."""
        end = 0
        while not end:
            end = self._structure.end_of_records(self._data) if self._next else len(self._data)
            if not end and len(self._data) > RECORD_BYTES:
                raise self._too_long()
            if not end:
                self._data += self._next
                self._next = self._file.read(BLOCK_BYTES)
        data = self._data[:end]
        block = TextBlock(data, self._line, data.count(b"\n"))
        self._line += block.line_ends
        self._data = self._data[end:]
        if self._next and len(self._data) < BLOCK_BYTES:
            self._data += self._next
            self._next = self._file.read(BLOCK_BYTES)
        return block

    def _too_long(self) -> RefusedSourceError:
        """Return the error for the next record: it is, or seems by an earlier error, too long."""
        for _ in self._structure.records(TextBlock(self._data, self._line)):
            pass
        return RefusedSourceError(
            f"line {self._line}: the record is longer than {RECORD_BYTES:,} bytes"
        )


_SEPARATORS = ";\t|,"
"""What separates fields in most files."""
_Parse = Callable[[TextBlock], list[pa.RecordBatch]]
_Convert = Callable[[pa.RecordBatch, Place], pa.RecordBatch]


def read_csv(
    file: BinaryIO,
    schema: Schema,
    dialect: CsvDialect | None = None,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
    numbers: RowNumbers = NOT_ASKED,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file. With `rejects`, records that cannot be read, or that `finish`
    refuses, are left out. `numbers` gets the line of each row.
    Raises RefusedSourceError: it is damaged, or its columns or values are not the table's.
    """
    dialect = dialect or CsvDialect()
    structure = CsvStructure(dialect)
    blocks = CsvBlocks(in_utf8(file, dialect), structure)
    structure.names = tuple(_names(blocks, schema, dialect))
    parse = _parser(dialect, structure)

    def convert(texts: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        return finish(convert_batch(texts, schema, place, partial(_cells, dialect)))

    structure.numbers = numbers
    yield from _rows_of(blocks, structure, parse, convert, rejects)


def _rows_of(
    blocks: Iterable[TextBlock],
    structure: CsvStructure,
    parse: _Parse,
    convert: _Convert,
    rejects: Rejects | None,
) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        try:
            batches = [convert(texts, partial(_place, structure, block)) for texts in parse(block)]
        except RefusedSourceError:
            if rejects is None:
                raise
            yield from _without_rejected(block, structure, parse, convert, rejects)
        else:
            rows = sum(batch.num_rows for batch in batches)
            of_one_line = block.line_ends == rows - (not block.data.endswith(b"\n"))
            first, lines = block.line, partial(_lines_of_rows, structure, block)
            structure.numbers.add(range(first, first + rows) if of_one_line else lines)
            yield from batches


def _without_rejected(
    block: TextBlock, structure: CsvStructure, parse: _Parse, convert: _Convert, rejects: Rejects
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block of which some records cannot be read, without these."""
    whole: list[tuple[int, bytes]] = []
    misfits: list[tuple[int, bytes, RefusedSourceError]] = []
    start = 0
    for record in structure.records(block):
        data, start = block.data[start : record.end], record.end
        if refusal := _misfit(structure, record):
            misfits.append((record.line, data, refusal))
        elif not record.is_blank or len(structure.names) == 1:
            whole.append((record.line, data))
    joined = b"".join(data for _, data in whole)
    texts = parse(TextBlock(joined, block.line, joined.count(b"\n")))

    def rows(some: Sequence[int]) -> pa.RecordBatch:
        cells = texts[0].take(pa.array(some, pa.int64()))
        return convert(cells, lambda row: f"line {whole[some[row]][0]}")

    yield from without_rejected(whole, rows, rejects, misfits, structure.numbers)


def read_csv_texts(
    file: BinaryIO, dialect: CsvDialect, rejects: Rejects | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file with a header, every cell as text; the first batch has none.
    With `rejects`, records that cannot be read are left out.
    Raises RefusedSourceError: it is damaged, or it has no header.
    """
    if not dialect.has_header:
        raise RefusedSourceError(
            "the CSV file has no header, so its columns have no names",
            hint="write the schema, or infer it from a file with a header",
        )
    structure = CsvStructure(dialect)
    blocks = CsvBlocks(in_utf8(file, dialect), structure)
    structure.names = tuple(_header(blocks))
    yield pa.RecordBatch.from_arrays(
        [pa.array([], pa.string()) for _ in structure.names], names=list(structure.names)
    )
    parse = _parser(dialect, structure)

    def convert(texts: pa.RecordBatch, _: Place) -> pa.RecordBatch:
        columns = [_in_iso_order(column, dialect) for column in texts.columns]
        return pa.RecordBatch.from_arrays(columns, names=texts.schema.names)

    yield from _rows_of(blocks, structure, parse, convert, rejects)


def _in_iso_order(cells: Array, dialect: CsvDialect) -> Array:
    """Return texts that begin with a date in the order of the dialect with one of ISO 8601."""
    if dialect.dates == "ymd":
        return cells
    cells = pc.replace_substring_regex(cells, r"^([0-9][./-])", r"0\1")
    cells = pc.replace_substring_regex(cells, r"^([0-9]{2}[./-])([0-9][./-])", r"\10\2")
    order = r"\3-\2-\1" if dialect.dates == "dmy" else r"\3-\1-\2"
    iso: Array = pc.replace_substring_regex(
        cells, r"^([0-9]{2})[./-]([0-9]{2})[./-]([0-9]{4})", order
    )
    return iso


def _names(blocks: CsvBlocks, schema: Schema, dialect: CsvDialect) -> Sequence[str]:
    if not dialect.has_header:
        return [field.name for field in schema.fields]
    names = _header(blocks)
    try:
        check_columns(names, schema)
    except RefusedSourceError as error:
        separator = _other_separator(names, schema)
        if not separator:
            raise
        hint = f"its fields are separated by another character: set csv_separator='{separator}'"
        raise RefusedSourceError(str(error), hint=hint) from error
    return names


def _other_separator(names: Sequence[str], schema: Schema) -> str:
    """Return the separator by which the header names columns of the table; empty if none does."""
    columns = {field.name.lower() for field in schema.fields}
    for each in _SEPARATORS if len(names) == 1 else ():
        parts = {part.strip(" \"'").lower() for part in names[0].split(each)}
        if len(parts) > 1 and not parts.isdisjoint(columns):
            return each.replace("\t", "\\t")
    return ""


def _header(blocks: CsvBlocks) -> list[str]:
    try:
        return [name.decode() for name in blocks.header()]
    except UnicodeDecodeError as error:
        raise RefusedSourceError(
            "the column names in the CSV header are not UTF-8", hint=ENCODING_HINT
        ) from error


def _parser(dialect: CsvDialect, structure: CsvStructure) -> _Parse:
    """Return a function that parses a well-formed block into text columns, in one batch or none.

    A blank line is skipped, unless the file has one column: then it is a record of a null.
    """
    names = structure.names
    schema = pa.schema([(name, pa.string()) for name in names])
    parsing = csv.ParseOptions(
        delimiter=dialect.separator,
        quote_char=dialect.quote or False,
        ignore_empty_lines=len(names) > 1,
    )
    converting = csv.ConvertOptions(
        column_types=schema,
        null_values=[dialect.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def table(data: bytes) -> pa.Table:
        if not data.strip(b"\r\n") and len(names) > 1:
            return schema.empty_table()
        if data.startswith(UTF8_BOM):  # Arrow would skip it as a BOM in each block
            data = UTF8_BOM + data
        # without a line end, Arrow reads an empty last field after a quoted one as ""
        if not data.endswith(b"\n"):
            data += b"\n"
        reading = csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=list(names)
        )
        return csv.read_csv(cast(BinaryIO, pa.BufferReader(data)), reading, parsing, converting)

    def parse(block: TextBlock) -> list[pa.RecordBatch]:
        try:
            cells = table(block.data)
        except pa.ArrowException as error:
            raise _refusal(structure, block) from error
        structure.check_lines(block, cells.num_rows)
        return cells.combine_chunks().to_batches()

    return parse


def _lines_of_rows(structure: CsvStructure, block: TextBlock) -> Iterator[int]:
    """Return the lines of the file in which the rows of a block begin."""
    keep_blank = len(structure.names) == 1
    return (r.line for r in structure.records(block) if keep_blank or not r.is_blank)


def _place(structure: CsvStructure, block: TextBlock, row: int) -> str:
    return f"line {next(islice(_lines_of_rows(structure, block), row, None))}"


def _refusal(structure: CsvStructure, block: TextBlock) -> RefusedSourceError:
    """Return the error for a well-formed block that Arrow cannot parse."""
    misfits = (_misfit(structure, record) for record in structure.records(block))
    return next(filter(None, misfits), None) or RefusedSourceError(
        f"the records from line {block.line} on cannot be parsed as CSV"
    )


def _misfit(structure: CsvStructure, record: Record) -> RefusedSourceError | None:
    """Return the error for a record that Arrow cannot parse; None if it can."""
    width = len(structure.names)
    if record.is_blank and width > 1:
        return None
    if len(record.fields) != width:
        return RefusedSourceError(
            f"line {record.line}: fields of the record: {len(record.fields)}; of the file: {width}",
            hint="a separator within a field needs quotes around it",
        )
    for at, field in enumerate(record.fields):
        try:
            field.decode()
        except UnicodeDecodeError:
            return structure.refused(record.line, at, "the text is not UTF-8", ENCODING_HINT)
    return None


def _cells(dialect: CsvDialect, field: Field, cells: Array) -> Array:
    parse = text_parser(field.type, field.unit)
    if parse is None:
        return json_column(cells.cast(pa.binary()).to_pylist(), field)
    if field.type in TIMESTAMPS or field.type is Primitive.DATE:
        cells = _in_iso_order(cells, dialect)
    return parse(cells)


# Read ingested JSON as batches of the table: one object on each line, or one array of objects.
#
# A nullable column may be missing from an object. `cells` describes how values are written.

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
class TextRows:
    """Lines that are not blank: their line numbers, their bytes, and their values by name."""

    numbers: list[int]
    lines: list[bytes]
    objects: list[dict[str, msgspec.Raw]]

    def place(self, row: int) -> str:
        """Return the line of the file in which a row is, as text."""
        return f"line {self.numbers[row]}"

    def cells(self, name: str) -> list[bytes | None]:
        """Return the values of one name as written; None where it is missing or null."""
        values_of_name = [values.get(name) for values in self.objects]
        cells = [None if cell is None else bytes(cell) for cell in values_of_name]
        return [None if cell == _NULL else cell for cell in cells] if _NULL in cells else cells


def read_json_lines(
    file: BinaryIO,
    schema: Schema,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
    changes: ChangeData | None = None,
    numbers: RowNumbers = NOT_ASKED,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of JSON lines, or of messages with `changes`; blank lines are skipped. With
    `rejects`, lines that cannot be read, or that `finish` refuses, are left out. `numbers` gets
    the line of each row.
    Raises RefusedSourceError: a line is not a JSON object, or its names or values do not fit the
    table.
    """

    def convert(lines: Sequence[tuple[int, bytes]], some: Sequence[int]) -> pa.RecordBatch:
        return finish(_batch(_rows([lines[row] for row in some]), schema))

    for lines in _pieces(changes.lines(_lines(file)) if changes else _lines(file)):
        if rejects is not None:
            yield from without_rejected(lines, partial(convert, lines), rejects, numbers=numbers)
        else:
            batch = convert(lines, range(len(lines)))
            numbers.add(number for number, _ in lines)
            yield batch


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


def _rows(lines: Sequence[tuple[int, bytes]]) -> TextRows:
    try:
        objects = [_object(number, text, _objects) for number, text in lines]
    except RefusedSourceError:
        refuse_each(lines, lambda line: _object(*line, _objects))
        raise
    return TextRows([number for number, _ in lines], [text for _, text in lines], objects)


def read_json_objects(
    file: BinaryIO, rejects: Rejects | None = None
) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield the line number, the size in bytes and the values of each object in a file of JSON
    lines; numbers that doubles do not hold are decimals. With `rejects`, other lines are left out.
    Raises RefusedSourceError: a line is not a JSON object.
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
    """Yield the lines that are not blank, or the objects of an array, with their numbers from 1."""
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
        elements = _array.decode(array)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedSourceError(
            f"the JSON array from line {line} on cannot be read: {error}", hint=_FORM_HINT
        ) from error
    start = end = 0
    for text in map(bytes, elements):
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


def _batch(rows: TextRows, schema: Schema) -> pa.RecordBatch:
    names = {f.name for f in schema.fields}
    if not all(values.keys() <= names for values in rows.objects):
        check = partial(check_columns, schema=schema, of="the line")
        _refuse_lines(rows, [[*values] for values in rows.objects], check)
    cells = {field.name: rows.cells(field.name) for field in schema.fields}
    columns = [
        convert(cells[field.name], field, rows.place, partial(json_column, field=field))
        for field in schema.fields
    ]
    _check_twice(rows, cells)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _refuse_lines(rows: TextRows, items: Sequence[_T], check: Callable[[_T], object]) -> None:
    def of_line(line: tuple[int, _T]) -> None:
        try:
            check(line[1])
        except (RefusedSourceError, ValueError) as error:
            hint = error.hint if isinstance(error, RefusedSourceError) else ""
            raise RefusedSourceError(f"line {line[0]}: {error}", hint=hint) from error

    refuse_each([*zip(rows.numbers, items, strict=True)], of_line)


def _check_twice(rows: TextRows, cells: dict[str, list[bytes | None]]) -> None:
    """Check that no object has a name twice; the decoder would silently keep the last value.

    A line has one colon for each name, and the colons in its values. Only if there are more colons
    than that, the names of each line are decoded and compared.
    """
    names = sum(map(len, rows.objects))
    within = sum(b"".join(filter(None, column)).count(b":") for column in cells.values())
    if b"".join(rows.lines).count(b":") == names + within:
        return
    _refuse_lines(rows, rows.lines, check_names)


# Text files as UTF-8, whatever their encoding is.

UTF8_BOM = codecs.BOM_UTF8
"""The byte order mark that some programs write at the start of a UTF-8 file."""
ENCODING_HINT = "the table's property csv_encoding says how its files are encoded"


def strip_bom(start: bytes) -> bytes:
    """Return a text's first bytes without a UTF-8 mark. Raises RefusedSourceError: it is UTF-16."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RefusedSourceError(
            "the file is in UTF-16", hint="write it in UTF-8, or set csv_encoding"
        )
    return start.removeprefix(UTF8_BOM)


def in_utf8(file: BinaryIO, dialect: CsvDialect) -> BinaryIO:
    """Return a file of a dialect as one of UTF-8."""
    is_utf8 = dialect.encoding == "utf-8"
    return file if is_utf8 else cast(BinaryIO, _Recoded(file, dialect.encoding))


class _Recoded:
    """A file of another encoding as UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._texts = io.TextIOWrapper(file, encoding, newline="")

    def read(self, size: int) -> bytes:
        """Return the next characters, of about as many bytes; none at the end."""
        try:
            return self._texts.read(size).encode()
        except UnicodeError as error:
            raise RefusedSourceError(
                f"the CSV file is not {self._texts.encoding}", hint=ENCODING_HINT
            ) from error
