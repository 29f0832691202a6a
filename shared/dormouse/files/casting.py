"""Cast columns of ingested files to columns of the table, exactly, or refuse the file with row and
reason.

Used by the readers of all formats. Error messages are stored and shown where rows are not, and are
read by people who may not see rows. They name columns of the table, positions in the file and
types, and never a value of the file.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from string import ascii_letters, digits
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dormouse.arrow.documents import documents
from dormouse.arrow.types import (
    MAX_DECIMAL_DIGITS,
    Array,
    arrow_schema,
    arrow_type,
    nulls,
    widest_type,
)
from dormouse.arrow.values import (
    DECIMALS,
    LISTS,
    check_map_keys,
    is_variant,
    leaves,
    parse_decimals,
    rebuilt,
)
from dormouse.errors import InvariantError, RefusedSourceError
from dormouse.files.rejects import RowRefusal, refuse_rows
from dormouse.files.results import json_texts
from dormouse.key_codec import FORMS
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    UNITS,
    UUID_BYTES,
    WHOLE,
    ZONED,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    StructType,
    contains_type,
    parse_clock,
    parse_uuid,
    show_type,
)

# Parse the texts and numbers of CSV and JSON files into Arrow columns:
# the same rules for both formats.
#
# A value is read exactly as it is written, or the file is refused; only a fraction is rounded to
# the nearest float. All functions take columns of text, in which null stays null. They raise
# ValueError or ArrowException if a cell is not a value of the type; our messages quote no values.

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
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999."""
_DAY_SECONDS = 86_400
_SHAPES = bytes.maketrans(
    (digits + ascii_letters).encode(), b"0" * len(digits) + b"a" * len(ascii_letters)
)
_BAD = (pa.ArrowException, ValueError, OverflowError)
"""What a conversion raises if a cell is not a value of the type."""
_EXACT = {Primitive.FLOAT: 2**24, Primitive.DOUBLE: 2**53}
"""Up to these numbers, a float represents every integer."""


def text_parser(kind: FieldType, unit: str = "") -> Callable[[Array], Array] | None:
    """Return the function that parses a column of text, in which numbers are times of a unit; None
    if its values are written in JSON.
    """
    match kind:
        case Primitive.INT | Primitive.LONG:
            return lambda cells: parse_integers(cells, kind)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return lambda cells: parse_floats(cells, kind)
        case DecimalType():
            return lambda cells: parse_decimals(cells, kind)
        case Primitive() if kind is Primitive.DATE or kind in TIMESTAMPS:
            return lambda cells: parse_text_times(cells, kind, unit)
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
        case Primitive.DYNAMIC:
            return _text_documents
        case _:
            return None


def _text_documents(cells: Array) -> Array:
    return documents(cells.cast(pa.large_binary()).to_pylist())


def parse_integers(cells: Array, kind: Primitive) -> Array:
    """Parse whole numbers, written in decimal digits."""
    if bytes_contain(cells, b"x", b"X"):  # Arrow also reads hexadecimal: 0xFFFFFFFF as -1
        _check_all(cells, r"^[^xX]*$", "whole numbers are written in decimal digits")
    return cells.cast(arrow_type(kind))


