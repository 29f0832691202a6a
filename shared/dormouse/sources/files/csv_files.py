"""Read ingested CSV files as batches of the table.

The first record names the columns, in any order, unless the table's properties say that there is no
header. `csv_structure` validates the syntax, `text_cells` parses values. An empty field is null;
``""`` is empty text. Lists, maps and structs are written in JSON.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.schema.types import TIMESTAMPS
from dormouse.sources.cells.casting import Place, check_file_columns, convert_batch
from dormouse.sources.cells.json_cells import json_column
from dormouse.sources.cells.text_cells import text_parser
from dormouse.sources.files.csv_structure import (
    UTF8_BOM,
    Block,
    CsvBlocks,
    CsvStructure,
    Record,
)
from dormouse.sources.rejects import Finish, Rejects, without_rejected
from dormouse.tables.csv_dialect import CsvDialect

_SEPARATORS = ";\t|,"
"""What separates fields in most files."""
_Parse = Callable[[Block], list[pa.RecordBatch]]
_Convert = Callable[[pa.RecordBatch, Place], pa.RecordBatch]
_ENCODING_HINT = "the table's property csv_encoding says how its files are encoded"


def read_csv(
    file: BinaryIO,
    schema: Schema,
    dialect: CsvDialect | None = None,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file. With `rejects`, records that cannot be read, or that `finish`
    refuses, are left out.

    Raises:
        RefusedSourceError: it is damaged, or its columns or values are not the table's.
    """
    dialect = dialect or CsvDialect()
    structure = CsvStructure(dialect)
    blocks = CsvBlocks(_in_utf8(file, dialect), structure)
    structure.names = tuple(_names(blocks, schema, dialect))
    parse = _parser(dialect, structure)

    def convert(texts: pa.RecordBatch, place: Place) -> pa.RecordBatch:
        return finish(convert_batch(texts, schema, place, partial(_cells, dialect)))

    yield from _rows_of(blocks, structure, parse, convert, rejects)


def _rows_of(
    blocks: Iterable[Block],
    structure: CsvStructure,
    parse: _Parse,
    convert: _Convert,
    rejects: Rejects | None,
) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        try:
            found = [convert(texts, _Lines(structure, block)) for texts in parse(block)]
        except RefusedSourceError:
            if rejects is None:
                raise
            yield from _without_rejected(block, structure, parse, convert, rejects)
        else:
            yield from found


