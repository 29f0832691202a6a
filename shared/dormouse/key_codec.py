"""The keys of one schema: convert them from and to the forms that callers use, and check them.

A query may bound rows by row keys and then sort keys. A split point has row keys only.
"""

import base64
import binascii
import datetime as dt
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from numbers import Integral
from typing import Any, Protocol, TypeVar, cast

from dormouse.errors import InvalidRequestError
from dormouse.keys import INT64_MAX, INT64_MIN, Key, KeyPart, KeyRange
from dormouse.schema.schema import Field, Schema, check_list, key_problem
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    UUID_BYTES,
    ZONED,
    DecimalType,
    FieldType,
    Primitive,
    clock_count,
    decimal_count,
    exact_count,
    from_clock,
    from_days,
    from_decimal_count,
    from_microseconds,
    parse_clock,
    parse_count,
    parse_decimal,
    parse_uuid,
    show_clock,
    show_count,
    show_type,
    show_uuid,
    to_count,
    to_days,
)

# Keys on the command line: ``name=value,name=value``, and ranges ``from..to``; split to texts.
#
# Names and values may contain any character. So a comma separates only where a name of a column and
# ``=`` follow, and two dots only where such an assignment, or nothing, follows.

_PLAIN_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def split_assignments(text: str, schema: Schema) -> Iterator[tuple[str, str]]:
    r"""Yield the name and the text of each part of a key.

    A backslash before a comma makes the comma part of the value, and two backslashes there are one
    that ends the value: ``a=x\,b=y`` is one value ``x,b=y``, while ``a=x\\,b=y`` is ``x\`` and
    ``y``.
    Raises InvalidRequestError: a part is not of the form name=value.
    """
    for assignment in _assignments(text, schema):
        name, equals, value = _partition(assignment, schema)
        if not equals:
            raise InvalidRequestError(
                f"{assignment!r} is not part of a key", hint="write it as name=value"
            )
        yield name, value


def split_range(text: str, schema: Schema) -> list[str]:
    """Return the two ends of a range; "" is an open one. Raises InvalidRequestError: not two."""
    ends = re.split(rf"\.\.(?={_part_start(schema)}|$)", text)
    if len(ends) != 2:
        raise InvalidRequestError(
            f"{text!r} is not a range",
            hint="write it as name=value..name=value; leave out an end to leave it open",
        )
    return ends


def join_assignments(parts: Sequence[tuple[str, str]], schema: Schema) -> str:
    """Return names and texts of a key's parts as one text, which `split_assignments` splits."""
    texts = [f"{name}={value}" for name, value in parts]
    separators, end = set(), -1
    for text in texts:
        end += len(text) + 1
        separators.add(end)

    def escape(comma: re.Match[str]) -> str:
        separates = comma.end() - 1 in separators
        return comma[1] * 2 + ("," if separates else "\\,")

    return re.sub(rf"(\\*),(?={_part_start(schema)})", escape, ",".join(texts))


def _part_start(schema: Schema) -> str:
    """Return a pattern for the start of a part: a column's name, or any plain name, and ``=``.

    It accepts names that are not keys, so that they are refused and not read as part of a value.
    """
    names = sorted((field.name for field in schema.fields), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, names))}|{_PLAIN_NAME})="