def parse_floats(cells: Array, kind: Primitive) -> Array:
    """Parse numbers as the nearest floats; an integer in digits must be represented exactly."""
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
    Raises DecimalException: the exponent is extreme.
    """
    nearest = float(text)
    if repr(nearest) == text:  # as most programs write it
        return nearest
    number = Decimal(text)
    digits = len(number.as_tuple().digits)
    is_exact = math.isfinite(nearest) and Decimal(f"{nearest:.{digits - 1}e}") == number
    return nearest if is_exact else number


def parse_booleans(cells: Array) -> Array:
    """Parse truth values, written as the words true and false."""
    if bytes_contain(cells, b"0", b"1"):  # Arrow also accepts these
        _check_all(cells, "^[^01]*$", "expected: true or false")
    return cells.cast(pa.bool_())


def parse_base64(cells: Array) -> Array:
    """Parse bytes, written in base64."""
    texts = cells.to_pylist()
    try:
        values = [None if c is None else base64.b64decode(c, validate=True) for c in texts]
    except binascii.Error as error:
        raise ValueError(
            f"bytes are written in base64: {error}; in Spark, write base64(column) or Parquet"
        ) from error
    return pa.array(values, pa.binary())


def parse_clocks(cells: Array) -> Array:
    """Parse times of day, such as 12:30 or 12:30:45.123456."""
    _check_all(cells, rf"^{_CLOCK_OF_DAY}$", "expected: an ISO 8601 time of day such as 12:30:45")
    counts = [None if text is None else parse_clock(text) for text in cells.to_pylist()]
    return pa.array(counts, pa.int64()).cast(arrow_type(Primitive.TIME))


def parse_uuids(cells: Array) -> Array:
    """Parse UUIDs, written in hexadecimal digits with hyphens or without."""
    texts = cells.cast(pa.string()).to_pylist()
    values = [None if text is None else parse_uuid(text) for text in texts]
    return pa.array(values, arrow_type(Primitive.UUID))


def parse_text_times(cells: Array, kind: Primitive, unit: str) -> Array:
    """Parse timestamps or dates from texts, some of which may be numbers that count a unit."""
    try:
        times = _usual(cells, kind)
    except pa.ArrowInvalid:
        numeric = pc.match_substring_regex(cells, NUMBER)
        texts, numbers = pc.if_else(numeric, None, cells), pc.if_else(numeric, cells, None)
        return parse_times(texts, numbers, kind, unit)
    check_years(times)
    return times


def parse_times(texts: Array, numbers: Array, kind: Primitive, unit: str) -> Array:
    """Parse timestamps or dates from texts and, where these are null, from numbers of a unit."""
    try:
        times = _usual(texts, kind)
    except pa.ArrowInvalid:
        times = _dates(texts) if kind is Primitive.DATE else _times(texts, kind)
    check_years(times)
    if numbers.null_count == len(numbers):
        return times
    if not unit or kind not in UNITS[unit]:
        raise ValueError(f"{unit_hint(kind)}; or write ISO 8601")
    return pc.coalesce(times, from_unit_count(parse_integers(numbers, Primitive.LONG), kind, unit))


def unit_hint(kind: FieldType) -> str:
    """Return what numbers need in a column of times; nothing for other types."""
    units = ", ".join(unit for unit, kinds in UNITS.items() if kind in kinds)
    command = "`dormouse table alter NAME --unit COLUMN=UNIT`"
    return units and f"numbers need a unit ({units}), in the schema or by {command}"


def from_unit_count(numbers: Array, kind: Primitive, unit: str) -> Array:
    """Return times or dates from the number of units since 1970, without rounding."""
    whole = numbers.cast(pa.int64())
    if kind is Primitive.DATE:
        return whole.cast(pa.int32()).cast(arrow_type(kind))
    arrow = cast(pa.TimestampType, arrow_type(kind))
    return whole.cast(pa.timestamp(_ARROW_UNITS[unit], arrow.tz)).cast(arrow)


def check_years(cells: Array) -> None:
    """Check that times are in the years 1 to 9999, which can be written. Raises ValueError."""
    if pa.types.is_date32(cells.type):
        first, last = FIRST_SECOND // _DAY_SECONDS, LAST_SECOND // _DAY_SECONDS
        counts: Array = cells.cast(pa.int32())
    elif isinstance(cells.type, pa.TimestampType) and cells.type.unit == "us":
        first, last = FIRST_SECOND * 1_000_000, LAST_SECOND * 1_000_000 + 999_999
        counts = cells.cast(pa.int64())
    else:
        return
    years: Any = pc.min_max(counts).as_py()
    if years["min"] is not None and not first <= years["min"] <= years["max"] <= last:
        raise ValueError("times and dates have the years 1 to 9999")


def bytes_contain(cells: Array, *texts: bytes) -> bool:
    """Return whether any of `texts` is in a column's buffer, which may be larger than its slice."""
    data = cells.buffers()[2]
    return data is not None and any(text in data.to_pybytes() for text in texts)


def _usual(cells: Array, kind: Primitive) -> Array:
    """Parse times that all have the one common form that Arrow reads fast.
    Raises ArrowInvalid: not all have it; the error says nothing about single cells.
    """
    if kind is Primitive.DATE or not (bytes_contain(cells, b"Z") or bytes_contain(cells, b":")):
        return cells.cast(arrow_type(Primitive.DATE)).cast(arrow_type(kind))
    if kind in ZONED and bytes_contain(cells, b"Z", b"+"):
        return cells.cast(arrow_type(kind))
    return _zoneless(cells, kind)


