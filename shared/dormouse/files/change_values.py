"""Convert values as Debezium and AWS DMS write them into the JSON that is read as a table's types.

A message of Debezium may say what its values are (the schema part). Without it, a value is read by
the type of its column, and refused where that leaves two meanings.
"""

from __future__ import annotations

import base64
import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from dormouse.arrow.documents import document
from dormouse.files.casting import NUMBER
from dormouse.schema.schema import Field
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    WHOLE,
    ZONED,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    StructType,
    from_days,
    show_clock,
    show_count,
)

Convert = Callable[[bytes], bytes]
"""From a JSON value that is not null to another. Raises ValueError or DecodeError."""
Cells = Mapping[str, msgspec.Raw]
"""JSON values by the names of columns."""
NULL = b"null"
SCHEMA_HINT = "write messages with their schema part: value.converter.schemas.enable=true"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_INSTANTS = {
    "io.debezium.time.Timestamp": 1_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1,
}
_CLOCKS = {name.replace("Timestamp", "Time"): count for name, count in _INSTANTS.items()}
"""How many nanoseconds a number counts, by what the schema part calls it."""
_UNITS = {
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
}
_ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp"
_WHOLE = re.compile(rb"-?[0-9]{1,19}")
_NUMBER = re.compile(NUMBER)
_HEX_DIGITS = re.compile(rb'"(?:[0-9a-f]{4})+"')
_HEX = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)")
_JAVA_ARRAY = re.compile(rb'"\[+(?:L[\w.$/]+;|[A-Z])@[0-9a-f]+"')
_NO_NUMBER = ("infinity", "nan", "inf")
MAX_DECIMAL_BYTES, MIN_SCALE, MAX_SCALE = 1_000, -1_500, 4_000
"""Debezium has 850 bytes and a scale of 2,046 for a small number of ``numeric(5,-2)``."""
_text = msgspec.json.Decoder(str)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


class UnfitError(ValueError):
    """Why a change cannot be read, what to do, and which column it is about, if it is one."""

    def __init__(self, reason: str, *, hint: str = "", column: str = "") -> None:
        super().__init__(reason)
        self.hint, self.column = hint, column


class ValueSchema(msgspec.Struct, frozen=True):
    """What the schema part of a message says of a value."""

    type: str = ""
    name: str | None = None
    field: str | None = None
    parameters: dict[str, str] | None = None
    fields: tuple[ValueSchema, ...] | None = None
    items: ValueSchema | None = None
    values: ValueSchema | None = None

    def member(self, name: str) -> ValueSchema | None:
        """Return what is said of a member; None if nothing is."""
        return next((part for part in self.fields or () if part.field == name), None)


class _Scaled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scale: int
    value: str


_scaled = msgspec.json.Decoder(_Scaled)


def cells_of(body: bytes, what: str) -> dict[str, msgspec.Raw]:
    """Return the values of a JSON object, by name.

    Raises:
        UnfitError: it is null, or a name is there twice, or written with escapes; calls it `what`.
        DecodeError: it is no object.
    """
    if body in (b"", NULL):
        raise UnfitError(f"the change has no {what}")
    cells = _members.decode(body)
    # each name has a colon; a name that is there twice leaves one more than the values have
    within = b"".join(cells.values()).count(b":") + "".join(cells).count(":")
    if body.count(b":") != len(cells) + within:
        raise UnfitError(f"its {what} has a name twice, or one that is written with escapes")
    return cells


def debezium_converter(field: Field, part: ValueSchema | None) -> Convert | None:
    """Return what converts values of a column; None if they stay as they are. `part` is what the
    schema part says of them, if there is one.
    """
    return _debezium(field.type, field.unit, part)


def _debezium(kind: FieldType, unit: str, part: ValueSchema | None) -> Convert | None:
    is_scaled = part is not None and part.name in (_DECIMAL, _VARIABLE)
    match kind:
        case DecimalType(scale=scale):
            return partial(_decimal, scale, part) if is_scaled or part is None else None
        case Primitive.INT | Primitive.LONG | Primitive.FLOAT | Primitive.DOUBLE:
            places = 0 if kind in WHOLE else None
            return partial(_number, places, part) if is_scaled else None
        case Primitive.STRING:
            return partial(_string, part) if is_scaled else None
        case Primitive.BYTES:
            return None if part is not None and part.type == "bytes" else _base64
        case Primitive.BOOLEAN | Primitive.DYNAMIC:
            return _boolean if kind is Primitive.BOOLEAN else _document
        case Primitive.DATE:
            return partial(_date, unit, part)
        case Primitive.TIME:
            return partial(_clock, part)
        case Primitive() if kind in TIMESTAMPS:
            return partial(_timestamp, kind, unit, part)
        case ListType(element=element):
            return partial(_list, _debezium(element, unit, part and part.items))
        case MapType(value=value):
            inner = _debezium(value, unit, part and part.values)
            return inner and partial(_object, lambda _: inner)
        case StructType(members=members):
            converters = {
                each.name: _debezium(each.type, unit, part and part.member(each.name))
                for each in members
            }
            return partial(_object, converters.get)
    return None