def _assignments(text: str, schema: Schema) -> Iterator[str]:
    """Yield the parts of a key, without the backslashes before a comma, a name and ``=``."""
    part, at = "", 0
    for comma in re.finditer(rf"(\\*),(?={_part_start(schema)})", text):
        backslashes = len(comma[1])
        part += text[at : comma.start()] + "\\" * (backslashes // 2)
        at = comma.end()
        if backslashes % 2:
            part += ","
        else:
            yield part
            part = ""
    yield part + text[at:]


def _partition(assignment: str, schema: Schema) -> tuple[str, str, str]:
    """Return name, ``=`` and value of one part of a key; the name may contain ``=``."""
    names = [field.name for field in schema.fields if assignment.startswith(f"{field.name}=")]
    if not names:
        return assignment.partition("=")
    name = max(names, key=len)
    return name, "=", assignment[len(name) + 1 :]


# Key parts as people write and read them: in split points, command lines and messages.

FORMS: dict[FieldType, str] = {
    Primitive.INT: "a whole number of 32 bits",
    Primitive.LONG: "a whole number of 64 bits",
    Primitive.BYTES: "bytes in base64",
    Primitive.TIMESTAMP: "an ISO 8601 time (UTC without a zone) or microseconds since 1970",
    Primitive.TIMESTAMP_NTZ: "an ISO 8601 time without a zone or microseconds since 1970",
    Primitive.TIMESTAMP_NS: "an ISO 8601 time (UTC without a zone) or nanoseconds since 1970",
    Primitive.TIMESTAMP_NTZ_NS: "an ISO 8601 time without a zone or nanoseconds since 1970",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29 or days since 1970",
    Primitive.TIME: "an ISO 8601 time of day such as 12:30:45.123456",
    Primitive.UUID: "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
}
"""What a text must be to mean a value of each type, in keys and in ingested files."""


def part_from_text(text: str, field: Field) -> KeyPart:
    """Return the key part that `text` means in a column. Raises InvalidRequestError."""
    try:
        return parse_part(text, field.type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"key {field.name!r}: {error}", hint=error.hint) from error


def parse_part(text: str, kind: FieldType) -> KeyPart:
    """Return the key part that `text` means in a key column of this type.
    Raises InvalidRequestError: it means none; the message says what is expected.
    """
    try:
        part = _parse(text, kind)
    except (ValueError, OverflowError) as error:
        form = FORMS.get(kind, f"a number that {show_type(kind)} holds exactly")
        raise InvalidRequestError(f"{text!r} is not {form}") from error
    limits = (-(2**31), 2**31 - 1) if kind is Primitive.INT else (INT64_MIN, INT64_MAX)
    is_count = isinstance(kind, DecimalType)  # its digits were counted already
    if isinstance(part, int) and not is_count and not limits[0] <= part <= limits[1]:
        raise InvalidRequestError(f"{text!r} is not {FORMS[kind]}: it is out of range")
    return part


def _parse(text: str, kind: FieldType) -> KeyPart:
    match kind:
        case DecimalType():
            return decimal_count(parse_decimal(text, kind), kind)
        case Primitive.STRING:
            text.encode()  # raises for unpaired surrogates, which have no place in the key order
            return text
        case Primitive.INT | Primitive.LONG:
            return int(text)
        case Primitive.BYTES:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(str(error)) from error
        case Primitive() if kind in TIMESTAMPS:
            if text.removeprefix("-").isdecimal():
                return int(text)
            return parse_count(text, kind)
        case Primitive.TIME:
            is_count = text.removeprefix("-").isdecimal() and len(text) > len("123045")
            return int(text) if is_count else parse_clock(text)
        case Primitive.UUID:
            return bytes.fromhex(text[2:]) if text.startswith("0x") else parse_uuid(text)
        case Primitive.DATE:
            is_iso = len(text) == len("20240229") and text.isdecimal()
            if text.removeprefix("-").isdecimal() and not is_iso:
                return int(text)
            return to_days(dt.date.fromisoformat(text))
        case _:
            raise InvalidRequestError(f"{show_type(kind)} cannot be the type of a key")


def show_part(part: KeyPart, kind: FieldType) -> str:
    """Return the text of a key part, which `parse_part` reads back.

    The end of a range may be no value of the type: bytes that follow a UUID, or the end of a day.
    """
    if isinstance(part, bytes) and kind is Primitive.UUID:
        return show_uuid(part) if len(part) == UUID_BYTES else f"0x{part.hex()}"
    if isinstance(part, bytes):
        return base64.b64encode(part).decode()
    try:
        match kind, part:
            case DecimalType(), int():
                return f"{from_decimal_count(part, kind):f}"
            case Primitive(), int() if kind in TIMESTAMPS:
                return show_count(part, kind)
            case Primitive.TIME, int():
                return show_clock(part)
            case Primitive.DATE, int():
                return from_days(part).isoformat()
    except OverflowError:  # no ISO form has it; 9 digits, since 8 would be read as a date
        return f"{part:09d}"
    return str(part)


# Key parts in messages: numbers as JSON numbers, everything else as text.


_TEXT_ONLY = (Primitive.STRING, Primitive.BYTES, Primitive.TIME, Primitive.UUID)


def part_from_json(part: object, field: Field, where: str) -> KeyPart:
    """Return the key part in a message; `where` names its key. Raises InvalidRequestError."""
    if isinstance(part, float) and isinstance(field.type, DecimalType):
        part = _exact(part, where)
    is_number = isinstance(part, int) and not isinstance(part, bool)
    is_text_only = field.type in _TEXT_ONLY
    if is_text_only and is_number or not (is_number or isinstance(part, str)):
        raise InvalidRequestError(f"{where}: {part!r} is not a value of {field.name}")
    try:
        return parse_part(str(part), field.type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def _exact(number: float, where: str) -> str:
    """Return the digits that a number was sent with, which a float has only if they are few."""
    text = repr(number)
    if len(Decimal(text).as_tuple().digits) > sys.float_info.dig:
        raise InvalidRequestError(
            f"{where}: a number in JSON has up to {sys.float_info.dig} digits",
            hint="write it as text, in quotes",
        )
    return text


def part_to_json(part: KeyPart, field: Field) -> object:
    """Return a key part as messages carry it."""
    is_number = field.type in (Primitive.INT, Primitive.LONG, *TIMESTAMPS)
    return part if is_number else show_part(part, field.type)


# Key parts as Python programs pass them: a datetime for a timestamp, a date for a date.

_COUNTED = TIMESTAMPS | {Primitive.INT, Primitive.LONG, Primitive.DATE}


class UuidValue(Protocol):
    """A UUID of Python's module of that name."""

    @property
    def bytes(self) -> bytes:
        """Its 16 bytes."""


KeyValue = int | str | bytes | Decimal | dt.datetime | dt.date | dt.time | UuidValue
"""One part of a key. A timestamp is a datetime, aware or not as the column is, or its count since
1970, a date a date or days since 1970; a UUID may be its text or bytes, a decimal also an int or
text."""

KeyLike = KeyValue | tuple[KeyValue, ...] | Mapping[str, KeyValue]
"""A key or a prefix of one: its parts in order, or by column name, or its first part alone."""

Keys = KeyLike | Iterable[KeyLike]
"""One key or prefix, or a list of them."""

Ranges = Iterable[tuple[KeyLike | None, KeyLike | None]]
"""Pairs of keys or prefixes: from the first, inclusive, to the second, exclusive; None is open."""


_SHOWN = 200
"""The most characters of a value that an error shows."""


def list_keys(keys: Keys | None, name: str = "exact") -> list[KeyLike]:
    """Return the keys of an argument with a name that is one key, many, or None.
    Raises InvalidRequestError: it is a frame.
    """
    is_one = isinstance(keys, bytearray | memoryview) or getattr(keys, "shape", None) == ()
    if isinstance(keys, Iterable) and not (
        is_one or isinstance(keys, str | bytes | tuple | Mapping)
    ):
        return check_list(name, keys)
    if hasattr(keys, "columns"):  # tables of Arrow and frames of Spark are no Iterable
        return check_list(name, cast("Iterable[KeyLike]", keys))
    return [] if keys is None else [cast("KeyLike", keys)]


def part_from_python(value: KeyValue, field: Field) -> KeyPart:
    """Return the key part of a program's value. Raises InvalidRequestError: it has another type."""
    plain: Any = value
    if isinstance(value, bytearray | memoryview):
        plain = bytes(value)
    elif hasattr(value, "as_py"):  # of Arrow
        plain = value.as_py()
    try:
        return _checked_part(plain, field.type)
    except ValueError as error:
        shown = " ".join(repr(value).split())[:_SHOWN]
        raise InvalidRequestError(
            f"{shown} cannot be a value of key {field.name!r}: {error}"
        ) from error


def part_to_python(part: KeyPart, field: Field) -> KeyValue:
    """Return a key part as a program passes it.

    A UUID is its text. Times of nanoseconds, and what lies after the year 9999, are counts.
    """
    kind = field.type
    if isinstance(part, bytes) and kind is Primitive.UUID and len(part) == UUID_BYTES:
        return show_uuid(part)
    if not isinstance(part, int) or kind in NANOSECONDS:
        return part
    if isinstance(kind, DecimalType):
        return from_decimal_count(part, kind)
    try:
        if kind in TIMESTAMPS:
            time = from_microseconds(part)
            return time if kind in ZONED else time.replace(tzinfo=None)
        if kind is Primitive.DATE:
            return from_days(part)
        return from_clock(part) if kind is Primitive.TIME else part
    except OverflowError:
        return part


def plain_part(value: object, kind: FieldType) -> KeyPart:
    """Return the key part of a Python value that fits its column; a time without a zone is UTC."""
    if kind is Primitive.UUID:
        return uuid_bytes(value)
    if isinstance(kind, DecimalType) and isinstance(value, Decimal | int | str):
        exact = parse_decimal(value, kind) if isinstance(value, str) else Decimal(value)
        return decimal_count(exact, kind)
    if isinstance(value, dt.datetime):
        return to_count(value, kind if isinstance(kind, Primitive) else Primitive.TIMESTAMP)
    if isinstance(value, dt.time):
        return clock_count(value)
    if isinstance(value, dt.date):
        return to_days(value)
    if isinstance(value, int | str | bytes) and not isinstance(value, bool):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be part of a key of type {kind}")


def uuid_bytes(value: object) -> bytes:
    """Return the bytes of a UUID, given as text or bytes. Raises ValueError if it is none."""
    if isinstance(value, str):
        return parse_uuid(value)
    raw = value if isinstance(value, bytes) else getattr(value, "bytes", None)
    if isinstance(raw, bytes) and len(raw) == UUID_BYTES:
        return raw
    raise ValueError("it is no UUID")


_SURROGATE = re.compile("[\ud800-\udfff]")


def _checked_part(value: KeyValue, kind: FieldType) -> KeyPart:
    """Return the key part of a program's value. Raises ValueError: it is not of the type."""
    match kind, value:
        case _, bool():
            raise ValueError("it is a boolean")
        case Primitive.STRING, str() if _SURROGATE.search(value):
            raise ValueError("it contains an unpaired surrogate")
        case (Primitive.STRING, str()) | (Primitive.BYTES, bytes()) | (Primitive.UUID, _):
            return plain_part(value, kind)
        case DecimalType(), Integral():
            return plain_part(int(value), kind)
        case (DecimalType(), Decimal() | str()) | (Primitive.TIME, dt.time()):
            return plain_part(value, kind)
        case Primitive(), dt.datetime() if kind in TIMESTAMPS:
            part = exact_count(value, kind)
        case Primitive.DATE, dt.date() if not isinstance(value, dt.datetime):
            return to_days(value)
        case Primitive(), Integral() if kind in _COUNTED:  # NumPy's, too
            part = int(value)
        case ((Primitive() | DecimalType()), _):
            raise ValueError(f"the column is {show_type(kind)}")
        case _:
            raise ValueError("the column cannot be a key")
    if not INT64_MIN <= part <= INT64_MAX:
        raise ValueError("it needs more than 64 bits")
    return part


_V = TypeVar("_V")

JsonEnds = tuple[tuple[object, ...] | None, tuple[object, ...] | None]
"""The ends of a range in a message: a first key, inclusive, and a last, exclusive; None is open."""

EMPTY_RANGE = KeyRange((), ())


@dataclass(frozen=True, slots=True)
class KeyCodec:
    """Convert keys of `schema`.

    Every method raises InvalidRequestError for a value that does not fit its column, for too many
    parts, for an unknown column, and for parts that are not the first of the keys.
    """

    schema: Schema

    def from_python(self, key: KeyLike) -> Key:
        """Return the key that a program passed: its parts in order, by name, or its first part."""
        if isinstance(key, Mapping):
            values = self._in_order(key)
        else:
            values = key if isinstance(key, tuple) else (key,)
        if len(values) > len(self.schema.keys):
            raise InvalidRequestError(
                f"the key has {len(values)} parts, but the table has {self._names()}"
            )
        return tuple(map(part_from_python, values, self.schema.keys))

    def to_python(self, key: Key) -> tuple[KeyValue, ...]:
        """Return a key as a program passes it, which `from_python` reads."""
        return tuple(map(part_to_python, key, self.schema.keys))

    def range_from_python(self, low: KeyLike | None, high: KeyLike | None) -> KeyRange:
        """Return the range from `low`, inclusive, to `high`, exclusive; None leaves an end open.
        Raises InvalidRequestError: also if the end comes before the start.
        """
        start = () if low is None else self.from_python(low)
        end = None if high is None else self.from_python(high)
        return self._span(start, end, "the range")

    def spans_from_python(self, ranges: Ranges | None) -> list[KeyRange]:
        """Return pairs of keys as ranges. Raises InvalidRequestError."""
        pairs = (
            () if ranges is None else tuple(ranges) if isinstance(ranges, Iterable) else (ranges,)
        )
        # a text of two characters would be taken for a pair
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise InvalidRequestError(
                "ranges are a list of pairs of keys",
                hint="write ranges=[(low, high)], with None for an open end; exact=… for keys",
            )
        return [self.range_from_python(low, high) for low, high in pairs]

    def ranges_from_python(self, ranges: Ranges | None, exact: Keys | None) -> list[KeyRange]:
        """Return the ranges of a query, at least one; the whole table if both arguments are None.

        `exact` is one key or prefix, or a list of them, whose rows are added to those in `ranges`.
        """
        if ranges is None and exact is None:
            return [KeyRange()]
        spans = self.spans_from_python(ranges)
        spans += [KeyRange.exactly(self.from_python(key)) for key in list_keys(exact)]
        return spans or [EMPTY_RANGE]

    def from_json(self, parts: Sequence[object], where: str) -> Key:
        """Return the key in a message; `where` names it in errors."""
        fields = self.schema.keys
        if not 1 <= len(parts) <= len(fields):
            raise InvalidRequestError(
                f"{where} has {len(parts)} parts, not 1 to {len(fields)}",
                hint=f"the table has {self._names()}",
            )
        return tuple(map(partial(part_from_json, where=where), parts, fields))

    def to_json(self, key: Key) -> tuple[object, ...]:
        """Return a key as messages carry it: numbers as numbers, everything else as text."""
        return tuple(map(part_to_json, key, self.schema.keys))

    def range_from_json(self, ends: JsonEnds, where: str) -> KeyRange:
        """Return the range in a message; `where` names it in errors. No key is below an empty end.
        Raises InvalidRequestError: also if the end comes before the start.
        """
        first, last = ends
        low = () if first is None else self.from_json(first, where)
        high = None if last is None else self.from_json(last, where) if last else ()
        return self._span(low, high, where)

    def _span(self, low: Key, high: Key | None, where: str) -> KeyRange:
        if high is not None and high < low:
            texts = self.to_assignments(high), self.to_assignments(low)
            raise InvalidRequestError(f"{where} ends ({texts[0]}) before it starts ({texts[1]})")
        return KeyRange(low, high)

    def range_to_json(self, span: KeyRange) -> JsonEnds:
        """Return a range as messages carry it, which `range_from_json` reads."""
        high = None if span.max is None else self.to_json(span.max)
        return self.to_json(span.min) or None, high

    def keys_to_json(self, keys: Keys | None) -> tuple[tuple[object, ...], ...]:
        """Return the keys that a program passed as messages carry them."""
        return tuple(self.to_json(self.from_python(key)) for key in list_keys(keys, "keys"))

    def from_assignments(self, text: str) -> tuple[KeyValue, ...]:
        """Return the key written as ``name=value,name=value`` on the command line."""
        key: dict[str, KeyPart] = {}
        for name, value in split_assignments(text, self.schema):
            if name in key:
                raise InvalidRequestError(f"key {name!r} is given twice")
            key[name] = part_from_text(value, self._key_after_comma(name, is_first=not key))
        return self.to_python(self._in_order(key))

    def to_assignments(self, key: Key) -> str:
        """Return a key as it is written on the command line, which `from_assignments` reads."""
        parts = zip(key, self.schema.keys, strict=False)
        texts = [(field.name, show_part(part, field.type)) for part, field in parts]
        return join_assignments(texts, self.schema)

    def range_to_assignments(self, span: KeyRange) -> str:
        """Return a range as ``from..to``, which `range_from_assignments` reads.

        It does not read a string with two dots before a name and ``=``.
        """
        high = "" if span.max is None else self.to_assignments(span.max)
        return f"{self.to_assignments(span.min)}..{high}"

    def range_from_assignments(self, text: str) -> tuple[KeyLike | None, KeyLike | None]:
        """Return the ends of a range written as ``from..to``; None for an open end."""
        low, high = (
            self.from_assignments(t) if t else None for t in split_range(text, self.schema)
        )
        return low, high

    def split_point(self, key: Key, where: str) -> Key:
        """Return `key` if partitions can meet at it; `where` names it in errors.
        Raises InvalidRequestError: it has a sort key, or is larger than a row key may be.
        """
        if len(key) > len(self.schema.row_keys):
            name = self.schema.keys[len(self.schema.row_keys)].name
            raise InvalidRequestError(
                f"{where} has a value for {name!r}, which is a sort key",
                hint="partitions are ranges of row keys alone",
            )
        if problem := key_problem(key, self.schema.key_types, fewest_parts=1):
            raise InvalidRequestError(
                f"{where} cannot be a key of the table: {problem}", hint="choose a shorter one"
            )
        return key

    def split_points_from_json(self, points: Iterable[Sequence[object]]) -> list[Key]:
        """Return the split points in a message."""
        keys = []
        for number, point in enumerate(points, start=1):
            where = f"split point {number}"
            keys.append(self.split_point(self.from_json(point, where), where))
        return keys

    def split_points_to_json(self, points: Iterable[KeyLike]) -> tuple[tuple[object, ...], ...]:
        """Return the split points that a program passed as messages carry them."""
        keys = (self.split_point(self.from_python(point), "a split point") for point in points)
        return tuple(self.to_json(key) for key in keys)

    def _in_order(self, values: Mapping[str, _V]) -> tuple[_V, ...]:
        """Return values by name as a tuple; they must be those of the first keys."""
        for name in values:
            self._key_named(name)
        names = [field.name for field in self.schema.keys[: len(values)]]
        for name in names:
            if name not in values:
                raise InvalidRequestError(
                    f"the key needs a value for {name!r} too",
                    hint=f"the table has {self._names()}; give them without a gap",
                )
        return tuple(values[name] for name in names)

    def _key_named(self, name: str) -> Field:
        field = self.schema.field_named(name)
        if field not in self.schema.keys:
            raise InvalidRequestError(
                f"column {name!r} is not a row key or sort key",
                hint=f"the table has {self._names()}; find rows by other columns with a condition",
            )
        return field

    def _key_after_comma(self, name: str, *, is_first: bool) -> Field:
        try:
            return self._key_named(name)
        except InvalidRequestError as error:
            if is_first:
                raise
            hint = r"a comma that belongs to the value before it is written \,"
            raise InvalidRequestError(str(error), hint=f"{error.hint}; {hint}") from error

    def _names(self) -> str:
        """Return the names of the keys for an error: ``the row keys a, b, then the sort key c``."""
        names = [field.name for field in self.schema.row_keys]
        if not names:
            return "no keys by which rows can be found"
        shown = f"the row keys {', '.join(names)}" if len(names) > 1 else f"one row key, {names[0]}"
        sort_keys = ", ".join(field.name for field in self.schema.sort_keys)
        if not sort_keys:
            return shown
        return f"{shown}, then the sort key{'s'[: len(self.schema.sort_keys) > 1]} {sort_keys}"
