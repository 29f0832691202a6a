"""Read VARIANT as it lies in Parquet files, as JSON: its binary form, and what of it is shredded.

The form is that of Parquet's VariantEncoding.md and VariantShredding.md. `metadata` has the names
of fields. `value` has a value, or what is left of it beside `typed_value`, which has values of one
type: plain ones, a list of such groups, or a struct of them.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice, pairwise, repeat
from typing import Any, Final

import msgspec
import pyarrow as pa

from dormouse.arrow.documents import MAX_DEPTH
from dormouse.arrow.types import Array
from dormouse.arrow.values import LISTS
from dormouse.files.results import json_cells, json_values

_MISSING: Final = object()
_INTEGERS = {3: "<b", 4: "<h", 5: "<i", 6: "<q"}
_FLOATS = {7: "<d", 14: "<f"}
_DECIMALS = {8: 4, 9: 8, 10: 16}
_TIMES: dict[int, tuple[str, pa.DataType]] = {
    11: ("<i", pa.date32()),
    12: ("<q", pa.timestamp("us", "UTC")),
    13: ("<q", pa.timestamp("us")),
    17: ("<q", pa.time64("us")),
    18: ("<q", pa.timestamp("ns", "UTC")),
    19: ("<q", pa.timestamp("ns")),
}
_BINARY, _STRING, _UUID = 15, 16, 20


def variant_texts(column: Array) -> Iterator[bytes | None]:
    """Yield the values of a column of VARIANT as JSON documents; none for null.
    Raises ValueError: one is damaged, or has a number that JSON has not.
    """
    there: Any = column.filter(column.is_valid())  # where it is null, its parts are empty bytes
    try:
        values = iter(_values(there, [*map(_names, there.field("metadata").to_pylist())], 0))
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise ValueError("the VARIANT is damaged") from error
    encode = msgspec.json.Encoder().encode
    for is_there in column.is_valid().to_pylist():
        value = next(values) if is_there else _MISSING
        yield None if value is _MISSING else encode(value)


def _names(data: bytes) -> list[str]:
    head = data[0]
    if head & 15 != 1:
        raise ValueError("the VARIANT is of an unknown version")
    width = (head >> 6) + 1
    count = _number(data, 1, width)
    offsets = _numbers(data, 1 + width, width, count + 1)
    start = 1 + width * (count + 2)
    pairs = pairwise(offsets)
    return [_slice(data, start + at, end - at).decode() for at, end in pairs]


def _values(group: Any, names: Sequence[Sequence[str]], depth: int) -> list[object]:
    """Return the values of groups of `value` and `typed_value`, whose names of fields are these."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the VARIANT is nested deeper than {MAX_DEPTH}")
    parts = dict(zip((field.name for field in group.type), group.flatten(), strict=True))
    rest: list[Any] = [None] * len(group)
    if "value" in parts:
        encoded = zip(parts["value"].to_pylist(), names, strict=True)
        rest = [
            None if data is None else (_Encoded(data, of_value).value(0, depth),)
            for data, of_value in encoded
        ]
    typed: list[object] = [_MISSING] * len(group)
    if "typed_value" in parts:
        typed = _typed(parts["typed_value"], names, depth + 1)
    return [_joined(objects, value) for objects, value in zip(rest, typed, strict=True)]


def _joined(rest: tuple[object] | None, typed: object) -> object:
    if rest is None:
        return typed
    if typed is _MISSING:
        return rest[0]
    if not isinstance(typed, dict) or not isinstance(rest[0], dict):
        raise ValueError("the VARIANT has two values for one")
    return {**rest[0], **typed}