def dms_converter(field: Field) -> Convert | None:
    """Return what converts values of a column as AWS DMS writes them; None if they stay."""
    match field.type:
        case Primitive.BOOLEAN:
            return _boolean
        case Primitive.BYTES:
            return _hexadecimal
        case Primitive.TIME | Primitive.TIMESTAMP_NTZ | Primitive.TIMESTAMP_NTZ_NS:
            return _without_zone
    return None


def _boolean(raw: bytes) -> bytes:
    """MariaDB's ``tinyint(1)`` is a number, and DMS writes booleans as text."""
    return {b"0": b"false", b"1": b"true", b'"false"': b"false", b'"true"': b"true"}.get(raw, raw)


def _without_zone(raw: bytes) -> bytes:
    return raw[:-2] + b'"' if raw.endswith(b'Z"') else raw


def _base64(raw: bytes) -> bytes:
    if _HEX_DIGITS.fullmatch(raw):
        raise UnfitError(
            "the text may be base64 or hexadecimal; only the schema part says which",
            hint=f"{SCHEMA_HINT}, and binary.handling.mode=bytes",
        )
    return raw


def _hexadecimal(raw: bytes) -> bytes:
    match = _HEX.fullmatch(_text.decode(raw))
    if match is None:
        raise UnfitError(
            "the bytes are not written as hexadecimal digits after 0x",
            hint="leave the endpoint's setting NoHexPrefix off",
        )
    return _encode(bytes.fromhex(match[1]))


# Numbers: Debezium writes decimals as base64 of the unscaled number, and the scale elsewhere.


def _number(places: int | None, part: ValueSchema | None, raw: bytes) -> bytes:
    number = _scaled_number(raw, part)
    return raw if number is None else _shown(*number, places=places)


def _decimal(places: int, part: ValueSchema | None, raw: bytes) -> bytes:
    scaled = _scaled_number(raw, part)
    if scaled is not None:
        return _shown(*scaled, places=places)
    if part is not None or raw[:1] != b'"':
        return raw
    text = _text.decode(raw)
    try:
        number = _unscaled(text)
    except UnfitError:
        return raw
    if _NUMBER.match(text) or text.lower() in _NO_NUMBER:
        raise UnfitError(
            "the text may be a number or the base64 of one; only the schema part says which",
            hint=SCHEMA_HINT,
        )
    return _shown(number, places)


def _string(part: ValueSchema | None, raw: bytes) -> bytes:
    number = _scaled_number(raw, part)
    return raw if number is None else b'"%b"' % _shown(*number)


def _document(raw: bytes) -> bytes:
    """Return a JSON document, which Debezium has as text."""
    try:
        return document(_text.decode(raw).encode()) if raw[:1] == b'"' else raw
    except ValueError as error:
        raise UnfitError(str(error), hint="a text that is no JSON needs a string column") from error


def _scaled_number(raw: bytes, part: ValueSchema | None) -> tuple[int, int] | None:
    """Return the unscaled number and the scale of a decimal; None if the value is another one."""
    if raw[:1] == b"{" and raw.count(b":") == 2 and (part is None or part.name == _VARIABLE):
        try:
            number = _scaled.decode(raw)
        except msgspec.ValidationError:
            return None
        return _unscaled(number.value), number.scale
    if part is None or part.name != _DECIMAL or raw[:1] != b'"':
        return None
    scale = (part.parameters or {}).get("scale", "")
    if not re.fullmatch(r"-?[0-9]{1,4}", scale):
        raise UnfitError("the schema part does not say its scale")
    return _unscaled(_text.decode(raw)), int(scale)


def _unscaled(text: str) -> int:
    try:
        body = a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise UnfitError("the decimal is not base64") from error
    if not 0 < len(body) <= MAX_DECIMAL_BYTES:
        raise UnfitError("the decimal has no digits, or too many")
    return int.from_bytes(body, "big", signed=True)


def _shown(number: int, scale: int, *, places: int | None = None) -> bytes:
    """Return a decimal as text; without zeros at its end beyond the `places` of its column."""
    if not MIN_SCALE <= scale <= MAX_SCALE:  # Python shows no number of more than 4,300 digits
        raise UnfitError("the decimal has too many digits")
    if scale < 0:
        number, scale = number * 10**-scale, 0
    if places is not None and scale > places:
        whole, rest = divmod(number, 10 ** (scale - places))
        number, scale = (number, scale) if rest else (whole, places)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return (f"-{text}" if number < 0 else text).encode()


# Dates and times: numbers whose unit depends on the column's precision in the source, or text.