def _zoneless(cells: Array, kind: Primitive) -> Array:
    """Parse times without a zone, which are in UTC if the type is of instants."""
    target = cast(pa.TimestampType, arrow_type(kind))
    plain = cells.cast(pa.timestamp(target.unit))
    return plain if kind not in ZONED else plain.cast(pa.int64()).cast(target)


def _times(cells: Array, kind: Primitive) -> Array:
    if _any(pc.match_substring_regex(cells, _OFFSET_SECONDS)):
        return _with_offset_seconds(cells, kind)
    if kind in NANOSECONDS:
        _check_all(cells, _TIME_NS, "expected: an ISO 8601 time of at most nanoseconds")
    else:
        _check_all(cells, _TIME, "expected: an ISO 8601 time of at most microseconds")
        # Arrow cannot read zeros after the sixth decimal
        cells = pc.replace_substring_regex(cells, r"([.][0-9]{6})0+", r"\1")
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
    target = cast(pa.TimestampType, arrow_type(kind))
    more = pc.if_else(is_east, pc.negate(seconds), seconds).cast(pa.duration("s"))
    times: Array = pc.add_checked(_times(whole, kind), more.cast(pa.duration(target.unit)))
    return times


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


def _any(flags: Array) -> bool:
    return bool(pc.any(flags).as_py())


EXPECTED_FORMS: dict[FieldType, str] = {
    **FORMS,
    Primitive.STRING: "text in UTF-8",
    Primitive.TIMESTAMP: "an ISO 8601 time, in UTC without a zone, from year 0001 to 9999",
    Primitive.TIMESTAMP_NTZ: "an ISO 8601 time without a zone, from year 0001 to 9999",
    Primitive.TIMESTAMP_NS: "an ISO 8601 time, in UTC without a zone, from year 1678 to 2261",
    Primitive.TIMESTAMP_NTZ_NS: "an ISO 8601 time without a zone, from year 1678 to 2261",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29, from year 0001 to 9999",
    Primitive.DYNAMIC: "a JSON document",
}
"""What a value of each type looks like in a file, for errors that say no more."""
Converter = Callable[[Field, Array], Array]
"""Returns the cells of a file as those of a field."""
Cells = TypeVar("Cells", bound="Sequence[object] | Array")
Place = Callable[[int], str]
"""Returns the position in the file of a row of a batch, as text: its
line, or its row in a row group."""

_QUOTES_NOTHING = re.compile(
    r"Integer value -?\d+ (not in range: -?\d+ to -?\d+)|Casting from \S+ .+ (would lose data): "
    r"|Rescaling \w+ value (would cause data loss)|(Invalid UTF8 sequence)"
)
"""Error messages of Arrow; the groups are the parts without values."""
_COUNTED = 10
_WORDS = re.compile(r"[^\W\d][\w .()/%-]{0,63}")
"""Names of columns as people give them: no address, number or sentence."""


def check_columns(
    names: Sequence[str],
    schema: Schema,
    *,
    of: str = "the file",
    quotes_all: bool = False,
    hint: str = "",
) -> None:
    """Check that a file, or what else `of` names, has the columns of the table, in any order;
    nullable columns may be missing.

    Unless it `quotes_all`, unknown columns are reported by their positions if none of the names is
    a column's, because the names may be values: the file may have no header. So are names that are
    no words. `hint` is for unknown columns.
    Raises RefusedSourceError: a column is missing, unknown, or present twice.
    """
    columns = {f.name for f in schema.fields}
    counts = Counter(names)
    unknown = [at for at, name in enumerate(names) if name not in columns]
    twice = sorted(name for name, count in counts.items() if count > 1)
    missing = [f.name for f in schema.fields if not f.nullable and f.name not in counts]
    if not (unknown or twice or missing):
        return
    hint = (
        hint if hint and unknown else "the table has: " + ", ".join(f.name for f in schema.fields)
    )
    if unknown:
        is_header = quotes_all or not {name.strip().lower() for name in names}.isdisjoint(
            map(str.lower, columns)
        )
        shown = [
            repr(names[at])
            if quotes_all or (is_header and _WORDS.fullmatch(names[at]))
            else str(at + 1)
            for at in unknown[:_COUNTED]
        ]
        more = f" and {len(unknown) - _COUNTED} more" if len(unknown) > _COUNTED else ""
        fates = [
            f"{names[at]!r}: {fate}"
            for at in unknown
            if (fate := schema.explain_former_name(names[at]))
        ]
        explanation = f" ({'; '.join(fates)})" if fates else ""
        reason = f"the table has no {_listed(shown)}{more} of {of}{explanation}"
    elif twice:
        reason = f"{of} has {_listed(map(repr, twice))} more than once"
    else:
        reason = f"{of} has no {_listed(map(repr, missing))}"
    raise RefusedSourceError(reason, hint=hint)


