"""Thrift's compact protocol, as far as Parquet's page headers and footers need it.

Parquet describes its pages and columns by structs of this protocol. pyarrow reads and writes whole
files by them, but offers no single page; `decoding` and `parquet` need these few. Nor does it say
whether a footer names encryption, which has to be known before its columns are asked for.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from dormouse.errors import CorruptDataError

Body = bytes | memoryview

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE = 1, 2, 3, 4, 5, 6, 7
BINARY, LIST, SET, MAP, STRUCT, UUID = 8, 9, 10, 11, 12, 13
"""The types of values, as the protocol numbers them."""

Field = tuple[int, int, bytes]
"""A field of a struct to be written: its number, its type, and its encoded value."""
Fields = Mapping[int, "Fields | None"]
"""Fields of a struct to look for by their numbers: None, or those of the structs in that field."""
_MAX_VARINT_BITS = 70
"""An integer of 64 bits has at most ten bytes of seven bits."""

Edit = Callable[[Body, int], tuple[bytes, int]]
"""Returns what is to be written for the value at an offset, and the offset after that value."""


def read_varint(body: Body, at: int) -> tuple[int, int]:
    """Return the unsigned integer at an offset, and the offset after it."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= _MAX_VARINT_BITS:
            raise ValueError("an integer has more than 64 bits")


def has_field(body: Body, fields: Fields) -> bool:
    """Return whether the struct at the beginning has one of some fields, at any of their depths.

    Nothing is built in memory, however large the struct is.

    Raises:
        IndexError: the body ends before the struct does.
        RecursionError: it is nested too deeply.
        ValueError: a field has a type that the protocol has not, or too large an integer.
    """
    try:
        _after_struct(body, 0, fields)
    except _HasFieldError:
        return True
    return False


class _HasFieldError(Exception):
    """A struct has a field that was looked for."""


def _after_struct(body: Body, at: int, fields: Fields) -> int:
    """Return the offset after a struct. Raises _HasFieldError: it has one of `fields`."""
    number = 0
    while kind := (head := body[at]) & 0x0F:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = read_signed(body, at)
        number &= 0xFFFF  # as readers in C++ do, who keep it in 16 bits
        inner = fields.get(number, _NOTHING)
        if inner is None:
            raise _HasFieldError
        if kind not in (TRUE, FALSE):  # the type of a truth value is its value
            at = _after_value(kind, body, at, inner)
    return at + 1


def _after_value(kind: int, body: Body, at: int, fields: Fields) -> int:
    if kind in (INT16, INT32, INT64):
        while body[at] > 0x7F:
            at += 1
        return at + 1
    if kind == STRUCT:
        return _after_struct(body, at, fields)
    if kind == BINARY:
        length, at = read_varint(body, at)
        return at + length
    if kind in _FIXED_BYTES:
        return at + _FIXED_BYTES[kind]
    if kind in (LIST, SET):
        length, item, at = read_list_head(body, at)
        kinds: tuple[int, ...] = (item,)
    elif kind == MAP:
        length, at = read_varint(body, at)
        kinds, at = (body[at] >> 4, body[at] & 0x0F) if length else (), at + bool(length)
    else:
        raise ValueError(f"Thrift's compact protocol has no type {kind}")
    for _ in range(length):
        for each in kinds:
            at = _after_value(each, body, at, fields)
    return at


_FIXED_BYTES = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
_NOTHING: Fields = {}


