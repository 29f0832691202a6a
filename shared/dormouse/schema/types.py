"""The types of columns, their JSON form, and how many leaf columns a value takes."""

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from enum import Enum
from typing import Any, TypeGuard, TypeVar

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.stored.decoding import convert_plain

MAX_TYPE_DEPTH = 16
"""How deeply types may nest. Deeper ones are a mistake, and engines recurse over them."""
MAX_DIGITS = 38
"""The digits of the widest decimal."""
_T = TypeVar("_T")

_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
_NAME_HINT = "a name has 1 to 255 characters and no control characters"


class Primitive(Enum):
    """A type without parameters; the value is its name in the JSON form."""

    __hash__ = object.__hash__  # a look-up asks for dozens; that of Enum takes four times as long
    INT = "IntType"
    LONG = "LongType"
    FLOAT = "FloatType"
    DOUBLE = "DoubleType"
    BOOLEAN = "BooleanType"
    STRING = "StringType"
    BYTES = "ByteArrayType"
    TIMESTAMP = "TimestampType"  # microseconds since 1970-01-01T00:00Z
    TIMESTAMP_NTZ = "TimestampNtzType"  # microseconds since 1970-01-01T00:00 of any one clock
    TIMESTAMP_NS = "TimestampNsType"  # nanoseconds since 1970-01-01T00:00Z
    TIMESTAMP_NTZ_NS = "TimestampNtzNsType"  # nanoseconds since 1970-01-01T00:00 of any one clock
    DATE = "DateType"  # days since 1970-01-01
    TIME = "TimeType"  # microseconds since midnight
    UUID = "UuidType"  # 16 bytes
    DYNAMIC = "DynamicType"  # JSON documents, as text; of a whole column alone

    def to_json(self) -> object:
        """Return the JSON form."""
        return self.value


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal number of `precision` digits, `scale` of them after the decimal point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        """Refuse a precision or scale that Parquet cannot hold."""
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise InvalidRequestError(
                f"decimal({self.precision},{self.scale}) is not a decimal type",
                hint="precision is 1 to 38, scale 0 to precision",
            )

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"DecimalType": {"precision": self.precision, "scale": self.scale}}