def convert(cells: Cells, field: Field, place: Place, make: Callable[[Cells], Array]) -> Array:
    """Return ``make(cells)``, or find the first cell for which it fails and refuse the file.

    Raises:
        RowRefusal: a cell is not a value of the field's type, or is null and the field cannot be;
            the message says which cell.
        RefusedSourceError: a library does not implement the conversion.
    """

    def build(some: Cells) -> Array:
        column = make(some)
        check_map_keys(column)
        return column

    def refusal(row: int, error: Exception) -> RefusedSourceError:
        reason = f"the value is not of type {show_type(field.type)}"
        hint = describe_without_values(error, field.type)
        return cell_refusal(place(row), field, reason, hint)

    if not field.nullable:
        empty = "there is no value, and the column cannot be null"
        refuse_rows(_nulls(cells), lambda row: cell_refusal(place(row), field, empty))
    try:
        return build(cells)
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"column {field.name!r} as {show_type(field.type)}") from error
    except _BAD:
        at = _first_bad(cells, build)
    try:
        build(cells[at : at + 1])  # type: ignore[arg-type]  # a slice is of the same type
    except _BAD as error:
        raise RowRefusal(
            refusal(at, error),
            lambda: ((row, refusal(row, each)) for row, each in _bad_texts(cells, build)),
        ) from error
    raise InvariantError(f"column {field.name!r} fails as a whole, but none of its cells does")


def _nulls(cells: Sequence[object] | Array) -> Sequence[int]:
    if isinstance(cells, pa.Array):
        column: Any = cells
        return pc.indices_nonzero(column.is_null()).to_pylist() if column.null_count else ()
    return [row for row, cell in enumerate(cells) if cell is None]


