"""The formats in which rows are written, by name."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from dormouse.arrow.types import conform, json_schema
from dormouse.arrow.values import VARIANT_AS_TEXT, is_variant
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.ports import StreamedObjects
from dormouse.schema.types import MAX_TIME, UUID_BYTES, show_clock, show_uuid
from dormouse.showing import json_lines


@contextmanager
def refusing_unwritable() -> Iterator[None]:
    """Say what to do about rows that Arrow cannot write. Raises InvalidRequestError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its text quotes values
        raise InvalidRequestError(
            "the result has a column of a type, or a value, that the format does not have",
            hint="CAST it to text in the statement, or ask for another format",
        ) from None


# The values of Arrow columns in the types that JSON has.
#
# Times and dates are ISO 8601 (timestamps with Z if they are of a zone, and then in UTC), durations
# too, UUIDs and decimals text, bytes base64. JSON has no word for the floats that are no finite
# numbers: they are the texts ``NaN``, ``Infinity`` and ``-Infinity``, so that they stay apart from
# null. A map is a JSON object, its keys as text; a JSON document is itself. Times and dates beyond
# the years 1 to 9999 are numbers: counts of the column's unit, and days, since 1970. All types of a
# table are read back as they were; statements in SQL may have others, whose values are exact.

_ISO_SECONDS = (-62_135_596_800, 253_402_300_799)
_ISO_DAYS = (-719_162, 2_932_896)
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits that each unit of time has after the second."""

Cells = Sequence[object]
"""The values of a column in the types that JSON has."""


def json_cells(column: pa.Array[Any]) -> Cells:
    """Return a column's values in the types that JSON has."""
    column = _in_plain_form(column)
    kind = column.type
    if isinstance(kind, pa.JsonType):
        return _each(column, lambda text: msgspec.Raw(text.encode()))
    if isinstance(column, pa.ExtensionArray):  # of UUIDs, the only other such type there is
        return json_cells(column.storage)
    if isinstance(column, pa.MapArray | pa.StructArray | pa.ListArray):
        return _nested_cells(column, json_cells)
    for applies, convert_column in _COLUMNS:
        if applies(kind):
            return convert_column(column)
    for applies, convert in _CONVERSIONS:
        if applies(kind):
            return _each(column, convert)
    return column.to_pylist()


