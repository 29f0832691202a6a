"""Read ingested Parquet files as batches of the table."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.arrow.types import Array, nulls
from dormouse.arrow.values import LISTS, VARIANT_AS_TEXT, is_variant, leaves, plain, rebuilt
from dormouse.errors import RefusedSourceError
from dormouse.files import casting
from dormouse.ports import Arrivals
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import NANOSECONDS, WHOLE, FieldType, contains_type, show_type
from dormouse.shards.thrift import Fields, has_field
from dormouse.storage import SeekableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# What the types of a Parquet file mean where Arrow does not say it.
#
# - ENUM is text (LogicalTypes.md of Parquet); Arrow reads bytes.
# - INT96 is a day and the nanoseconds in it. Arrow counts one unit in 64 bits: nanoseconds wrap
#   beyond the years 1677 to 2262, and larger units drop digits. Only seconds and nanoseconds
#   together say which time it is: seconds hold every day, and nanoseconds are right modulo 2^64.

_PER_SECOND = 1_000_000_000
_NANOSECONDS_HOLD = 2**63 // _PER_SECOND

_UNION_TAG = ("element1", "UINT_8")
_WIDE_INTEGERS = [("FIXED_LEN_BYTE_ARRAY", "NONE", size_bytes) for size_bytes in (16, 32)]
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def declared_schema(file: pq.ParquetFile, finer: Collection[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a file with text for ENUM, and instants for INT96: in nanoseconds
    in the columns `finer`, else in microseconds.

    INT96 is an instant unless the file was written from Arrow's times without a zone: Spark and
    Impala have no others, and write no more than the number.
    """
    columns = iter([file.schema.column(at) for at in range(len(file.schema))])
    arrow = _stored_schema(file.metadata)
    fields = []
    for field in file.schema_arrow:
        at = arrow.get_field_index(field.name) if arrow else -1
        zone = None if arrow and at >= 0 and "tz=" not in str(arrow.field(at).type) else "UTC"
        old: Any = pa.timestamp("ns" if field.name in finer else "us", zone)
        fields.append(field.with_type(_declared(field.type, columns, old)))
    return pa.schema(fields)


def remarks_on(file: pq.ParquetFile) -> dict[str, str]:
    """Return what columns were where the file was written, if their types do not say it."""
    writer = file.metadata.created_by or ""
    remarks = dict.fromkeys(_intervals_of_spark(file.metadata), "an INTERVAL of Spark")
    if is_legacy(file.metadata):
        days = (
            f.name for f in file.schema_arrow if re.search(r"(timestamp|date32)\[", str(f.type))
        )
        remarks = dict.fromkeys(days, "of Spark's legacy calendar, with other days before 1582,")
    for at in range(len(file.schema)):
        column = file.schema.column(at)
        name, _, part = column.path.partition(".")
        plain_bytes = column.physical_type, column.logical_type.type, column.length
        if column.converted_type == "INTERVAL":
            remarks[name] = "an INTERVAL"
        elif (part, column.converted_type) == _UNION_TAG and writer.startswith("DuckDB"):
            remarks[name] = "a UNION"
        elif plain_bytes in _WIDE_INTEGERS and writer.startswith("ClickHouse"):
            remarks[name] = f"an integer, an address or a text of {column.length} bytes"
    return remarks


def is_legacy(metadata: pq.FileMetaData) -> bool:
    """Return whether Spark wrote a file in its legacy calendar, Julian before 15 October 1582."""
    return any(mark in (metadata.metadata or {}) for mark in _LEGACY)


def check_calendar(column: Array) -> None:
    """Check that no date and time of a legacy file is one that Spark would convert.

    Spark converts dates before 15 October 1582, and times before 1900, when zones had local mean
    time (`spark.sql.parquet.datetimeRebaseModeInRead`).
    Raises ValueError: one is.
    """
    for leaf in leaves(column):
        if pa.types.is_date32(leaf.type):
            earliest: Any = pa.scalar(dt.date(1582, 10, 15))
        elif isinstance(leaf.type, pa.TimestampType):
            earliest = pa.scalar(dt.datetime(1900, 1, 1, tzinfo=dt.UTC)).cast(leaf.type)
        else:
            continue
        if pc.any(pc.less(leaf, earliest)).as_py():
            raise ValueError(
                "Spark wrote it in its legacy calendar: write the file with "
                "datetimeRebaseModeInWrite and int96RebaseModeInWrite CORRECTED"
            )