def convert_batch(
    batch: pa.RecordBatch, schema: Schema, place: Place, converter: Converter
) -> pa.RecordBatch:
    """Return a batch of a file as rows of the table; columns that the file lacks are null.
    Raises RefusedSourceError: a cell cannot be converted, or is null in a required column.
    """

    def column(field: Field) -> Array:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            return nulls(batch.num_rows, field.type)
        return convert(batch.column(at), field, place, partial(converter, field))

    columns = [column(field) for field in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def rows_after(first: int) -> Place:
    """Return the place of rows that `first` others precede, counted from 1."""
    return lambda row: f"row {first + row + 1}"


def cell_refusal(place: str, field: Field, reason: str, hint: str = "") -> RefusedSourceError:
    """Return the error for a cell of a column of the table."""
    return RefusedSourceError(f"{place}, column {field.name!r}: {reason}", hint=hint)


def unreadable(what: str) -> RefusedSourceError:
    """Return the error for what a library does not implement, which is no fault of the data."""
    return RefusedSourceError(
        f"{what} cannot be read: a library does not implement that",
        hint="convert the column to another type where it is written: to decimal(38,0) or text if "
        "it has integers of 128 bits",
    )


def _first_bad(cells: Cells, build: Callable[[Cells], Array]) -> int:
    """Return the index of a cell for which `build` fails, by bisection."""
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            build(cells[low:middle])  # type: ignore[arg-type]  # a slice is of the same type
        except _BAD:
            high = middle
        else:
            low = middle
    return low


def _bad_texts(cells: Cells, build: Callable[[Cells], Array]) -> Iterator[tuple[int, Exception]]:
    """Yield the indexes of all cells for which `build` fails alone, each with its error.

    The cells are texts, or JSON. Equal ones are tried once, and those of one shape (``a0-00`` of
    ``x7-12``) one after the other, since mostly all of them fail, or none: as long as some
    succeed, more are tried at once, and after a failure fewer. So n bad cells take little more than
    n calls of `build`, wherever they are.
    """
    texts = cells.to_pylist() if isinstance(cells, pa.Array) else cells
    rows: dict[Any, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    rows.pop(None, None)
    distinct = sorted(rows, key=_shape)
    tried: Any = pa.array(distinct, cells.type) if isinstance(cells, pa.Array) else distinct
    at, step = 0, 1
    while at < len(distinct):
        try:
            build(tried[at : at + step])
        except _BAD as error:
            if step == 1:
                yield from ((row, error) for row in rows[distinct[at]])
                at += 1
            step = max(1, step // 4)
        else:
            at, step = at + step, step * 4


def _shape(text: str | bytes) -> tuple[bytes, bytes]:
    data = text.encode() if isinstance(text, str) else text
    return data.translate(_SHAPES), data


def can_cast(source: pa.DataType, kind: FieldType, unit: str = "") -> bool:
    """Return whether values of an Arrow type can become values of `kind` with the same meaning.

    Integers can become times or dates if the `unit` that they count is known.
    """
    if types.is_null(source):
        return True
    if types.is_integer(source) and unit and kind in UNITS[unit]:
        return True
    match source:
        case pa.DictionaryType() | pa.RunEndEncodedType():
            return can_cast(source.value_type, kind, unit)
        case pa.BaseExtensionType(extension_name=name) if name in _EXTENSIONS:
            return kind in _EXTENSIONS[name]
        case pa.BaseExtensionType(extension_name="arrow.opaque", storage_type=storage):
            # numbers of PostgreSQL, which has more digits than any decimal
            is_number = isinstance(kind, DecimalType) and _is_text(storage)
            return is_number or can_cast(storage, kind, unit)
        case pa.BaseExtensionType():
            return can_cast(source.storage_type, kind, unit)
    return _can_cast_plain(source, kind)


def _can_cast_plain(source: pa.DataType, kind: FieldType) -> bool:
    match kind:
        case ListType(element=element):
            return isinstance(source, LISTS) and can_cast(source.value_type, element)
        case MapType(key=key, value=value):
            return (
                isinstance(source, pa.MapType)
                and can_cast(source.key_type, key)
                and can_cast(source.item_type, value)
            )
        case StructType():
            return isinstance(source, pa.StructType) and _can_cast_members(source, kind)
        case DecimalType():
            if types.is_integer(source):
                return kind.scale == 0
            if not isinstance(source, DECIMALS):
                return False
            digits: int = source.precision - source.scale + kind.scale
            return digits <= MAX_DECIMAL_DIGITS
        case Primitive():
            return any(accepts(source) for accepts in _ACCEPTED[kind])


def _can_cast_members(source: pa.StructType, kind: StructType) -> bool:
    targets = {member.name: member for member in kind.members}
    names = [field.name for field in source]
    required = {member.name for member in kind.members if not member.nullable}
    return (
        len(set(names)) == len(names)
        and required <= set(names) <= targets.keys()
        and all(can_cast(field.type, targets[field.name].type) for field in source)
    )


def cast_column(column: Array, kind: FieldType, unit: str = "") -> Array:
    """Cast a plain column to the Arrow type of `kind`.

    Raises:
        ArrowInvalid: a value would change.
        ValueError: a time is beyond the years 1 to 9999, or a member of a struct has no value.
    """
    if types.is_integer(column.type) and unit and kind in UNITS[unit]:
        return from_unit_count(column, kind, unit)
    if kind is Primitive.DYNAMIC:
        return _documents(column)
    target = arrow_type(kind)
    if not column.type.equals(target) and (
        contains_type(kind, DecimalType) or contains_type(kind, Primitive.UUID)
    ):
        kinds = leaf_kinds(column.type, kind)
        column = rebuilt(column, lambda leaf: _parsed(leaf, next(kinds)))
        column = column.cast(arrow_type(kind, widest_type))
    result = column if column.type.equals(target) else column.cast(target)
    result.validate(full=True)  # find invalid UTF-8, which would break readers
    for leaf in leaves(result):
        check_years(leaf)
    if contains_type(kind, StructType):
        _check_members(result, kind)
    return result


def _documents(column: Array) -> Array:
    """Return texts, or nested values, as JSON documents."""
    if not types.is_nested(column.type):
        return _text_documents(column)
    if isinstance(column.type, pa.StructType) and is_variant(column.type):
        from dormouse.files.variants import variant_texts  # few files have any

        return documents(variant_texts(column))
    return documents(json_texts(column))


def leaf_kinds(source: pa.DataType, kind: FieldType) -> Iterator[FieldType]:
    """Yield what the columns of single values in a column become, in the order of `leaves`."""
    match kind:
        case ListType(element=element) if isinstance(source, LISTS):
            yield from leaf_kinds(source.value_type, element)
        case MapType(key=key, value=value) if isinstance(source, pa.MapType):
            yield from leaf_kinds(source.key_type, key)
            yield from leaf_kinds(source.item_type, value)
        case StructType(members=members) if isinstance(source, pa.StructType):
            targets = {member.name: member.type for member in members}
            for field in source:
                yield from leaf_kinds(field.type, targets[field.name])
        case _:
            yield kind


def _parsed(leaf: Array, kind: FieldType) -> Array:
    """Return UUIDs and decimals of texts, and UUIDs of bytes; other columns as they are."""
    if _is_text(leaf.type) and kind is Primitive.UUID:
        return parse_uuids(leaf)
    if _is_text(leaf.type) and isinstance(kind, DecimalType):
        return parse_decimals(leaf.cast(pa.string()), kind)
    # within a struct, Arrow would check the bytes of null ones, too
    return leaf.cast(arrow_type(kind)) if kind is Primitive.UUID else leaf


def _check_members(cells: Array, kind: FieldType) -> None:
    """Check, at any depth, that required members of structs are there. Raises ValueError."""
    match kind:
        case ListType(element=element):
            _check_members(cells.flatten(), element)  # type: ignore[attr-defined]  # a list
        case MapType(value=value):
            values = pa.ListArray.from_arrays(cells.offsets, cells.items)  # type: ignore[attr-defined]
            _check_members(values.flatten(), value)  # only those of a slice
        case StructType(members=members):
            present = cells.filter(cells.is_valid()).flatten()  # type: ignore[attr-defined]
            for member, values in zip(members, present, strict=True):
                if values.null_count and not member.nullable:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
                _check_members(values, member.type)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


_EXTENSIONS: dict[str, tuple[Primitive, ...]] = {
    "arrow.uuid": (Primitive.UUID,),
    "arrow.json": (Primitive.STRING, Primitive.DYNAMIC),
    "arrow.bool8": (Primitive.BOOLEAN,),
}
"""The types that extension types of Arrow can become, by their storage."""
_BYTES = (types.is_binary, types.is_large_binary, types.is_binary_view)
_ACCEPTED: dict[Primitive, tuple[Callable[[pa.DataType], bool], ...]] = {
    **dict.fromkeys(WHOLE, (types.is_integer,)),
    Primitive.FLOAT: (types.is_integer, types.is_float16, types.is_float32),
    Primitive.DOUBLE: (types.is_integer, types.is_floating),
    Primitive.BOOLEAN: (types.is_boolean,),
    Primitive.STRING: (_is_text,),
    Primitive.BYTES: (*_BYTES, types.is_fixed_size_binary),
    **dict.fromkeys(ZONED, (types.is_timestamp,)),
    **dict.fromkeys(
        TIMESTAMPS - ZONED, (lambda kind: isinstance(kind, pa.TimestampType) and kind.tz is None,)
    ),
    Primitive.TIME: (types.is_time,),
    # Polars has no type of 16 bytes
    Primitive.UUID: (lambda kind: kind == pa.binary(UUID_BYTES), _is_text, *_BYTES),
    Primitive.DATE: (types.is_date,),
    Primitive.DYNAMIC: (_is_text, types.is_nested),
}


def _listed(names: Iterable[str]) -> str:
    which = list(names)
    return f"column{'s'[: len(which) > 1]} {', '.join(which)}"


def describe_without_values(error: BaseException, kind: FieldType) -> str:
    """Return the part of an error message that quotes no value, or else the form of a value."""
    if isinstance(error, pa.ArrowException):
        match = _QUOTES_NOTHING.match(str(error))
        if match:
            return str(next(filter(None, match.groups())))
        return f"expected: {form}" if (form := EXPECTED_FORMS.get(kind)) else ""
    text = str(error).partition("\n")[0]
    # msgspec quotes the member's name, which is text of the file
    return "a struct has an unknown member" if "unknown field" in text else text
