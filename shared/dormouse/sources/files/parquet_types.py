"""What the types of a Parquet file mean where Arrow does not say it.

- ENUM is text (LogicalTypes.md of Parquet); Arrow reads bytes.
- INT96 is a day and the nanoseconds in it. Arrow counts one unit in 64 bits: nanoseconds wrap
  beyond the years 1677 to 2262, and larger units drop digits. Only seconds and nanoseconds together
  say which time it is: seconds hold every day, and nanoseconds are right modulo 2^64.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.arrow.plain import LISTS, leaves, rebuilt
from dormouse.arrow.types import Array
from dormouse.sources.cells.text_cells import FIRST_SECOND, LAST_SECOND

_PER_SECOND = 1_000_000_000
_NANOSECONDS_HOLD = 2**63 // _PER_SECOND

_UNION_TAG = ("element1", "UINT_8")
_WIDE_INTEGERS = [("FIXED_LEN_BYTE_ARRAY", "NONE", size_bytes) for size_bytes in (16, 32)]
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_DAYS = re.compile(r"(timestamp|date32)\[")
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def declared_schema(file: pq.ParquetFile, finer: Collection[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a file with text for ENUM, and instants for INT96: in nanoseconds
    in the columns `finer`, else in microseconds.

    INT96 is an instant unless the file was written from Arrow's times without a zone: Spark and
    Impala have no others, and write no more than the number.
    """
    columns = iter([file.schema.column(at) for at in range(len(file.schema))])
    stored = _stored_schema(file.metadata)
    found = []
    for field in file.schema_arrow:
        at = stored.get_field_index(field.name) if stored else -1
        zone = None if stored and at >= 0 and "tz=" not in str(stored.field(at).type) else "UTC"
        old: Any = pa.timestamp("ns" if field.name in finer else "us", zone)
        found.append(field.with_type(_declared(field.type, columns, old)))
    return pa.schema(found)


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

    Raises:
        ValueError: one is.
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
    """Return a column of INT96 in microseconds or nanoseconds.

    Raises:
        ValueError: the unit does not hold a time.
    """
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
    last = _NANOSECONDS_HOLD - 1 if in_nanoseconds else LAST_SECOND
    first = -_NANOSECONDS_HOLD if in_nanoseconds else FIRST_SECOND
    found: Any = pc.min_max(seconds).as_py()
    if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
        raise ValueError(
            "nanoseconds hold the years 1677 to 2262"
            if in_nanoseconds
            else "times have the years 0 to 9999"
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
