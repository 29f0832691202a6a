"""Rows on their way out: JSON lines, CSV, Arrow, Parquet and tables for people.

Rows are written batch by batch as they come; only a table for people holds all it shows. In JSON
and CSV, times and dates are ISO 8601 (timestamps with Z if they are of UTC), UUIDs and decimals
text, bytes base64. JSON
has no word for the floats that are no finite numbers: they are the texts ``NaN``, ``Infinity`` and
``-Infinity``, so that they stay apart from null. A map is a JSON object, its keys as text. Times
and dates beyond the years 1 to 9999 are numbers: microseconds and days since 1970.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from io import IOBase
from itertools import islice, pairwise
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from dormouse.schema.times import show_clock
from dormouse.schema.uuids import show_uuid
from dormouse_cli.terminal import json_lines

_ISO_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_ISO_DAYS = (-719_162, 2_932_896)

Cells = Sequence[object]
"""The values of a column in the types that JSON has."""

Writer = Callable[[pa.RecordBatchReader, BinaryIO], int]
"""Writes all rows and gives their number."""


def write_json(rows: pa.RecordBatchReader, sink: BinaryIO) -> int:
    """Write a JSON object a line for each row."""
    count = 0
    for batch in rows:
        sink.write(json_lines(list(_objects(batch))))
        count += batch.num_rows
    return count


def write_csv(rows: pa.RecordBatchReader, sink: BinaryIO) -> int:
    """Write a header and a line for each row; a null is empty, an empty string is quoted."""
    schema, count = pa.schema([_csv_field(f) for f in rows.schema]), 0
    with csv.CSVWriter(sink, schema) as writer:
        for batch in rows:
            columns = [_csv_column(batch.column(i), f.type) for i, f in enumerate(schema)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            count += batch.num_rows
    return count


def write_parquet(rows: pa.RecordBatchReader, sink: BinaryIO) -> int:
    """Write a Parquet file with the types the table has."""
    count = 0
    with pq.ParquetWriter(sink, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def write_arrow(rows: pa.RecordBatchReader, sink: BinaryIO) -> int:
    """Write an Arrow stream with the types the rows have."""
    count = 0
    with pa.ipc.new_stream(cast(IOBase, sink), rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def first_rows(rows: pa.RecordBatchReader, limit: int) -> tuple[list[Cells], bool]:
    """Return the first `limit` rows in the types that JSON has, and whether there are more."""
    shown: list[Cells] = []
    for batch in rows:
        few = batch.slice(0, limit + 1 - len(shown))
        shown += zip(*(json_cells(column) for column in few.columns), strict=True)
        if len(shown) > limit:
            break
    return shown[:limit], len(shown) > limit


def json_cells(column: pa.Array[Any]) -> Cells:
    """Return a column's values in the types that JSON has, as the module's docstring says."""
    kind = column.type
    if isinstance(kind, pa.TimestampType):
        text = pc.strftime(column, format=f"%Y-%m-%dT%H:%M:%S{'Z' if kind.tz else ''}")
        short = pc.replace_substring_regex(text, pattern=r"[.]0+(Z?)$", replacement=r"\1")
        if kind.unit == "ns":  # whose years all have four digits
            return pc.replace_substring_regex(
                short, pattern=r"([.][0-9]{6})000(Z?)$", replacement=r"\1\2"
            ).to_pylist()
        return _iso_or_number(short.to_pylist(), column.cast(pa.int64()), _ISO_MICROSECONDS)
    if pa.types.is_time64(kind):
        counts = column.cast(pa.int64()).to_pylist()
        return [None if count is None else show_clock(count) for count in counts]
    if isinstance(column, pa.ExtensionArray):  # of UUIDs, the only such type there is
        return json_cells(column.storage)
    if pa.types.is_fixed_size_binary(kind):
        return [None if uuid is None else show_uuid(uuid) for uuid in column.to_pylist()]
    if pa.types.is_date(kind):
        texts = column.cast(pa.string()).to_pylist()
        return _iso_or_number(texts, column.cast(pa.int32()), _ISO_DAYS)
    if isinstance(column, pa.MapArray | pa.StructArray | pa.ListArray):
        return _nested_cells(column)
    values: Cells = column.to_pylist()
    for applies, convert in _CONVERSIONS:
        if applies(kind):
            return [None if value is None else convert(value) for value in values]
    return values


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


def _nested_cells(column: pa.MapArray[Any, Any] | pa.StructArray | pa.ListArray[Any]) -> Cells:
    if isinstance(column, pa.StructArray):
        names = [field.name for field in column.type]
        members = zip(*(json_cells(member) for member in column.flatten()), strict=True)
        cells: Iterator[object] = (dict(zip(names, values, strict=True)) for values in members)
    elif isinstance(column, pa.MapArray):
        texts = [json_text(key) for key in json_cells(_items(column, column.keys))]
        entries = zip(texts, json_cells(_items(column, column.items)), strict=True)
        cells = (dict(islice(entries, length)) for length in _lengths(column))
    else:
        items = iter(json_cells(_items(column, column.values)))
        cells = (list(islice(items, length)) for length in _lengths(column))
    valid = column.is_valid().to_pylist()
    return [cell if there else None for cell, there in zip(cells, valid, strict=True)]


def _items(lists: pa.ListArray[Any], all_items: pa.Array[Any]) -> pa.Array[Any]:
    """Return what lists hold; they may be a slice of those that `all_items` belongs to."""
    first, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return all_items.slice(first, end - first)


def _lengths(lists: pa.ListArray[Any]) -> Iterator[int]:
    offsets = cast(list[int], lists.offsets.to_pylist())
    return (end - start for start, end in pairwise(offsets))


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], object]], ...] = (
    (pa.types.is_floating, _finite),
    (pa.types.is_binary, lambda value: base64.b64encode(value).decode()),
    (pa.types.is_decimal, lambda value: format(value, "f")),
)


def json_text(value: object) -> str:
    """Return a value in one of the types that JSON has as text, as it is or as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    names = batch.schema.names
    columns = [json_cells(column) for column in batch.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _csv_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return field if _csv_has(field.type) else pa.field(field.name, pa.string())


def _csv_has(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)
    return is_plain or pa.types.is_boolean(kind)


def _csv_column(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if _csv_has(column.type):
        return column
    texts = [None if value is None else json_text(value) for value in json_cells(column)]
    return pa.array(texts, kind)