def _in_plain_form(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the same values in types of the usual kind: a statement may return others."""
    kind = column.type
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if isinstance(column, pa.RunEndEncodedArray):
        values: pa.Array[Any] = pc.call_function("run_end_decode", [column])
        return values
    for applies, plain in _PLAIN_FORMS:
        if applies(kind):
            return column.cast(plain(kind))
    return column


def _timestamps(column: pa.Array[Any]) -> Cells:
    kind = column.type
    if kind.tz and kind.tz != "UTC":
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    text = pc.strftime(column, format=f"%Y-%m-%dT%H:%M:%S{'Z' if kind.tz else ''}")
    short = pc.replace_substring_regex(text, pattern=r"[.]0+(Z?)$", replacement=r"\1")
    if kind.unit == "ns":  # whose years all have four digits
        return pc.replace_substring_regex(
            short, pattern=r"([.][0-9]{6})000(Z?)$", replacement=r"\1\2"
        ).to_pylist()
    low, high = (second * 10 ** _UNITS[kind.unit] for second in _ISO_SECONDS)
    span = low, high + 10 ** _UNITS[kind.unit] - 1
    return _iso_or_number(short.to_pylist(), column.cast(pa.int64()), span)


def _dates(column: pa.Array[Any]) -> Cells:
    texts = column.cast(pa.string()).to_pylist()
    return _iso_or_number(texts, column.cast(pa.int32()), _ISO_DAYS)


def _clocks(column: pa.Array[Any]) -> Cells:
    return _each(column.cast(pa.time64("ns")).cast(pa.int64()), _clock)


def _clock(nanoseconds: int) -> str:
    """Return a time of day, with nanoseconds if it has any; SQL also has the end of the day."""
    microseconds, finer = divmod(nanoseconds, 1000)
    text = show_clock(microseconds) if microseconds <= MAX_TIME else "24:00:00"
    return f"{text}{'' if '.' in text else '.000000'}{finer:03d}" if finer else text


def _singles(column: pa.Array[Any]) -> Cells:
    """Return floats of 32 bits with the fewest digits that give them back."""
    return _each(column.cast(pa.string()), lambda text: _finite(float(text)))


def _durations(column: pa.Array[Any]) -> Cells:
    digits = _UNITS[column.type.unit]
    return _each(column.cast(pa.int64()), lambda count: _duration(count, digits))


def _each(column: pa.Array[Any], convert: Callable[[Any], object]) -> Cells:
    return [None if value is None else convert(value) for value in column.to_pylist()]


def _duration(count: int, digits: int) -> str:
    """Return a duration in seconds as ISO 8601: 1,500 milliseconds are ``PT1.5S``."""
    seconds, rest = divmod(abs(count), 10**digits)
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{'-' if count < 0 else ''}PT{seconds}{fraction}S"


def _interval(value: pa.MonthDayNano) -> str:
    months, days, nanoseconds = value
    seconds = _duration(nanoseconds, 9)
    sign, time = ("-", seconds[3:]) if nanoseconds < 0 else ("", seconds[2:])
    return f"P{months}M{days}DT{sign}{time}"


def _iso_or_number(texts: list[str | None], numbers: pa.Array[Any], span: tuple[int, int]) -> Cells:
    """Return texts, but numbers where ISO 8601 has no year of four digits for them."""
    low, high = span
    least, greatest = pc.min(numbers).as_py(), pc.max(numbers).as_py()
    if least is None or greatest is None or (low <= least and greatest <= high):
        return texts
    return [
        text if number is None or low <= number <= high else number
        for text, number in zip(texts, numbers.to_pylist(), strict=True)
    ]


_Pairs = Iterable[tuple[str, object]]


def _nested_cells(
    column: pa.MapArray[Any, Any] | pa.StructArray | pa.ListArray[Any],
    convert: Callable[[pa.Array[Any]], Cells],
    of_struct: Callable[[_Pairs], object] = dict,
    of_map: Callable[[_Pairs], object] = dict,
) -> Cells:
    """Return nested values, of which `convert` returns the parts."""
    valid = column.is_valid().to_pylist()
    if isinstance(column, pa.StructArray):
        names = [field.name for field in column.type]
        members = zip(valid, *(convert(member) for member in column.flatten()), strict=True)
        cells = (of_struct(zip(names, values, strict=True)) for _, *values in members)
    elif isinstance(column, pa.MapArray):
        texts = [json_text(key) for key in json_cells(_items(column, column.keys))]
        entries = zip(texts, convert(_items(column, column.items)), strict=True)
        cells = (of_map(islice(entries, length)) for length in _lengths(column))
    else:
        items = iter(convert(_items(column, column.values)))
        cells = (list(islice(items, length)) for length in _lengths(column))
    return [cell if there else None for cell, there in zip(cells, valid, strict=True)]


def _items(lists: pa.ListArray[Any], all_items: pa.Array[Any]) -> pa.Array[Any]:
    """Return what lists hold; they may be a slice of those that `all_items` belongs to."""
    first, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return all_items.slice(first, end - first)


def _lengths(lists: pa.ListArray[Any]) -> Iterator[int]:
    offsets = cast(list[int], lists.offsets.to_pylist())
    return (end - start for start, end in pairwise(offsets))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_Applies = Callable[[pa.DataType], bool]
_PLAIN_FORMS: tuple[tuple[_Applies, Callable[[Any], pa.DataType]], ...] = (
    (
        lambda kind: pa.types.is_large_binary(kind) or kind == pa.binary_view(),
        lambda _: pa.binary(),
    ),
    (
        lambda kind: pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
        lambda kind: pa.list_(kind.value_type),
    ),
    (pa.types.is_date64, lambda _: pa.date32()),
    (pa.types.is_time32, lambda _: pa.time64("us")),
)
"""What statements may return, and the form in which it is converted."""
_COLUMNS: tuple[tuple[_Applies, Callable[[pa.Array[Any]], Cells]], ...] = (
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date, _dates),
    (pa.types.is_time64, _clocks),
    (pa.types.is_duration, _durations),
    (pa.types.is_float32, _singles),
)
_CONVERSIONS: tuple[tuple[_Applies, Callable[[Any], object]], ...] = (
    (pa.types.is_floating, _finite),
    (pa.types.is_binary, _base64),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (lambda kind: kind == pa.binary(UUID_BYTES), show_uuid),
    (pa.types.is_fixed_size_binary, _base64),
    (pa.types.is_interval, _interval),
)


def json_text(value: object) -> str:
    """Return a value in one of the types that JSON has as text, as it is or as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def json_texts(column: pa.Array[Any]) -> Iterator[bytes | None]:
    """Yield the values of a nested column as JSON documents: numbers are numbers, and what is null
    in a struct is left out.
    Raises ValueError: a number is not finite, or a name is in an object twice.
    """
    return (None if value is None else msgspec.json.encode(value) for value in json_values(column))


def json_values(column: pa.Array[Any]) -> Cells:
    """Return a column's values as JSON documents have them. Raises ValueError as `json_texts`."""
    column = _in_plain_form(column)
    if isinstance(column, pa.ExtensionArray):
        return json_values(column.storage)
    if pa.types.is_decimal(column.type):
        return _each(column, lambda value: msgspec.Raw(format(value, "f").encode()))
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column), min_count=0).as_py():
        raise ValueError("NaN and infinity are no numbers of JSON")
    if not isinstance(column, pa.MapArray | pa.StructArray | pa.ListArray):
        return json_cells(column)
    if isinstance(column, pa.StructArray) and is_variant(column.type):
        raise ValueError(f"there is a VARIANT in it: {VARIANT_AS_TEXT}")
    return _nested_cells(column, json_values, _without_nulls, _json_object)