def _date(unit: str, part: ValueSchema | None, raw: bytes) -> bytes:
    if raw[:1] == b'"':
        return _without_zone(_finite(raw))
    if part is not None and part.name not in _DAYS and (part.name or not unit):
        raise UnfitError("the schema part says that it is no date")
    try:
        return b'"%b"' % from_days(_whole(raw)).isoformat().encode()
    except OverflowError as error:
        raise _out_of_range() from error


def _timestamp(kind: Primitive, unit: str, part: ValueSchema | None, raw: bytes) -> bytes:
    name = part.name if part else None
    if raw[:1] == b'"':
        text = _finite(raw)
        return _without_zone(text) if name == _ISO_TIMESTAMP and kind not in ZONED else text
    if name is not None and name not in _INSTANTS:
        raise UnfitError("the schema part says that it is no timestamp")
    counted = _INSTANTS[name] if name else _UNITS.get(unit)
    if counted is None:
        raise UnfitError(
            "only the schema part says what its number counts",
            hint=f"{SCHEMA_HINT}; or set the column's unit in the table's schema",
        )
    count = _count(raw, counted, 1 if kind in NANOSECONDS else 1000)
    try:
        return b'"%b"' % show_count(count, kind).encode()
    except OverflowError as error:
        raise _out_of_range() from error


def _clock(part: ValueSchema | None, raw: bytes) -> bytes:
    if raw[:1] == b'"':
        return _without_zone(raw)  # ZonedTime, which Debezium has converted to UTC
    counted = _CLOCKS.get(part.name or "") if part else None
    if counted is None:
        raise UnfitError(
            "only the schema part says what its number counts",
            hint=f"{SCHEMA_HINT}; or set time.precision.mode=isostring",
        )
    try:
        return b'"%b"' % show_clock(_count(raw, counted, 1000)).encode()
    except OverflowError as error:
        raise UnfitError(
            "it is no time of day, but 24:00 or an interval",
            hint="make the column a long, which takes the number",
        ) from error


def _count(raw: bytes, counted: int, unit: int) -> int:
    """Return a number that counts so many nanoseconds in a unit of so many."""
    count, rest = divmod(_whole(raw) * counted, unit)
    if rest:
        raise UnfitError("times are whole microseconds")
    return count


def _finite(raw: bytes) -> bytes:
    if raw.strip(b'"-+').lower() == b"infinity":
        raise _out_of_range()
    return raw


def _out_of_range() -> UnfitError:
    return UnfitError(
        "it lies outside of the years 1 to 9999, such as 'infinity'",
        hint="change the value in the source, or make the column text there (a view, or a cast)",
    )


def _whole(raw: bytes) -> int:
    if not _WHOLE.fullmatch(raw):
        raise UnfitError("it is neither text nor a whole number")
    return int(raw)


# Values within lists, maps and structs.


def _list(convert: Convert | None, raw: bytes) -> bytes:
    if raw[:1] != b"[":
        return raw
    items = [bytes(item) for item in _items.decode(raw)]
    if any(map(_JAVA_ARRAY.fullmatch, items)):
        raise UnfitError(
            "it is an array of arrays, which Debezium cannot write",
            hint="leave the column out (column.exclude.list), and drop it from the table",
        )
    if convert is None:
        return raw
    return b"[%b]" % b",".join(item if item == NULL else convert(item) for item in items)


def _object(converter: Callable[[str], Convert | None], raw: bytes) -> bytes:
    if raw[:1] != b"{":
        return raw
    cells = []
    for name, value in cells_of(raw, "value").items():
        cell, convert = bytes(value), converter(name)
        shown = cell if convert is None or cell == NULL else convert(cell)
        cells.append(b"%b:%b" % (_encode(name), shown))
    return b"{%b}" % b",".join(cells)


# What Debezium writes for a value that the source left out, because an update did not touch it.

_MARK = "__debezium_unavailable_value"
_MARK_BASE64 = base64.b64encode(_MARK.encode()).decode()
_MARK_HEX = _MARK.encode().hex()
_MARK_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
_LEFT_OUT: tuple[object, ...] = (
    _MARK,
    _MARK_BASE64,
    _MARK_HEX,
    f'{{"{_MARK}":"{_MARK}"}}',
    {_MARK: _MARK},
    [_MARK],
    [_MARK_UUID],
    list(_MARK.encode()),
)
_SIGNS = tuple(map(str.encode, (_MARK, _MARK_BASE64, _MARK_HEX, _MARK_UUID, "[95")))
_any = msgspec.json.Decoder()


def may_leave_out(line: bytes) -> bool:
    """Return whether a line may have a value for which `is_left_out`."""
    for sign in _SIGNS:  # noqa: SIM110  # a generator takes three times as long, for each line
        if sign in line:
            return True
    return False


def is_left_out(raw: bytes) -> bool:
    """Return whether a value stands for one that the source left out."""
    return _any.decode(raw) in _LEFT_OUT