@dataclass(frozen=True, slots=True)
class ListType:
    """A list of one element type; elements may be null."""

    element: "FieldType"

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"ListType": {"elementType": self.element.to_json()}}


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from one primitive type to any type; values may be null."""

    key: Primitive
    value: "FieldType"

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"MapType": {"keyType": self.key.to_json(), "valueType": self.value.to_json()}}


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a struct: name, type, and whether it may be null."""

    name: str
    type: "FieldType"
    nullable: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        body: dict[str, object] = {"name": self.name, "type": self.type.to_json()}
        if self.nullable:
            body["nullable"] = True
        return body


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct: named members, each of one type."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        """Refuse a struct without members, or with two members of one name."""
        names = [member.name for member in self.members]
        if not names:
            raise InvalidRequestError("a struct has no fields", hint="give it at least one")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidRequestError(f"a struct names {', '.join(twice)} more than once")

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"StructType": {"fields": [member.to_json() for member in self.members]}}


FieldType = Primitive | DecimalType | ListType | MapType | StructType
KeyType = Primitive | DecimalType
"""What can be the type of a key (`is_key_type`)."""

WHOLE = (Primitive.INT, Primitive.LONG)
FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
ZONED = frozenset({Primitive.TIMESTAMP, Primitive.TIMESTAMP_NS})
"""The types of instants: a time in another zone is converted to UTC."""
NANOSECONDS = frozenset({Primitive.TIMESTAMP_NS, Primitive.TIMESTAMP_NTZ_NS})
TIMESTAMPS = ZONED | NANOSECONDS | {Primitive.TIMESTAMP_NTZ}
"""The types that count from 1970: microseconds, or nanoseconds."""
MAX_TIME = 24 * 60 * 60 * 1_000_000 - 1
"""The last microsecond of a day."""
UUID_BYTES = 16

UNITS: Mapping[str, frozenset[Primitive]] = {
    "days": frozenset({Primitive.DATE}),
    **dict.fromkeys(("seconds", "milliseconds", "microseconds", "nanoseconds"), TIMESTAMPS),
}
"""What a number in an ingested file may count since 1970, where a timestamp or date is expected."""

KEY_TYPES = TIMESTAMPS.union(
    (*WHOLE, Primitive.STRING, Primitive.BYTES, Primitive.DATE, Primitive.TIME, Primitive.UUID)
)
"""The types of keys, beside decimals."""


def is_key_type(kind: FieldType) -> TypeGuard[KeyType]:
    """Return whether a column of a type can be a key, or have a Bloom filter: whether equal values
    have equal bytes. Floats have not: 0.0 and -0.0 are equal.
    """
    return isinstance(kind, DecimalType) or kind in KEY_TYPES


def leaf_columns(kind: FieldType) -> int:
    """Count the columns of primitive type that a column of type `kind` takes in a file."""
    parts = nested_parts(kind)
    return sum(map(leaf_columns, parts)) if parts else 1


def nested_parts(kind: FieldType) -> tuple[FieldType, ...]:
    """Return the types of the parts of a value: the element of a list, key and value of a map, the
    members of a struct; none of any other type.
    """
    match kind:
        case ListType(element=element):
            return (element,)
        case MapType(key=key, value=value):
            return (key, value)
        case StructType(members=members):
            return tuple(member.type for member in members)
        case _:
            return ()


def count_nested(kind: FieldType) -> int:
    """Count the parts of a type, at any depth."""
    return sum(1 + count_nested(part) for part in nested_parts(kind))


def contains_type(kind: FieldType, target: type[StructType | DecimalType] | Primitive) -> bool:
    """Return whether a type is `target`, or contains it at any depth."""
    is_target = kind is target if isinstance(target, Primitive) else isinstance(kind, target)
    return is_target or any(contains_type(part, target) for part in nested_parts(kind))


def widest(kind: FieldType) -> FieldType:
    """Return the widest type that a type can become in place, but for nanoseconds, which times of
    some years do not become.
    """
    match kind:
        case Primitive.INT:
            return Primitive.LONG
        case Primitive.FLOAT:
            return Primitive.DOUBLE
        case DecimalType(scale=scale):
            return DecimalType(MAX_DIGITS, scale)
        case ListType(element=inner):
            return ListType(widest(inner))
        case MapType(key=key, value=inner):
            return MapType(Primitive(widest(key)), widest(inner))
        case StructType(members=members):
            return StructType(tuple(Member(m.name, widest(m.type), m.nullable) for m in members))
    return kind


def nullable_members(kind: FieldType) -> FieldType:
    """Return a type in which every member of a struct, at any depth, can be null."""
    match kind:
        case ListType(element=inner):
            return ListType(nullable_members(inner))
        case MapType(key=key, value=inner):
            return MapType(key, nullable_members(inner))
        case StructType(members=members):
            parts = (Member(m.name, nullable_members(m.type), True) for m in members)
            return StructType(tuple(parts))
    return kind


def check_column_name(name: str) -> str:
    """Return `name` if a column can have it. Raises InvalidRequestError if not."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(f"a column cannot be called {name!r}", hint=_NAME_HINT)
    return name


def parse_type(body: object, where: str, depth: int = 1) -> FieldType:
    """Build a type from its JSON form; `where` names it. Raises InvalidRequestError: it is none."""
    if depth > MAX_TYPE_DEPTH:
        raise InvalidRequestError(f"{where}: types nest at most {MAX_TYPE_DEPTH} deep")
    if isinstance(body, str):
        for primitive in Primitive:
            if primitive.value == body:
                if primitive is Primitive.DYNAMIC and depth > 1:
                    raise InvalidRequestError(
                        f"{where}: dynamic is the type of a whole column, not of a part of one",
                        hint="make the whole column dynamic: it holds lists and objects",
                    )
                return primitive
    elif isinstance(body, Mapping) and len(body) == 1:
        (kind, parameters), *_ = body.items()
        if kind in ("DecimalType", "ListType", "MapType", "StructType"):
            inner = parse_form(parameters, dict[str, Any], where)
            return _nested(kind, inner, where, depth + 1)
    raise InvalidRequestError(
        f"{where} has an unknown type: {json.dumps(body)}",
        hint="types: "
        + ", ".join(p.value for p in Primitive)
        + ", DecimalType, ListType, MapType, StructType",
    )


def _nested(kind: str, inner: Mapping[str, Any], where: str, depth: int) -> FieldType:
    match kind:
        case "ListType":
            return ListType(parse_type(inner.get("elementType"), where, depth))
        case "MapType":
            key = parse_type(inner.get("keyType"), where, depth)
            if not isinstance(key, Primitive):
                raise InvalidRequestError(f"{where}: the key of a map must be a primitive type")
            return MapType(key, parse_type(inner.get("valueType"), where, depth))
        case "StructType":
            forms = parse_form(inner.get("fields", []), list[_MemberForm], f"{where}: its members")
            types = (parse_type(m.type, f"{where}.{m.name}", depth) for m in forms)
            names = (check_column_name(m.name) for m in forms)
            nullables = (m.nullable for m in forms)
            return StructType(tuple(map(Member, names, types, nullables)))
    precision, scale = inner.get("precision"), inner.get("scale", 0)
    if type(precision) is int and type(scale) is int:  # and no bool
        return DecimalType(precision, scale)
    raise InvalidRequestError(f"{where}: precision and scale of a decimal are whole numbers")