def read_struct(body: Body, at: int) -> tuple[dict[int, Any], int]:
    """Return the values of the struct at an offset by their field numbers, and the offset after it.

    Raises:
        IndexError: the body ends before the struct does.
        ValueError: a field has a type that Parquet does not use.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := body[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = read_signed(body, at)
        kind = head & 0x0F
        if kind in (INT32, INT64):  # most fields are, so they are read here
            value = shift = 0
            while (byte := body[at]) > 0x7F:
                value |= (byte & 0x7F) << shift
                shift += 7
                at += 1
            value |= byte << shift
            at += 1
            fields[number] = (value >> 1) ^ -(value & 1)
        elif kind in (TRUE, FALSE):
            fields[number] = kind == TRUE
        else:
            fields[number], at = _read_value(kind, body, at)
    return fields, at + 1


def _read_value(kind: int, body: Body, at: int) -> tuple[Any, int]:
    if kind in (INT16, INT32, INT64):
        return read_signed(body, at)
    if kind == STRUCT:
        return read_struct(body, at)
    if kind == BINARY:
        length, at = read_varint(body, at)
        return bytes(body[at : at + length]), at + length
    if kind in (LIST, SET):
        return _read_list(body, at)
    if kind in (TRUE, FALSE, BYTE):  # in a list, a truth value is a byte as any
        return body[at], at + 1
    if kind == DOUBLE:
        return bytes(body[at : at + 8]), at + 8
    raise ValueError(f"Thrift's type {kind} is none that Parquet uses")


def read_list_head(body: Body, at: int) -> tuple[int, int, int]:
    """Return the length and the type of the list at an offset, and the offset of its first item."""
    head, at = body[at], at + 1
    if head >> 4 < 15:
        return head >> 4, head & 0x0F, at
    length, at = read_varint(body, at)
    return length, head & 0x0F, at


def _read_list(body: Body, at: int) -> tuple[list[Any], int]:
    length, kind, at = read_list_head(body, at)
    items = []
    for _ in range(length):
        item, at = _read_value(kind, body, at)
        items.append(item)
    return items, at


def read_signed(body: Body, at: int) -> tuple[int, int]:
    """Return the integer at an offset, and the offset after it."""
    value, at = read_varint(body, at)
    return (value >> 1) ^ -(value & 1), at


def edit_struct(body: Body, at: int, edits: Mapping[int, Edit | None]) -> tuple[bytes, int]:
    """Return the encoded form of the struct at an offset, and the offset after it. The fields whose
    numbers are in `edits` are edited, or left out (None); the others stay as they are.

    Raises:
        IndexError: the body ends before the struct does.
        ValueError: a field has a type that Parquet does not use.
    """
    fields: list[Field] = []
    number = 0
    while head := body[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = read_signed(body, at)
        kind, start = head & 0x0F, at
        edit = edits.get(number)
        if edit is not None:
            value, at = edit(body, at)
            fields.append((number, kind, value))
            continue
        if kind not in (TRUE, FALSE):  # these are in the head
            at = _after_value(kind, body, at, _NOTHING)
        if number not in edits:
            fields.append((number, kind, bytes(body[start:at])))
    return struct(fields), at + 1


def edit_list(
    body: Body, at: int, edit: Callable[[int, Body, int], tuple[bytes, int]]
) -> tuple[bytes, int]:
    """Return the encoded form of the list at an offset, and the offset after it; each item is
    edited, given its place.
    """
    length, kind, at = read_list_head(body, at)
    items = []
    for place in range(length):
        item, at = edit(place, body, at)
        items.append(item)
    return list_of(kind, items), at


_OCTETS = [bytes((octet,)) for octet in range(256)]


def varint(value: int) -> bytes:
    """Return the encoded form of an unsigned integer."""
    if value < 0x80:
        return _OCTETS[value]
    return _OCTETS[value & 0x7F | 0x80] + varint(value >> 7)


def signed(value: int) -> bytes:
    """Return the encoded form of an integer."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def binary(value: bytes) -> bytes:
    """Return the encoded form of a string of bytes."""
    return varint(len(value)) + value


def list_of(kind: int, items: Iterable[bytes]) -> bytes:
    """Return the encoded form of a list of encoded items."""
    parts = list(items)
    short = len(parts) < 15
    head = bytes([len(parts) << 4 | kind]) if short else bytes([0xF0 | kind]) + varint(len(parts))
    return head + b"".join(parts)


def struct(fields: Iterable[Field]) -> bytes:
    """Return the encoded form of a struct. Requires: fields ascend by at most 15."""
    parts: list[bytes] = []
    last = 0
    for number, kind, value in fields:
        parts += (_OCTETS[(number - last) << 4 | kind], value)
        last = number
    parts.append(b"\0")
    return b"".join(parts)


# The pages of a column chunk: where each begins, and which rows it holds.
#
# A page is the smallest part of a Parquet file that can be decoded. The chunk must have been
# verified by its CRC, which covers the headers of its pages, too.

_DATA, _DICTIONARY = 0, 2
_TYPE, _PLAIN_BYTES, _STORED_BYTES, _DATA_HEADER, _VALUES = 1, 2, 3, 5, 1
"""Types of pages, and fields of their headers, as Parquet numbers them."""


_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_USUAL_HEADER = re.compile(
    rb"\x15\0\x15(%b)\x15(%b)\x15%b\x1c\x15(%b)\x15%b\x15%b\x15%b\0\0" % ((_VARINT,) * 7)
)
"""The header of a page of rows as pyarrow writes it: its type, its sizes, its CRC, and how many
values it has in which encodings. Field by field, it takes four times as long to read.
"""


@lru_cache(maxsize=4096)
def _size_of(varint: bytes) -> int:
    return read_signed(varint, 0)[0]


class DataPage(NamedTuple):
    """A page of rows: its offsets in the chunk, header included; its rows, counted from the first
    page that is looked at; and its size before it was compressed.
    """

    start: int
    end: int
    first_row: int
    end_row: int
    plain_bytes: int


def pages_of(chunk: Body) -> list[DataPage]:
    """Return the pages of a verified chunk, or of a part of it, of which there is one at least; a
    dictionary may precede them. In a nested column, they count values and not rows.
    Raises CorruptDataError: they are in a form that Dormouse does not write.
    """
    pages: list[DataPage] = []
    at = row = 0
    while at < len(chunk):
        if usual := _USUAL_HEADER.match(chunk, at):
            plain_bytes, stored_bytes, rows = map(_size_of, usual.groups())
            kind, body = _DATA, usual.end()
        else:
            header, body = read_struct(chunk, at)
            kind, plain_bytes = header[_TYPE], header[_PLAIN_BYTES]
            stored_bytes = header[_STORED_BYTES]
            rows = header[_DATA_HEADER][_VALUES] if kind == _DATA else 0
        if stored_bytes < 0:
            raise CorruptDataError("a page has a negative size")
        end = body + stored_bytes
        if kind == _DATA:  # nulls are among its values: one a row, unless the column is nested
            pages.append(DataPage(at, end, row, row + rows, plain_bytes))
            row += rows
        elif kind != _DICTIONARY or pages:
            raise CorruptDataError(f"a page is of the unknown type {kind}")
        at = end
    if not pages:
        raise CorruptDataError("a column chunk has no pages")
    return pages