def _without_nulls(members: _Pairs) -> dict[str, object]:
    return _json_object(member for member in members if member[1] is not None)


def _json_object(members: _Pairs) -> dict[str, object]:
    pairs = list(members)
    if len(by_name := dict(pairs)) < len(pairs):
        raise ValueError("an object has a name twice")
    return by_name


@refusing_unwritable()
def json_objects(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Return rows as JSON objects.
    Raises InvalidRequestError: a value has no form, or two columns have the same name.
    """
    names = batch.schema.names
    if double := next((name for name, count in Counter(names).items() if count > 1), None):
        raise InvalidRequestError(
            f"an object of JSON cannot have two columns called {double!r}",
            hint=f"give one another name: SELECT … AS {double}_2",
        )
    columns = [json_cells(column) for column in batch.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


# The writers of rows, one for each format.

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""The most bytes of a row group of a Parquet file, in memory."""
_JSON_ROWS = 8 * 1024
"""How many rows are Python objects at once."""


class ParquetRows:
    """Parquet: zstd, with page indexes and checksums; exact for every type but those that Parquet
    lacks. `sorted_by` are the positions of the columns that the rows are sorted by.

    Floats have no statistics: these would leave out NaN, and readers who believe them lose rows.
    Whether there is NaN is only known at the end of the stream.
    """

    def __init__(
        self, sink: BinaryIO | pa.NativeFile, schema: pa.Schema, *, sorted_by: Sequence[int] = ()
    ) -> None:
        self._schema = json_schema(schema)
        self._is_marked = not self._schema.equals(schema)
        self._writer = pq.ParquetWriter(
            cast(pa.NativeFile, sink),
            self._schema,
            compression="zstd",
            write_statistics=_bounded_columns(self._schema),
            sorting_columns=[pq.SortingColumn(at) for at in sorted_by] or None,
            write_page_index=True,
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self.rows = 0

    @property
    def room(self) -> int:
        """How many more rows the pending row group takes; at least one."""
        return max(1, ROW_GROUP_ROWS - self._pending_rows)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        batch = batch.cast(self._schema) if self._is_marked else batch
        while batch.num_rows:
            part = batch.slice(0, self.room)
            batch = batch.slice(part.num_rows)
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += part.nbytes
            self.rows += part.num_rows
            if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= ROW_GROUP_BYTES:
                self._write_group()

    def close(self, metadata: Mapping[str, str] | None = None) -> None:
        """Write the pending row group and the footer, which has `metadata`."""
        if self._pending:
            self._write_group()
        if metadata:
            self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def end(self) -> None:
        """Release what is held, whether the file is complete or not."""
        self._writer.close()

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


class ArrowRows:
    """A stream or file of Arrow IPC, with the types that the rows have."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the end."""
        self._writer.close()

    end = close


class CsvRows(ArrowRows):
    """CSV as RFC 4180 has it, in UTF-8: a header, then a line for each row; a null is empty, an
    empty text is quoted. Other types than numbers and texts are the texts of `json_cells`.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._schema = pa.schema(
            [each if _csv_has(each.type) else pa.field(each.name, pa.string()) for each in schema]
        )
        super().__init__(csv.CSVWriter(sink, self._schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        columns = [_csv_column(batch.column(i), f.type) for i, f in enumerate(self._schema)]
        super().write(pa.record_batch(columns, schema=self._schema))


class JsonRows:
    """JSON lines: an object for each row."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        for start in range(0, batch.num_rows, _JSON_ROWS):
            self._sink.write(json_lines(json_objects(batch.slice(start, _JSON_ROWS))))

    def close(self) -> None:
        """Do nothing: each line is complete by itself."""

    end = close


def _bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the Parquet columns that get statistics: all but those of floats."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [leaves.column(i) for i in range(len(leaves))]
    floats = {each.path for each in columns if each.physical_type in ("FLOAT", "DOUBLE")}
    return [each.path for each in columns if each.path not in floats]


def _csv_has(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)
    return is_plain or pa.types.is_boolean(kind)


def _csv_column(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if _csv_has(column.type):
        return column
    return pa.array(
        [None if cell is None else json_text(cell) for cell in json_cells(column)], kind
    )


class ResultFormat(StrEnum):
    """A format of rows. `arrow` is a stream of Arrow IPC, `feather` a file of it, which can be
    mapped into memory; `json` is a line of JSON for each row.
    """

    parquet = "parquet"
    arrow = "arrow"
    feather = "feather"
    csv = "csv"
    json = "json"

    @property
    def suffix(self) -> str:
        """How the names of such files end, with the dot."""
        return f".{self.value}"

    @property
    def media_type(self) -> str:
        """The type that HTTP and object stores have for such files."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ResultFormat.parquet: "application/vnd.apache.parquet",
    ResultFormat.arrow: "application/vnd.apache.arrow.stream",
    ResultFormat.feather: "application/vnd.apache.arrow.file",
    ResultFormat.csv: "text/csv",
    ResultFormat.json: "application/x-ndjson",
}


_WRITERS: dict[ResultFormat, Callable[[Any, pa.Schema], ParquetRows | ArrowRows | JsonRows]] = {
    ResultFormat.parquet: ParquetRows,
    ResultFormat.arrow: lambda sink, schema: ArrowRows(pa.ipc.new_stream(sink, schema)),
    # its footer says where each batch is
    ResultFormat.feather: lambda sink, schema: ArrowRows(pa.ipc.new_file(sink, schema)),
    ResultFormat.csv: CsvRows,
    ResultFormat.json: JsonRows,
}


_TEXTS = (ResultFormat.csv, ResultFormat.json)


class RowWriter:
    """Writes rows of one schema into an open file, batch by batch, in bounded memory; `rows` counts
    them.

    The file is complete when the writer is closed, and not before; the file itself stays open. A
    writer without rows makes a file that has none.
    """

    def __init__(self, sink: BinaryIO, form: ResultFormat, schema: pa.Schema) -> None:
        """Begin. Raises InvalidRequestError: the format lacks the type of a column."""
        self.rows, self._form = 0, form
        with refusing_unwritable():
            self._writer = _WRITERS[form](sink, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises InvalidRequestError if the format lacks a value."""
        with refusing_unwritable():
            if self._form not in _TEXTS:  # DuckDB has decimals of 39 digits, and 24 o'clock
                batch.validate(full=True)
            self._writer.write(batch)
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write what is pending, and the end of the file; raises as `write`."""
        with refusing_unwritable():
            self._writer.close()

    def end(self) -> None:
        """Release what is held, whether the file is complete or not; twice is as once."""
        self._writer.end()


def write_rows(
    form: ResultFormat, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO
) -> int:
    """Write all rows; return their number. Raises InvalidRequestError: the format lacks a type."""
    writer = RowWriter(sink, form, schema)
    try:
        for batch in batches:
            writer.write(batch)
        writer.close()
    finally:
        writer.end()
    return writer.rows


class RowFile(RowWriter):
    """A local file that rows are being written to, in some format."""

    def __init__(self, local: Path, form: ResultFormat, schema: pa.Schema) -> None:
        """Create the file. Raises InvalidRequestError: the format lacks the type of a column."""
        self._sink = local.open("wb")
        try:
            super().__init__(self._sink, form, schema)
        except BaseException:
            self._sink.close()
            raise

    @property
    def size_bytes(self) -> int:
        """How many bytes were written so far; they will not change."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises InvalidRequestError if the format lacks a value."""
        super().write(batch)
        self._sink.flush()  # so that what `size_bytes` counts can be read

    def close(self) -> None:
        """Complete the file; raises as `write`."""
        super().close()
        self._sink.close()

    def end(self) -> None:
        """Release what is held, whether the file is complete or not."""
        if not self._sink.closed:
            super().end()
            self._sink.close()


BATCH_ROWS = 64 * 1024
READABLE = (ResultFormat.arrow, ResultFormat.parquet)
"""The formats that are read back: those that have all types."""


def read_schema(stored: str, query_id: str) -> pa.Schema:
    """Return the columns of a result, by its manifest. Raises CorruptDataError."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored, validate=True)))
    except (ValueError, pa.ArrowException, OSError) as error:
        raise CorruptDataError(
            f"the manifest of query {query_id!r} has no schema", hint="ask again"
        ) from error


def read_rows(
    objects: StreamedObjects,
    form: ResultFormat,
    schema: pa.Schema,
    path: str,
    size_bytes: int,
    rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file that has these columns, and so many bytes and rows.

    Raises:
        InvalidRequestError: the format has not all types, so rows cannot be read back.
        NotFoundError: the file was deleted.
        CorruptDataError: it is damaged, or has other columns or rows.
    """
    if form not in READABLE:
        raise InvalidRequestError(
            f"a result in {form.value} is not read back: its types are those of text",
            hint=f"ask for {' or '.join(READABLE)}, or read the files themselves",
        )
    count = 0
    try:
        for batch in _batches(objects, form, path, size_bytes):
            batch.validate(full=True)
            if batch.schema.names != schema.names:  # the footer of Parquet has no checksum
                raise CorruptDataError(
                    f"{path} has other columns than its manifest says", hint="ask again"
                )
            count += batch.num_rows
            if batch.num_rows:
                yield conform(batch, schema)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # not of what was read, but of reading it
        raise CorruptDataError(f"{path} is damaged: {error}", hint="ask again") from error
    if count != rows:  # a stream of Arrow that is cut off between two batches ends like a whole one
        raise CorruptDataError(f"{path} has {count:,} rows, not {rows:,}", hint="ask again")


def _batches(
    objects: StreamedObjects, form: ResultFormat, path: str, size_bytes: int
) -> Iterator[pa.RecordBatch]:
    if form is ResultFormat.arrow:
        arriving = io.BufferedReader(_Arriving(objects.stream(path, size_bytes, 0, size_bytes)))
        with pa.ipc.open_stream(arriving) as reader:
            yield from reader
        return
    with objects.open(path, size_bytes) as file:
        parquet = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
        for group in range(parquet.num_row_groups):  # each is fetched by itself
            yield from parquet.iter_batches(BATCH_ROWS, row_groups=[group])


class _Arriving(io.RawIOBase):
    """Bytes that arrive in pieces, as a file that is read from its beginning."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        """Fill the buffer with bytes that are there, or the next to come; return how many."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        into = cast(memoryview, buffer)
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