class _MemberForm(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: Any
    nullable: bool = False


def parse_form(body: object, form: type[_T], where: str) -> _T:
    """Return parsed JSON as a value of one form; `where` names it. Raises InvalidRequestError."""
    try:
        return convert_plain(body, form)
    except ValueError as error:
        raise InvalidRequestError(f"{where}: {error}") from error


# Types as people write them: ``list<string>``, ``decimal(10,2)``, ``struct<a:long,b:date?>``.
#
# A list of columns is written ``id:long, at:timestamp, name:string?``, on one line or on several.
#
# Type names are those of schemas, or the same without ``Type``, in any case; ``bytes`` means
# ``ByteArrayType``. A nullable struct member ends in ``?``. A member name that contains one of the
# marks of this notation needs the JSON form, which is accepted as well.

_TOKEN = re.compile(r"\s*([<>(),:?]|[^<>(),:?]+)")
_SHORT = {kind: kind.value.removesuffix("Type").lower() for kind in Primitive} | {
    Primitive.BYTES: "bytes",
    Primitive.TIMESTAMP_NTZ: "timestamp_ntz",
    Primitive.TIMESTAMP_NS: "timestamp_ns",
    Primitive.TIMESTAMP_NTZ_NS: "timestamp_ntz_ns",
}
_BY_NAME = {name: kind for kind, name in _SHORT.items()} | {
    kind.value.lower(): kind for kind in Primitive
}
_HINT = (
    f"types: {', '.join(_SHORT.values())}, decimal(10,2), list<…>, map<…,…>, struct<name:type,…>"
)


def parse_type_text(text: str) -> FieldType:
    """Return the type that `text` describes, in short form or as JSON.
    Raises InvalidRequestError: it describes none; the message says at which character.
    """
    if text.lstrip()[:1] in ("{", '"'):
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"the type {text!r} is not valid JSON: {error}") from error
        return parse_type(body, "the type")
    parser = _Parser(text)
    kind = parser.type()
    parser.end()
    # Through the JSON form, so that its checks apply here, too.
    return parse_type(kind.to_json(), f"the type {text!r}")


def parse_members_text(text: str) -> tuple[Member, ...]:
    """Return the columns that `text` lists as ``name:type``, separated by commas or line ends; one
    that may be null ends in ``?``.
    Raises InvalidRequestError: it is no such list; the message says at which character.
    """
    lines = (line.strip().rstrip(",") for line in text.splitlines())
    parser = _Parser(", ".join(line for line in lines if line))
    members = parser.members()
    parser.end()
    return tuple(
        Member(m.name, parse_type(m.type.to_json(), f"column {m.name!r}"), m.nullable)
        for m in members
    )


def show_type(kind: FieldType) -> str:
    """Return the short form of a type."""
    match kind:
        case Primitive():
            return _SHORT[kind]
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListType(element=element):
            return f"list<{show_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{show_type(key)},{show_type(value)}>"
        case StructType(members=members):
            return f"struct<{','.join(show_column(m.name, m.type, m.nullable) for m in members)}>"


def show_column(name: str, kind: FieldType, nullable: bool) -> str:  # noqa: FBT001  # as in a Member
    """Return the short form of a column or member."""
    return f"{name}:{show_type(kind)}{'?' if nullable else ''}"