def _without_rejected(
    block: Block,
    structure: CsvStructure,
    parse: _Parse,
    convert: _Convert,
    rejects: Rejects,
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
    texts = parse(Block(joined, block.line, joined.count(b"\n")))

    def rows(first: int, end: int) -> pa.RecordBatch:
        some = texts[0].slice(first, end - first)
        return convert(some, lambda at: f"line {whole[first + at][0]}")

    yield from without_rejected(whole, rows, rejects, misfits)


def read_csv_texts(
    file: BinaryIO, dialect: CsvDialect, rejects: Rejects | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file with a header, every cell as text; the first batch has none.
    With `rejects`, records that cannot be read are left out.

    Raises:
        RefusedSourceError: it is damaged, or it has no header.
    """
    if not dialect.has_header:
        raise RefusedSourceError(
            "the CSV file has no header, so its columns have no names",
            hint="write the schema, or infer it from a file with a header",
        )
    structure = CsvStructure(dialect)
    blocks = CsvBlocks(_in_utf8(file, dialect), structure)
    structure.names = tuple(_header(blocks))
    yield pa.RecordBatch.from_arrays(
        [pa.array([], pa.string()) for _ in structure.names], names=list(structure.names)
    )
    parse = _parser(dialect, structure)

    def convert(texts: pa.RecordBatch, _: Place) -> pa.RecordBatch:
        columns = [_in_iso_order(column, dialect) for column in texts.columns]
        return pa.RecordBatch.from_arrays(columns, names=texts.schema.names)

    yield from _rows_of(blocks, structure, parse, convert, rejects)


def _in_utf8(file: BinaryIO, dialect: CsvDialect) -> BinaryIO:
    is_utf8 = dialect.encoding == "utf-8"
    return file if is_utf8 else cast(BinaryIO, _Recoded(file, dialect.encoding))


class _Recoded:
    """A file of another encoding as UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file, self._encoding = file, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int) -> bytes:
        """Return about as many bytes, and none at the end."""
        while True:
            data = self._file.read(size)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeError as error:
                raise RefusedSourceError(
                    f"the CSV file is not {self._encoding}",
                    hint=_ENCODING_HINT,
                ) from error
            if text or not data:
                return text.encode()


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
        check_file_columns(names, schema)
    except RefusedSourceError as error:
        separator = _other_separator(names, schema)
        if not separator:
            raise
        hint = f"its fields are separated by another character: set csv_separator='{separator}'"
        raise RefusedSourceError(str(error), hint=hint) from error
    return names


def _other_separator(names: Sequence[str], schema: Schema) -> str:
    """Return the separator, as the property has it, by which the header names columns of the table;
    empty if there is none.
    """
    wanted = {field.name.lower() for field in schema.fields}
    for each in _SEPARATORS if len(names) == 1 else ():
        parts = {part.strip(" \"'").lower() for part in names[0].split(each)}
        if len(parts) > 1 and not parts.isdisjoint(wanted):
            return each.replace("\t", "\\t")
    return ""


def _header(blocks: CsvBlocks) -> list[str]:
    try:
        return [name.decode() for name in blocks.header()]
    except UnicodeDecodeError as error:
        raise RefusedSourceError(
            "the column names in the CSV header are not UTF-8", hint=_ENCODING_HINT
        ) from error


def _parser(dialect: CsvDialect, structure: CsvStructure) -> _Parse:
    """Return a function that parses a well-formed block into text columns, in one batch or none.

    A blank line is skipped, unless the file has one column: then it is a record whose field is
    null.
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

    def parse(block: Block) -> list[pa.RecordBatch]:
        try:
            found = table(block.data)
        except pa.ArrowException as error:
            raise _refusal(structure, block) from error
        structure.check_lines(block, found.num_rows)
        return found.combine_chunks().to_batches()

    return parse


class _Lines:
    """Finds the line of the file in which a row of a block begins."""

    def __init__(self, structure: CsvStructure, block: Block) -> None:
        self._structure, self._block = structure, block

    def __call__(self, row: int) -> str:
        keep_blank = len(self._structure.names) == 1
        records = self._structure.records(self._block)
        rows = (record for record in records if keep_blank or not record.is_blank)
        return f"line {next(islice(rows, row, None)).line}"


def _refusal(structure: CsvStructure, block: Block) -> RefusedSourceError:
    """Return the error for a well-formed block that Arrow cannot parse."""
    found = (_misfit(structure, record) for record in structure.records(block))
    return next(filter(None, found), None) or RefusedSourceError(
        f"the records from line {block.line} on cannot be parsed as CSV"
    )


def _misfit(structure: CsvStructure, record: Record) -> RefusedSourceError | None:
    """Return the error for a record that Arrow cannot parse; None if it can."""
    wanted = len(structure.names)
    if record.is_blank and wanted > 1:
        return None
    if len(record.fields) != wanted:
        return RefusedSourceError(
            f"line {record.line}: fields of the record: {len(record.fields)}; "
            f"of the file: {wanted}",
            hint="a separator within a field needs quotes around it",
        )
    for at, field in enumerate(record.fields):
        try:
            field.decode()
        except UnicodeDecodeError:
            return structure.refused(record.line, at, "the text is not UTF-8")
    return None


def _cells(dialect: CsvDialect, field: Field) -> Callable[[Array], Array]:
    parse = text_parser(field) or _json_parser(field)
    if field.type not in TIMESTAMPS and field.type is not Primitive.DATE:
        return parse
    return lambda cells: parse(_in_iso_order(cells, dialect))


def _json_parser(field: Field) -> Callable[[Array], Array]:
    def parse(cells: Array) -> Array:
        texts = cells.to_pylist()
        return json_column([None if text is None else text.encode() for text in texts], field)

    return parse