def _intervals_of_spark(metadata: pq.FileMetaData) -> list[str]:
    """Return the columns that are intervals to Spark, which writes plain numbers for them."""
    try:
        row = json.loads((metadata.metadata or {})[_SPARK_SCHEMA])
        return [f["name"] for f in row["fields"] if "interval " in str(f["type"])]
    except (KeyError, TypeError, ValueError, RecursionError):  # it is no schema of Spark
        return []


def old_times(schema: pa.Schema) -> list[str]:
    """Return the names of the columns with INT96, at any depth, in the schema of a file that is
    opened to read it in seconds: Parquet has no other times in seconds.
    """
    return [field.name for field in schema if "timestamp[s" in str(field.type)]


def paired(seconds: Array, nanoseconds: Array) -> Array:
    """Return a column of INT96, read in both units, as one column for `exact_times`."""
    names = ["seconds", "nanoseconds"]
    return pa.StructArray.from_arrays([seconds, nanoseconds], names, mask=seconds.is_null())


def exact_times(pair: Array, *, in_nanoseconds: bool) -> Array:
    """Return INT96 in microseconds or nanoseconds. Raises ValueError: the unit lacks a time."""
    seconds, nanoseconds = pair.flatten()  # type: ignore[attr-defined]  # it is a struct
    others = leaves(nanoseconds)

    def joined(leaf: Array) -> Array:
        finer = next(others)
        is_old = leaf.type == pa.timestamp("s") and finer.type == pa.timestamp("ns")
        return _joined(leaf, finer, in_nanoseconds) if is_old else leaf

    return rebuilt(seconds, joined)


def has_nanoseconds(pair: Array) -> bool:
    """Return whether a time of a column of INT96 has digits below its microsecond."""
    try:
        exact_times(pair, in_nanoseconds=False)
    except ValueError as error:
        return "microseconds" in str(error)
    return False


def _joined(leaf: Array, finer: Array, in_nanoseconds: bool) -> Array:
    seconds, count = leaf.cast(pa.int64()), finer.cast(pa.int64())
    last = _NANOSECONDS_HOLD - 1 if in_nanoseconds else casting.LAST_SECOND
    first = -_NANOSECONDS_HOLD if in_nanoseconds else casting.FIRST_SECOND
    limits: Any = pc.min_max(seconds).as_py()
    if limits["min"] is not None and not first <= limits["min"] <= limits["max"] <= last:
        raise ValueError(
            "nanoseconds hold the years 1677 to 2262"
            if in_nanoseconds
            else "times have the years 1 to 9999"
        )
    if in_nanoseconds:
        return count.cast(pa.timestamp("ns"))
    whole = pc.multiply(seconds, pa.scalar(_PER_SECOND))  # modulo 2^64, as the nanoseconds are
    rest = pc.subtract(count, whole)
    micros = pc.divide(rest, pa.scalar(1000))
    if not pc.all(pc.equal(pc.multiply(micros, pa.scalar(1000)), rest), min_count=0).as_py():
        raise ValueError("the time is finer than microseconds")
    return pc.add(pc.multiply(seconds, pa.scalar(1_000_000)), micros).cast(pa.timestamp("us"))


def _stored_schema(metadata: pq.FileMetaData) -> pa.Schema | None:
    """Return the schema that Arrow wrote into a file, if it can be read."""
    text = (metadata.metadata or {}).get(b"ARROW:schema")
    if text is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, ValueError):
        return None


def _declared(
    kind: pa.DataType, columns: Iterator[pq.ColumnSchema], old: pa.TimestampType[Any, Any]
) -> pa.DataType:
    """Return a type as its columns, which come in the order of the leaves, declare it."""

    def field(part: pa.Field[Any]) -> pa.Field[Any]:
        return part.with_type(_declared(part.type, columns, old))

    if isinstance(kind, pa.BaseExtensionType):
        _declared(kind.storage_type, columns, old)
        return kind
    if isinstance(kind, pa.StructType):
        return pa.struct([field(part) for part in kind])
    if isinstance(kind, pa.MapType):
        parts: Any = field(kind.key_field), field(kind.item_field)
        return cast(pa.DataType, pa.map_(*parts))
    if isinstance(kind, LISTS):
        return pa.list_(field(kind.value_field))
    column = next(columns)
    if column.logical_type.type == "ENUM":
        return pa.string()
    return old if column.physical_type == "INT96" else kind


READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LocalParquet:
    """A local file of full size, of which bytes may be missing; `arrivals` is None if none are."""

    path: Path
    arrivals: Arrivals | None = None

    def open(self) -> BinaryIO:
        """Open it to seek and read; a read waits for its bytes, and raises as the download."""
        if self.arrivals is None:
            return self.path.open("rb")
        return cast(BinaryIO, io.BufferedReader(_Arriving(self.path, self.arrivals), READ_BYTES))

    def wait(self) -> Path:
        """Return its path when all bytes are there. Raises what their download raised."""
        if self.arrivals is not None:
            self.arrivals.wait_for_all()
        return self.path


class _Arriving(SeekableFile):
    """A file whose reads wait for their bytes."""

    def __init__(self, path: Path, arrivals: Arrivals) -> None:
        self._file, self._arrivals = path.open("rb", buffering=0), arrivals
        super().__init__(path.stat().st_size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        end = self._arrivals.wait(self._at, self._at + len(view))
        self._file.seek(self._at)
        count = self._file.readinto(view[: max(0, end - self._at)])
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


# Read an ingested Parquet file in batches that are small in memory.
#
# A row group is looked at when it is its turn, so that the first rows can be read while later ones
# still arrive.
#
# Neither the size of a file nor its footer shows how much memory its rows need: a repeated value is
# stored once, null elements take no space, and zeros hardly any.

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 4 * 1024 * 1024
REPEATED_BYTES = 64 * 1024 * 1024
"""The largest size of a batch in which every value is the longest repeated one."""
SMALL_DICTIONARY_BYTES, INDEX_BYTES = 64 * 1024, 8
BATCH_ELEMENTS = 1024 * 1024
RUN_BYTES = 8 * 1024 * 1024
"""How many stored bytes of row groups are read as one."""
BUFFER_BYTES = 128 * 1024
"""How much of a column is read at once: row groups may be large, and the file is local. The rest of
a page is read to its place; more would be copied there."""
MAX_FOOTER_BYTES = 32 * 1024 * 1024
"""The footer of hundreds of thousands of column chunks. It takes eight times that in memory."""
TAIL_BYTES = 8
"""A file ends in the length of its footer, and its magic number."""
PLAIN_MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
ENCRYPTION_FIELDS: Fields = {8: None, 4: {1: {8: None, 9: None}}}
"""Where a footer that can be read names encryption (parquet.thrift): for the file, its
`encryption_algorithm`; for a column chunk of a row group, `crypto_metadata` or
`encrypted_column_metadata`."""
PROBE_ROWS = 64
NUMBER_BYTES = 8
"""What numbers and times take in memory at most, in a column that is not nested."""
MAX_ELEMENTS = 100_000_000
"""The most list elements in one row group: one row may have all of them."""
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 512 * 1024 * 1024, 1000
"""A column chunk that unpacks to more than this many bytes, and to more than this many times its
stored size, was made to exhaust memory: one page may hold all of it."""


@contextmanager
def open_parquet(
    local: LocalParquet,
    read_dictionary: list[str] | None = None,
    metadata: pq.FileMetaData | None = None,
    old_unit: str = "s",
) -> Iterator[pq.ParquetFile]:
    """Open a file to read its batches one after the other; `metadata` is its footer, if known.

    `old_unit` is what times of INT96 are counted in.
    Raises RefusedSourceError: it is encrypted, or its footer is too large to be held in memory; or
    the block finds that it is damaged, or has what Arrow does not read.
    """
    try:
        with local.open() as file:
            if metadata is None:
                _check_footer(file)
            with pq.ParquetFile(
                file if local.arrivals else local.path,  # which Arrow reads without Python
                metadata=metadata,
                read_dictionary=read_dictionary,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                coerce_int96_timestamp_unit=old_unit,
                page_checksum_verification=True,  # Spark writes page checksums
            ) as parquet:
                yield parquet
    except pa.ArrowNotImplementedError as error:
        raise casting.unreadable(f"the Parquet file ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _check_footer(file: BinaryIO) -> None:
    """Check that Arrow can look into a file.

    Asked for a column of a file that is encrypted in part, it ends the process.
    """
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(max(0, size_bytes - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
    footer_bytes, magic = int.from_bytes(tail[:4], "little"), tail[4:]
    if magic == ENCRYPTED_MAGIC:
        raise _encrypted()
    if magic != PLAIN_MAGIC or footer_bytes > size_bytes - TAIL_BYTES:
        return  # Arrow says what is wrong
    if footer_bytes > MAX_FOOTER_BYTES:
        raise RefusedSourceError(
            f"the footer has {footer_bytes:,} bytes; at most {MAX_FOOTER_BYTES:,} are possible",
            hint="write the file with larger row groups, or fewer columns",
        )
    file.seek(size_bytes - TAIL_BYTES - footer_bytes)
    try:
        if has_field(file.read(footer_bytes), ENCRYPTION_FIELDS):
            raise _encrypted()
    except (IndexError, RecursionError, ValueError) as error:
        raise RefusedSourceError(
            "the Parquet file cannot be read: its footer is damaged"
        ) from error


def _encrypted() -> RefusedSourceError:
    return RefusedSourceError(
        "the Parquet file is encrypted, as a whole or in part (modular encryption)",
        hint="write it without encryption; stored rows are encrypted by the storage they lie in",
    )


def read_batches(
    local: LocalParquet, file: pq.ParquetFile, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `file`, which is `local`, opened. Columns of INT96 are `paired`.

    A batch has the least of the lengths allowed by the footer's sizes of row groups, by the size of
    the first rows, and by the longest value that is stored once for many rows.
    Raises RefusedSourceError: a single row may be too large.
    """
    most, old = _most_rows(file), old_times(file.schema_arrow)
    with ExitStack() as stack:
        if old:
            finer = stack.enter_context(open_parquet(local, None, file.metadata, "ns"))
        for groups in _runs(file.metadata):
            repeated = REPEATED_BYTES // max(1, _longest_repeated(local, file.metadata, groups))
            rows = max(1, min(most, repeated))
            # one thread: the consumer of the batches works at the same time
            batches = file.iter_batches(rows, groups, columns, use_threads=False)
            if not old:
                yield from batches
                continue
            times = finer.iter_batches(rows, groups, old, use_threads=False)
            for batch, fine in zip(batches, times, strict=True):
                for name in old:
                    at = batch.schema.get_field_index(name)
                    pair = paired(batch.column(at), fine.column(name))
                    batch = batch.set_column(at, name, pair)
                yield batch


def _most_rows(file: pq.ParquetFile) -> int:
    """Return the largest batch length allowed by the footer, and by the size of the first rows."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    groups = [group for group in groups if group.num_rows > 0]
    limits = [BATCH_ROWS]
    for group in groups:
        limits += [_checked(group.column(i), group.num_rows) for i in range(group.num_columns)]
    widest = max((group.total_byte_size / group.num_rows for group in groups), default=0.0)
    fields = file.schema_arrow
    # to begin a column takes as long as to read thousands of its values
    uneven = [field.name for field in fields if not pa.types.is_primitive(field.type)]
    for probe in file.iter_batches(PROBE_ROWS, columns=uneven, use_threads=False):
        others_bytes = NUMBER_BYTES * (len(fields) - len(uneven))
        widest = max(widest, probe.nbytes / max(1, probe.num_rows) + others_bytes)
        break
    limits.append(int(BATCH_BYTES / max(widest, 1)))
    return min(limits)


def _runs(metadata: pq.FileMetaData) -> Iterator[list[int]]:
    """Yield the numbers of row groups in order, as many together as have `RUN_BYTES`, at least one:
    each start of a reader takes time.
    """
    run: list[int] = []
    size_bytes = 0
    for number in range(metadata.num_row_groups):
        run.append(number)
        group = metadata.row_group(number)
        size_bytes += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        if size_bytes >= RUN_BYTES:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def _checked(column: pq.ColumnChunkMetaData, rows: int) -> int:
    """Return how many rows of a column may be read at once, given its number of elements.
    Raises RefusedSourceError: it has too many elements, or unpacks to too much.
    """
    if column.num_values > rows and column.num_values > MAX_ELEMENTS:
        raise RefusedSourceError(
            f"a row group has {column.num_values:,} elements in one column; "
            f"at most {MAX_ELEMENTS:,} are possible",
            hint="write the file with smaller row groups",
        )
    unpacked, stored_bytes = column.total_uncompressed_size, column.total_compressed_size
    if unpacked > MAX_UNPACKED_BYTES and unpacked > MAX_UNPACK_RATIO * stored_bytes:
        raise RefusedSourceError(
            f"a column of a row group takes {stored_bytes:,} bytes and unpacks to {unpacked:,}",
            hint="write the file with smaller row groups",
        )
    return BATCH_ELEMENTS * rows // max(1, column.num_values)


def _longest_repeated(local: LocalParquet, metadata: pq.FileMetaData, groups: list[int]) -> int:
    """Return the length of the longest value in a dictionary of some row groups;
    reading any row reads the dictionary.
    """
    paths_by_group = {}
    for number in groups:
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        if paths := [column.path_in_schema for column in columns if _may_repeat(column)]:
            paths_by_group[number] = paths
    if not paths_by_group:
        return 0
    longest = 0
    every = sorted({path for paths in paths_by_group.values() for path in paths})
    with open_parquet(local, every, metadata) as file:
        for number, paths in paths_by_group.items():
            for batch in file.iter_batches(1, [number], paths, use_threads=False):
                for cells in chain.from_iterable(map(leaves, batch.columns)):
                    if isinstance(cells, pa.DictionaryArray):
                        lengths = pc.call_function("binary_length", [cells.dictionary])
                        longest = max(longest, pc.max(lengths).as_py() or 0)
                break
    return longest


def _may_repeat(column: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column has a dictionary whose values may be long and repeated often.

    A large dictionary beside which most values are stored plainly holds almost only distinct
    values: checking it would cost as much as reading the column.
    """
    if column.physical_type != "BYTE_ARRAY" or not column.has_dictionary_page:
        return False
    stored_bytes = column.data_page_offset - (column.dictionary_page_offset or 0)
    mostly_in_it = column.total_uncompressed_size <= INDEX_BYTES * column.num_values
    may_be_long = column.total_uncompressed_size > REPEATED_BYTES // BATCH_ROWS
    return may_be_long and (mostly_in_it or stored_bytes <= SMALL_DICTIONARY_BYTES)


def convert_arrow(
    batch: pa.RecordBatch, schema: Schema, place: casting.Place, converter: casting.Converter
) -> pa.RecordBatch:
    """Return a batch of a file or frame as rows of the table; `converter` is of `arrow_converter`.
    Raises RefusedSourceError: a column or a value does not fit the table.
    """
    columns = [
        _plain(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    plain_batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return casting.convert_batch(plain_batch, schema, place, converter)


def arrow_converter(
    source: pa.Schema, schema: Schema, *, of: str, declared: pa.Schema | None = None
) -> casting.Converter:
    """Return what converts the columns of an Arrow schema to those of the table.

    It refuses a column of another type at its first value: a library gives some type to a column
    without values, too. `of` says in errors what has the columns. `declared` is the schema with the
    types that a file names besides those of Arrow; either is good.
    """
    misfits = {}
    for field in schema.fields:
        at = source.get_field_index(field.name)
        if at < 0:
            continue
        kinds = [source.field(at).type, *([declared.field(at).type] if declared else [])]
        if not any(casting.can_cast(kind, field.type, field.unit) for kind in kinds):
            misfits[field.name] = partial(_misfit, field, kinds[-1], of)

    def converter(field: Field, column: Array) -> Array:
        if column.null_count == len(column):
            return nulls(len(column), field.type)
        if field.name in misfits:
            raise misfits[field.name]()
        return casting.cast_column(column, kind=field.type, unit=field.unit)

    return converter


def _plain(name: str, column: Array) -> Array:
    try:
        return plain(column)
    except pa.ArrowNotImplementedError as error:
        raise casting.unreadable(f"column {name!r}, which is {column.type}") from error


def _misfit(field: Field, kind: pa.DataType, of: str) -> RefusedSourceError:
    return RefusedSourceError(
        f"column {field.name!r} is {kind} in {of}; the table wants {show_type(field.type)}",
        hint=_hint(kind, field.type),
    )


def _hint(arrow: pa.DataType, kind: FieldType) -> str:
    if isinstance(arrow, pa.StructType) and is_variant(arrow):
        return f"that is a VARIANT: {VARIANT_AS_TEXT}"
    if pa.types.is_floating(arrow) and kind in WHOLE:
        return (
            "pandas makes floats of whole numbers beside nulls: convert_dtypes() makes Int64 of "
            "them again; beyond 2^53, read the column as Int64"
        )
    return casting.unit_hint(kind) if pa.types.is_integer(arrow) else ""


def read_parquet(local: LocalParquet, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; its columns may have narrower types than the table's.
    Raises RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    with open_parquet(local) as file:
        arrow, declared = file.schema_arrow, declared_schema(file)
        casting.check_columns(arrow.names, schema)
        converter = arrow_converter(arrow, schema, of="the file", declared=declared)
        converter = _of_times(converter, old_times(arrow), is_legacy=is_legacy(file.metadata))
        first = 0
        for batch in read_batches(local, file):
            place = partial(_place, file.metadata, first)
            yield convert_arrow(batch, schema, place, converter)
            first += batch.num_rows


def _of_times(
    converter: casting.Converter, old: Collection[str], *, is_legacy: bool
) -> casting.Converter:
    """Return a converter that also takes the pairs that columns of INT96 are read as, and refuses
    what Spark's legacy calendar has made of early days.
    """

    def of_field(field: Field, column: Array) -> Array:
        if field.name in old:
            in_nanoseconds = any(contains_type(field.type, kind) for kind in NANOSECONDS)
            column = exact_times(column, in_nanoseconds=in_nanoseconds)
        times = converter(field, column)
        if is_legacy:
            check_calendar(times)
        return times

    return of_field


def _place(metadata: pq.FileMetaData, first: int, row: int) -> str:
    """Return where a row is in a file and its row groups; messages count both from 1."""
    at = first + row
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if at < rows:
            return f"row {first + row + 1}, which is row {at + 1} of row group {number + 1}"
        at -= rows
    return f"row {first + row + 1}"


FILE_MAGIC, STREAM_MAGIC = b"ARROW1", b"\xff\xff\xff\xff"
_COLUMN = re.compile(r"In column (\d+):")
CONVERTED_ROWS = 64 * 1024
"""The most rows that are converted at once: a file may be a single batch."""


def read_arrow(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow file; its columns may have narrower types than the table's.
    Raises RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    with opened_arrow(local) as (arrow, batches):
        casting.check_columns(arrow.names, schema)
        converter = arrow_converter(arrow, schema, of="the file")
        first = 0
        for batch in batches:
            for start in range(0, batch.num_rows, CONVERTED_ROWS):
                part = batch.slice(start, CONVERTED_ROWS)
                yield convert_arrow(part, schema, casting.rows_after(first), converter)
                first += part.num_rows


@contextmanager
def opened_arrow(local: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open a file; yield its schema and its batches, each validated. Raises RefusedSourceError."""
    with local.open("rb") as file:
        is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    try:
        with pa.memory_map(str(local)) as mapped:
            if is_file:
                with pa.ipc.open_file(mapped) as file_reader:
                    numbers = range(file_reader.num_record_batches)
                    yield file_reader.schema, _validated(map(file_reader.get_batch, numbers))
            else:
                with pa.ipc.open_stream(mapped) as reader:
                    yield reader.schema, _validated(reader)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names are decoded late
        raise RefusedSourceError(f"the Arrow file cannot be read: {error}") from error


def _validated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            batch.validate(full=True)  # else a damaged offset would be followed out of the file
        except pa.ArrowInvalid as error:  # which may quote a value
            at = _COLUMN.match(str(error))
            where = f"column {batch.schema.names[int(at[1])]!r} of " if at else ""
            raise RefusedSourceError(
                f"{where}the Arrow file has values that its type does not allow, or is damaged"
            ) from error
        yield batch