class _Parser:
    """Parse a type from left to right, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(token.start(1), token[1].strip()) for token in _TOKEN.finditer(text)]
        self._at = 0

    def type(self) -> FieldType:
        place, name = self._next()
        match name.lower():
            case "list" | "listtype":
                return ListType(self._within("<", ">", self.type))
            case "map" | "maptype":
                return self._within("<", ">", self._map)
            case "struct" | "structtype":
                return StructType(self._within("<", ">", self.members))
            case "decimal" | "decimaltype":
                return self._within("(", ")", self._decimal)
            case lowered if lowered in _BY_NAME:
                return _BY_NAME[lowered]
        raise self._error(place, f"there is no type {name!r}" if name else "a type is missing")

    def members(self) -> tuple[Member, ...]:
        """Parse ``name:type`` and more of them after commas."""
        members = [self._member()]
        while self._skip(","):
            members.append(self._member())
        return tuple(members)

    def end(self) -> None:
        """Check that no text is left."""
        place, token = self._next()
        if token:
            raise self._error(place, f"{token!r} is unexpected")

    def _within(self, opening: str, closing: str, inner: Callable[[], _T]) -> _T:
        self._expect(opening)
        parsed_type = inner()
        self._expect(closing)
        return parsed_type

    def _map(self) -> MapType:
        place, _ = self._peek()
        key = self.type()
        if not isinstance(key, Primitive):
            raise self._error(place, "the key of a map must be a primitive type")
        self._expect(",")
        return MapType(key, self.type())

    def _member(self) -> Member:
        place, name = self._next()
        if name[:1] in ('"', "`"):
            hint = "write it as it is, also with blanks; as JSON, a schema can have any name"
            raise self._error(place, f"the name {name} is in quotes", hint)
        self._expect(":")
        return Member(name, self.type(), nullable=self._skip("?"))

    def _decimal(self) -> DecimalType:
        precision = self._number()
        return DecimalType(precision, self._number() if self._skip(",") else 0)

    def _number(self) -> int:
        place, digits = self._next()
        if not re.fullmatch(r"[0-9]{1,3}", digits):
            raise self._error(place, "a number is missing")
        return int(digits)

    def _peek(self) -> tuple[int, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else (len(self._text), "")

    def _next(self) -> tuple[int, str]:
        token = self._peek()
        self._at += 1
        return token

    def _skip(self, token: str) -> bool:
        skipped = self._peek()[1] == token
        self._at += skipped
        return skipped

    def _expect(self, token: str) -> None:
        place, actual = self._next()
        if actual != token:
            raise self._error(place, f"{token!r} is missing")

    def _error(self, place: int, reason: str, hint: str = _HINT) -> InvalidRequestError:
        return InvalidRequestError(
            f"the type {self._text!r}, character {place + 1}: {reason}", hint=hint
        )


# Times and dates as numbers: micro- or nanoseconds and days since 1970, and since midnight.

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FRACTION = re.compile(r"([.,]\d{6})(\d+)")


def parse_count(text: str, kind: Primitive) -> int:
    """Return the number that an ISO 8601 text means as a timestamp of a type.

    Raises:
        ValueError: it is not a time, is finer than the type, or has a zone and the type has none.
        OverflowError: it lies outside the years that Python has.
    """
    time, nanoseconds = _parsed_time(text)
    if time.tzinfo is not None and kind not in ZONED:
        raise ValueError("it has a time zone, and the column has none")
    if nanoseconds and kind not in NANOSECONDS:
        raise ValueError("times are whole microseconds")
    # astimezone raises for a time outside the years that Python has
    microseconds = to_microseconds(time.astimezone(dt.UTC) if time.tzinfo else time)
    return microseconds * 1000 + nanoseconds if kind in NANOSECONDS else microseconds


def type_of_time(text: str) -> Primitive:
    """Return the type that an ISO 8601 time has by itself. Raises ValueError if it is none."""
    time, nanoseconds = _parsed_time(text)
    if time.tzinfo is None:
        return Primitive.TIMESTAMP_NTZ_NS if nanoseconds else Primitive.TIMESTAMP_NTZ
    return Primitive.TIMESTAMP_NS if nanoseconds else Primitive.TIMESTAMP


def _parsed_time(text: str) -> tuple[dt.datetime, int]:
    time, nanoseconds = _split(text)
    return dt.datetime.fromisoformat(time), nanoseconds


def _split(text: str) -> tuple[str, int]:
    """Return a text with a time to whole microseconds, and the nanoseconds beside these."""
    fraction = _FRACTION.search(text)
    if fraction is None:
        return text, 0
    finer = fraction[2].rstrip("0")
    if len(finer) > 3:
        raise ValueError("times are whole nanoseconds")
    return text[: fraction.start(2)] + text[fraction.end() :], int(finer.ljust(3, "0"))


def show_count(count: int, kind: Primitive) -> str:
    """Return a timestamp as ISO 8601. Raises OverflowError beyond the year 9999."""
    if kind not in NANOSECONDS:
        return _iso(from_microseconds(count), kind)
    microseconds, nanoseconds = divmod(count, 1000)
    text = _iso(from_microseconds(microseconds), kind)
    if not nanoseconds:
        return text
    whole, zone = (text[:-6], text[-6:]) if kind in ZONED else (text, "")
    fraction = "" if "." in whole else ".000000"
    return f"{whole}{fraction}{nanoseconds:03d}{zone}"


def _iso(time: dt.datetime, kind: Primitive) -> str:
    return (time if kind in ZONED else time.replace(tzinfo=None)).isoformat()


def parse_clock(text: str) -> int:
    """Return the microseconds since midnight of an ISO 8601 time of day.
    Raises ValueError: it is none, has a zone, or is finer than a microsecond.
    """
    clock, nanoseconds = _split(text)
    if nanoseconds:
        raise ValueError("times are whole microseconds")
    return clock_count(dt.time.fromisoformat(clock))


def clock_count(clock: dt.time) -> int:
    """Return a time of day as microseconds since midnight. Raises ValueError if it has a zone."""
    if clock.tzinfo is not None:
        raise ValueError("a time of day has no zone")
    seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
    return seconds * 1_000_000 + clock.microsecond


def show_clock(microseconds: int) -> str:
    """Return a time of day as ISO 8601. Raises OverflowError beyond a day."""
    return from_clock(microseconds).isoformat()


def from_clock(microseconds: int) -> dt.time:
    """Return the time of day of microseconds since midnight. Raises OverflowError beyond a day."""
    if not 0 <= microseconds <= MAX_TIME:
        raise OverflowError("that is no time of a day")
    return (_EPOCH + microseconds * _MICROSECOND).time()


def to_microseconds(time: dt.datetime) -> int:
    """Return a time as microseconds since 1970; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def to_count(time: dt.datetime, kind: Primitive) -> int:
    """Return a time as a timestamp of a type; pandas' times have nanoseconds beside Python's."""
    if kind not in NANOSECONDS:
        return to_microseconds(time)
    return to_microseconds(time) * 1000 + int(getattr(time, "nanosecond", 0))


