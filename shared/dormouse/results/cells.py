"""The values of Arrow columns in the types that JSON has.

Times and dates are ISO 8601 (timestamps with Z if they are of a zone, and then in UTC), durations
too, UUIDs and decimals text, bytes base64. JSON has no word for the floats that are no finite
numbers: they are the texts ``NaN``, ``Infinity`` and ``-Infinity``, so that they stay apart from
null. A map is a JSON object, its keys as text. Times and dates beyond the years 1 to 9999 are
numbers: counts of the column's unit, and days, since 1970. All types of a table are read back as
they were; statements in SQL may have others, whose values are exact.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.results.unwritable import refusing_unwritable
from dormouse.schema.times import show_clock
from dormouse.schema.types import UUID_BYTES
from dormouse.schema.uuids import show_uuid

_ISO_SECONDS = (-62_135_596_800, 253_402_300_799)
_ISO_DAYS = (-719_162, 2_932_896)
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits that each unit of time has after the second."""

Cells = Sequence[object]
"""The values of a column in the types that JSON has."""


def json_cells(column: pa.Array[Any]) -> Cells:
    """Return a column's values in the types that JSON has, as the module's docstring says."""
    column = _in_plain_form(column)
    kind = column.type
    if isinstance(column, pa.ExtensionArray):  # of UUIDs, the only such type there is
        return json_cells(column.storage)
    if isinstance(column, pa.MapArray | pa.StructArray | pa.ListArray):
        return _nested_cells(column)
    for applies, convert_column in _COLUMNS:
        if applies(kind):
            return convert_column(column)
    values: Cells = column.to_pylist()
    for applies, convert in _CONVERSIONS:
        if applies(kind):
            return [None if value is None else convert(value) for value in values]
    return values


def _in_plain_form(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the same values as lists, bytes, texts and dates of the usual kind: a statement may
    return others.
    """
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
    is_fine = column.type == pa.time64("ns")
    return [
        None if count is None else _clock(count) if is_fine else show_clock(count)
        for count in column.cast(pa.int64()).to_pylist()
    ]


def _clock(nanoseconds: int) -> str:
    """Return a time of day, with nanoseconds if it has any."""
    microseconds, finer = divmod(nanoseconds, 1000)
    text = show_clock(microseconds)
    return f"{text}{'' if '.' in text else '.000000'}{finer:03d}" if finer else text


def _singles(column: pa.Array[Any]) -> Cells:
    """Return floats of 32 bits with the fewest digits that give them back."""
    texts = column.cast(pa.string()).to_pylist()
    return [None if text is None else _finite(float(text)) for text in texts]


def _durations(column: pa.Array[Any]) -> Cells:
    digits = _UNITS[column.type.unit]
    counts = column.cast(pa.int64()).to_pylist()
    return [None if count is None else _duration(count, digits) for count in counts]


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


def _uuid_or_base64(value: bytes) -> str:
    return show_uuid(value) if len(value) == UUID_BYTES else base64.b64encode(value).decode()


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
    (pa.types.is_binary, lambda value: base64.b64encode(value).decode()),
    (pa.types.is_decimal, lambda value: format(value, "f")),
    (pa.types.is_fixed_size_binary, _uuid_or_base64),
    (pa.types.is_interval, _interval),
)


def json_text(value: object) -> str:
    """Return a value in one of the types that JSON has as text, as it is or as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@refusing_unwritable()
def json_objects(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Return the rows of a batch as JSON objects.

    Raises:
        InvalidRequestError: a value has no form.
    """
    names = batch.schema.names
    columns = [json_cells(column) for column in batch.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