def _typed(column: Any, names: Sequence[Sequence[str]], depth: int) -> list[object]:
    valid = column.is_valid().to_pylist()
    cells: Iterator[object]
    if isinstance(column.type, pa.StructType):
        fields = [field.name for field in column.type]
        members = [_values(member, names, depth) for member in column.flatten()]
        cells = (
            {n: v for n, v in zip(fields, row, strict=True) if v is not _MISSING}
            for _, *row in zip(valid, *members, strict=True)
        )
    elif isinstance(column.type, LISTS):
        lengths = [length or 0 for length in column.value_lengths().to_pylist()]
        of_items = chain.from_iterable(map(repeat, names, lengths))
        values = _values(column.flatten(), list(of_items), depth)
        if _MISSING in values:
            raise ValueError("the VARIANT lacks an element of an array")
        items = iter(values)
        cells = (list(islice(items, length)) for length in lengths)
    else:
        cells = iter(json_values(column))
    return [cell if there else _MISSING for cell, there in zip(cells, valid, strict=True)]


@dataclass(slots=True)
class _Encoded:
    """The bytes of a value, and the names of fields; `count` is of the values read so far, and
    characters of texts: no two lie at one place, though offsets may say so.
    """

    data: bytes
    names: Sequence[str]
    count: int = 0

    def value(self, at: int, depth: int) -> object:
        """Return the value that begins at an offset."""
        data = self.data
        self.count += 1
        if depth > MAX_DEPTH or self.count > 2 * len(data):
            raise ValueError(f"the VARIANT is damaged, or nested deeper than {MAX_DEPTH}")
        basic, header = data[at] & 3, data[at] >> 2
        if basic < 2:
            is_text = basic == 1
            part = (
                _slice(data, at + 1, header).decode()
                if is_text
                else _primitive(data, at + 1, header)
            )
            self.count += len(part) if isinstance(part, str) else 0
            return part
        width = (header & 3) + 1
        is_object = basic == 2
        is_large = header >> (4 if is_object else 2) & 1
        count_width = 4 if is_large else 1
        count = _number(data, at + 1, count_width)
        at += 1 + count_width
        ids: Sequence[int] = ()
        if is_object:
            id_width = (header >> 2 & 3) + 1
            ids = _numbers(data, at, id_width, count)
            at += id_width * count
        offsets = _numbers(data, at, width, count + 1)
        start = at + width * (count + 1)
        values = [self.value(start + offset, depth + 1) for offset in offsets[:count]]
        names = [self.names[i] for i in ids]
        return dict(zip(names, values, strict=True)) if is_object else values


def _primitive(data: bytes, at: int, kind: int) -> object:
    if kind < 3:
        return (None, True, False)[kind]
    if kind in _INTEGERS:
        return struct.unpack_from(_INTEGERS[kind], data, at)[0]
    if kind in _DECIMALS:
        scale, width = data[at], _DECIMALS[kind]
        unscaled = int.from_bytes(_slice(data, at + 1, width), "little", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return msgspec.Raw(f"{Decimal((unscaled < 0, digits, -scale)):f}".encode())
    if kind in (_BINARY, _STRING):
        body = _slice(data, at + 4, _number(data, at, 4))
        return body.decode() if kind == _STRING else _cell(body, pa.binary())
    if kind == _UUID:
        return _cell(_slice(data, at, 16), pa.binary(16))
    if kind in _FLOATS:
        (value,) = struct.unpack_from(_FLOATS[kind], data, at)
        return _cell(value, pa.float64() if kind == 7 else pa.float32(), json_values)
    if kind in _TIMES:
        form, of_time = _TIMES[kind]
        (value,) = struct.unpack_from(form, data, at)
        return _cell(value, of_time)
    raise ValueError("the VARIANT has a value of an unknown type")


def _cell(
    value: object, kind: pa.DataType, show: Callable[[Any], Sequence[object]] = json_cells
) -> object:
    """Return a value as a JSON line has it."""
    return show(pa.array([value], kind))[0]


def _slice(data: bytes, start: int, length: int) -> bytes:
    if length < 0 or start + length > len(data):
        raise IndexError
    return data[start : start + length]


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(_slice(data, at, width), "little")


def _numbers(data: bytes, at: int, width: int, count: int) -> list[int]:
    body = _slice(data, at, width * count)
    return [int.from_bytes(body[i : i + width], "little") for i in range(0, len(body), width)]