def exact_count(time: dt.datetime, kind: Primitive) -> int:
    """Return `to_count`. Raises ValueError: the time has a zone and the type none, or the reverse,
    or the time is finer than the type.
    """
    if bool(time.tzinfo) != (kind in ZONED):
        raise ValueError(f"the time has {'no' if kind in ZONED else 'a'} time zone")
    if getattr(time, "nanosecond", 0) and kind not in NANOSECONDS:
        raise ValueError("times are whole microseconds")
    return to_count(time, kind)


def to_days(date: dt.date) -> int:
    """Return a date as days since 1970."""
    return (date - _EPOCH.date()).days


def from_microseconds(microseconds: int) -> dt.datetime:
    """Return the time, in UTC, of microseconds since 1970. Raises OverflowError beyond 9999."""
    return _EPOCH + microseconds * _MICROSECOND


def from_days(days: int) -> dt.date:
    """Return the date of days since 1970. Raises OverflowError beyond the year 9999."""
    return _EPOCH.date() + dt.timedelta(days=days)


# Decimals as whole numbers: how often they have the unit of the last digit of their type.

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = Context(prec=38)


def exact_decimal(value: Decimal, kind: DecimalType) -> Decimal:
    """Return a number with exactly as many digits after the point as the type has.
    Raises ValueError: the number has more digits than the type.
    """
    if not value.is_finite():
        raise ValueError("it is not a number")
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=context)
    except DecimalException as error:
        raise ValueError("it has more digits than the type") from error


def parse_decimal(text: str, kind: DecimalType) -> Decimal:
    """Return the number that a text means, as `exact_decimal` does.
    Raises ValueError: it is no number, or has more digits than the type.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    try:
        return exact_decimal(Decimal(text), kind)
    except DecimalException as error:  # the exponent is out of range
        raise ValueError("it has more digits than the type") from error


def decimal_count(value: Decimal, kind: DecimalType) -> int:
    """Return a number in units of its type's last digit: 1.5 is 150 of decimal(10,2)."""
    return int(exact_decimal(value, kind).scaleb(kind.scale, _DIGITS))


def from_decimal_count(count: int, kind: DecimalType) -> Decimal:
    """Return the number, with all digits of its type, of `decimal_count`."""
    return Decimal(count).scaleb(-kind.scale, _DIGITS)


_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")


def parse_uuid(text: str) -> bytes:
    """Return the bytes of a UUID in hexadecimal digits, with hyphens or without, or ValueError."""
    if not _FORM.fullmatch(text):
        raise ValueError("expected: a UUID such as 123e4567-e89b-12d3-a456-426614174000")
    return bytes.fromhex(text.replace("-", ""))


def show_uuid(uuid: bytes) -> str:
    """Return a UUID as text, in lower case and with hyphens."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
