"""Parse the texts and numbers of CSV and JSON files into Arrow columns:
the same rules for both formats.

A value is read exactly as it is written, or the file is refused; only a fraction is rounded to the
nearest float. All functions take columns of text, in which null stays null. They raise ValueError
or ArrowException if a cell is not a value of the type; our messages quote no values.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.decimals import parse_decimals
from dormouse.arrow.types import Array, arrow_type
from dormouse.schema.schema import DecimalType, Field, Primitive
from dormouse.schema.times import parse_clock
from dormouse.schema.type_text import show_type
from dormouse.schema.types import NANOSECONDS, TIMESTAMPS, UNITS, ZONED
from dormouse.schema.uuids import parse_uuid

NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE = r" ?(Z|UTC|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)"
_CLOCK = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0{0,3})?)?)?"
_CLOCK_NS = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?)?"
_CLOCK_OF_DAY = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0{0,3})?)?"
_TIME = rf"^{_DATE}([T ]{_CLOCK}({_ZONE})?)?$"
_TIME_NS = rf"^{_DATE}([T ]{_CLOCK_NS}({_ZONE})?)?$"
_MIDNIGHT = rf"^{_DATE}([T ]00:00(:00([.]0{{1,9}})?)?( ?(Z|UTC|[+-]00(:?00)?))?)?$"
_ZONED = rf"[T ]{_CLOCK_NS}{_ZONE}$"
_OFFSET_SECONDS = r"^(.+[T ].+)([+-])([0-9]{2}:[0-5][0-9]):([0-5][0-9])$"
_ARROW_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
FIRST_SECOND, LAST_SECOND = -62_167_219_200, 253_402_300_799
"""The first and the last second of the years 0 to 9999."""
_DAY_SECONDS = 86_400
_EXACT = {Primitive.FLOAT: 2**24, Primitive.DOUBLE: 2**53}
"""Up to these numbers, a float represents every integer."""


def text_parser(field: Field) -> Callable[[Array], Array] | None:
    """Return the function that parses a column of text; None if the
    field's values are written in JSON.
    """
    kind = field.type
    match kind:
        case Primitive.INT | Primitive.LONG:
            return lambda cells: parse_integers(cells, kind)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return lambda cells: parse_floats(cells, kind)
        case DecimalType():
            return lambda cells: parse_decimals(cells, kind)
        case Primitive.DATE:
            return lambda cells: parse_text_times(cells, kind, field.unit)
        case Primitive() if kind in TIMESTAMPS:
            return lambda cells: parse_text_times(cells, kind, field.unit)
        case Primitive.TIME:
            return parse_clocks
        case Primitive.UUID:
            return parse_uuids
        case Primitive.BOOLEAN:
            return parse_booleans
        case Primitive.BYTES:
            return parse_base64
        case Primitive.STRING:
            return lambda cells: cells
        case _:
            return None


def parse_integers(cells: Array, kind: Primitive) -> Array:
    """Parse whole numbers, written in decimal digits."""
    if bytes_contain(
        cells, b"x", b"X"
    ):  # Arrow also parses hexadecimal numbers, and reads 0xFFFFFFFF as -1
        _check_all(cells, r"^[^xX]*$", "whole numbers are written in decimal digits")
    return cells.cast(arrow_type(kind))


def parse_floats(cells: Array, kind: Primitive) -> Array:
    """Parse numbers as the nearest floats; an integer written in
    digits must be represented exactly.
    """
    numbers: Array = cells.cast(arrow_type(kind))
    special = pc.invert(pc.is_finite(numbers))
    if _any(special):
        _check_all(
            cells.filter(special),
            r"(?i)^([+-]?inf(inity)?|[+-]?nan)$",
            "the number is too large, or no number",
        )
    zero = pc.equal(numbers, pa.scalar(0, numbers.type))
    if _any(zero):
        _check_all(
            cells.filter(zero), r"^[+-]?[0.]+([eE].*)?$", "the number is too small, and not zero"
        )
    limit = pa.scalar(_EXACT[kind], numbers.type)
    large = pc.and_(pc.greater_equal(pc.abs(numbers), limit), pc.invert(special))
    if _any(large):
        _check_exact(cells.filter(large), numbers.filter(large), kind)
    return numbers


def exact_number(text: str) -> float | Decimal:
    """Return a number as a double if that, printed with as many digits, is the number again, and
    else as a decimal.

    Example: 0.30000000000000004 is a double, and 99999999999999999.99 is not.

    Raises:
        DecimalException: the exponent is extreme.
    """
    nearest = float(text)
    if repr(nearest) == text:  # as most programs write it
        return nearest
    number = Decimal(text)
    digits = len(number.as_tuple().digits)
    is_kept = math.isfinite(nearest) and Decimal(f"{nearest:.{digits - 1}e}") == number
    return nearest if is_kept else number


def parse_booleans(cells: Array) -> Array:
    """Parse truth values, written as the words true and false."""
    if bytes_contain(cells, b"0", b"1"):  # Arrow also accepts these
        _check_all(cells, "^[^01]*$", "expected: true or false")
    return cells.cast(pa.bool_())


def parse_base64(cells: Array) -> Array:
    """Parse bytes, written in base64."""
    try:
        return pa.array(
            [None if c is None else base64.b64decode(c, validate=True) for c in cells.to_pylist()],
            pa.binary(),
        )
    except binascii.Error as error:
        raise ValueError(
            f"bytes are written in base64: {error}; in Spark, write base64(column) or Parquet"
        ) from error


def parse_clocks(cells: Array) -> Array:
    """Parse times of day, such as 12:30 or 12:30:45.123456."""
    _check_all(cells, rf"^{_CLOCK_OF_DAY}$", "expected: an ISO 8601 time of day such as 12:30:45")
    parsed = [None if text is None else parse_clock(text) for text in cells.to_pylist()]
    return pa.array(parsed, pa.int64()).cast(arrow_type(Primitive.TIME))


def parse_uuids(cells: Array) -> Array:
    """Parse UUIDs, written in hexadecimal digits with hyphens or without."""
    texts = cells.cast(pa.string()).to_pylist()
    parsed = [None if text is None else parse_uuid(text) for text in texts]
    return pa.array(parsed, arrow_type(Primitive.UUID))


def parse_text_times(cells: Array, kind: Primitive, unit: str) -> Array:
    """Parse timestamps or dates from texts, some of which may be numbers that count a unit."""
    try:
        parsed = _usual(cells, kind)
    except pa.ArrowInvalid:
        numeric = pc.match_substring_regex(cells, NUMBER)
        texts, numbers = pc.if_else(numeric, None, cells), pc.if_else(numeric, cells, None)
        return parse_times(texts, numbers, kind, unit)
    check_years(parsed)
    return parsed


def parse_times(texts: Array, numbers: Array, kind: Primitive, unit: str) -> Array:
    """Parse timestamps or dates from texts and, where these are null,
    from numbers that count a unit.
    """
    try:
        parsed = _usual(texts, kind)
    except pa.ArrowInvalid:
        parsed = _dates(texts) if kind is Primitive.DATE else _times(texts, kind)
    check_years(parsed)
    if numbers.null_count == len(numbers):
        return parsed
    if not unit or kind not in UNITS[unit]:
        units = ", ".join(name for name, counts in UNITS.items() if kind in counts)
        raise ValueError(
            f'numbers need a unit: set the column\'s "unit" in the schema ({units}), '
            "or write ISO 8601"
        )
    return pc.coalesce(parsed, from_unit_count(parse_integers(numbers, Primitive.LONG), kind, unit))


def from_unit_count(numbers: Array, kind: Primitive, unit: str) -> Array:
    """Return times or dates from the number of units since 1970, without rounding."""
    whole = numbers.cast(pa.int64())
    if kind is Primitive.DATE:
        return whole.cast(pa.int32()).cast(arrow_type(kind))
    wanted = cast(pa.TimestampType, arrow_type(kind))
    return whole.cast(pa.timestamp(_ARROW_UNITS[unit], wanted.tz)).cast(wanted)


def check_years(cells: Array) -> None:
    """Check that times and dates are in the years 0 to 9999, which are those that can be written.

    Raises:
        ValueError: one is not.
    """
    if pa.types.is_date32(cells.type):
        first, last = FIRST_SECOND // _DAY_SECONDS, LAST_SECOND // _DAY_SECONDS
        counts: Array = cells.cast(pa.int32())
    elif isinstance(cells.type, pa.TimestampType) and cells.type.unit == "us":
        first, last = FIRST_SECOND * 1_000_000, LAST_SECOND * 1_000_000 + 999_999
        counts = cells.cast(pa.int64())
    else:
        return
    found: Any = pc.min_max(counts).as_py()
    if found["min"] is not None and not first <= found["min"] <= found["max"] <= last:
        raise ValueError("times and dates have the years 0 to 9999")


def bytes_contain(cells: Array, *texts: bytes) -> bool:
    """Return whether any of `texts` is in the buffer of a column,
    which may be larger than its slice.
    """
    data = cells.buffers()[2]
    return data is not None and any(text in data.to_pybytes() for text in texts)


def _usual(cells: Array, kind: Primitive) -> Array:
    """Parse times that all have the one common form that Arrow reads fast.

    Raises:
        ArrowInvalid: not all have it; the error says nothing about single cells.
    """
    if kind is Primitive.DATE or not (bytes_contain(cells, b"Z") or bytes_contain(cells, b":")):
        return cells.cast(arrow_type(Primitive.DATE)).cast(arrow_type(kind))
    if kind in ZONED and bytes_contain(cells, b"Z", b"+"):
        return cells.cast(arrow_type(kind))
    return _zoneless(cells, kind)


def _zoneless(cells: Array, kind: Primitive) -> Array:
    """Parse times without a zone, which are in UTC if the type is of instants."""
    wanted = cast(pa.TimestampType, arrow_type(kind))
    plain = cells.cast(pa.timestamp(wanted.unit))
    return plain if kind not in ZONED else plain.cast(pa.int64()).cast(wanted)


def _times(cells: Array, kind: Primitive) -> Array:
    if _any(pc.match_substring_regex(cells, _OFFSET_SECONDS)):
        return _with_offset_seconds(cells, kind)
    if kind in NANOSECONDS:
        _check_all(cells, _TIME_NS, "expected: an ISO 8601 time of at most nanoseconds")
    else:
        _check_all(cells, _TIME, "expected: an ISO 8601 time of at most microseconds")
        cells = _without_zeros(cells)
    cells = _plain(cells)
    zoned = pc.match_substring_regex(cells, _ZONED)
    if not _any(zoned):
        return _zoneless(cells, kind)
    if kind not in ZONED:
        raise ValueError("the time has a zone, and the column has none")
    if pc.all(zoned).as_py():
        return cells.cast(arrow_type(kind))
    without = pc.if_else(zoned, None, cells)
    return pc.coalesce(_times(without, kind), pc.if_else(zoned, cells, None).cast(arrow_type(kind)))


def _with_offset_seconds(cells: Array, kind: Primitive) -> Array:
    """Parse times of which some have offsets with seconds, which Arrow cannot read.

    Spark writes so what is before standard time: 1880-01-02T03:04:05.000-04:56:02 in New York.
    """
    has = pc.match_substring_regex(cells, _OFFSET_SECONDS)
    whole = pc.replace_substring_regex(cells, _OFFSET_SECONDS, r"\1\2\3")
    seconds = pc.if_else(has, pc.utf8_slice_codeunits(cells, -2), "0").cast(pa.int64())
    is_east = pc.match_substring_regex(cells, "[+][0-9]{2}:[0-9]{2}:[0-9]{2}$")
    wanted = cast(pa.TimestampType, arrow_type(kind))
    more = pc.if_else(is_east, pc.negate(seconds), seconds).cast(pa.duration("s"))
    moved: Array = pc.add_checked(_times(whole, kind), more.cast(pa.duration(wanted.unit)))
    return moved


def _without_zeros(cells: Array) -> Array:
    """Return times without zeros after the sixth decimal, which Arrow cannot read."""
    if _any(pc.match_substring_regex(cells, r"[.][0-9]{7}")):
        return pc.replace_substring_regex(cells, r"([.][0-9]{6})0+", r"\1")
    return cells


def _plain(cells: Array) -> Array:
    """Return times without what Arrow cannot read: the word UTC, and a space before the zone."""
    if _any(pc.match_substring_regex(cells, r" ?UTC$|.{11} ")):
        cells = pc.replace_substring_regex(cells, " ?UTC$", "Z")
        cells = pc.replace_substring_regex(cells, "(.{11}.*) ", r"\1")
    return cells


def _dates(cells: Array) -> Array:
    _check_all(cells, _MIDNIGHT, "expected: an ISO 8601 date such as 2024-02-29, or its midnight")
    return pc.utf8_slice_codeunits(cells, 0, 10).cast(arrow_type(Primitive.DATE))


def _check_exact(cells: Array, numbers: Array, kind: Primitive) -> None:
    texts, values = cast(list[str], cells.to_pylist()), cast(list[float], numbers.to_pylist())
    for text, value in zip(texts, values, strict=True):
        digits = text.lstrip("+-0")
        if digits.isdecimal() and int(digits) != abs(value):
            raise ValueError(f"the whole number does not fit a {show_type(kind)} exactly")


def _check_all(cells: Array, pattern: str, reason: str) -> None:
    if not pc.all(pc.match_substring_regex(cells, pattern), min_count=0).as_py():
        raise ValueError(reason)


def _any(found: Array) -> bool:
    return bool(pc.any(found).as_py())
