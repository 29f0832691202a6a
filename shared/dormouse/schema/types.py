"""The types of columns, their JSON form, and how many leaf columns a value takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dormouse.errors import InvalidRequestError

MAX_TYPE_DEPTH = 16
"""How deeply types may nest. Deeper ones are a mistake, and engines recurse over them."""
_NAME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")
_NAME_HINT = "a name has 1 to 255 characters and no control characters"


class Primitive(Enum):
    """A type without parameters; the value is its name in the JSON form."""

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

    element: FieldType

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"ListType": {"elementType": self.element.to_json()}}


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from one primitive type to any type; values may be null."""

    key: Primitive
    value: FieldType

    def to_json(self) -> object:
        """Return the JSON form."""
        return {"MapType": {"keyType": self.key.to_json(), "valueType": self.value.to_json()}}


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a struct: name, type, and whether it may be null."""

    name: str
    type: FieldType
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

ZONED = frozenset({Primitive.TIMESTAMP, Primitive.TIMESTAMP_NS})
"""The types of instants: a time in another zone is converted to UTC."""
NANOSECONDS = frozenset({Primitive.TIMESTAMP_NS, Primitive.TIMESTAMP_NTZ_NS})
TIMESTAMPS = ZONED | NANOSECONDS | {Primitive.TIMESTAMP_NTZ}
"""The types that count from 1970: microseconds, or nanoseconds."""
FILTERED = TIMESTAMPS | {
    Primitive.INT,
    Primitive.LONG,
    Primitive.DATE,
    Primitive.TIME,
    Primitive.STRING,
    Primitive.BYTES,
    Primitive.UUID,
}
"""The types whose columns can have Bloom filters. Floats cannot: 0.0 and -0.0 are equal, but their
bytes are not.
"""
MAX_TIME = 24 * 60 * 60 * 1_000_000 - 1
"""The last microsecond of a day."""
UUID_BYTES = 16

UNITS: Mapping[str, frozenset[Primitive]] = {
    "days": frozenset({Primitive.DATE}),
    "seconds": TIMESTAMPS,
    "milliseconds": TIMESTAMPS,
    "microseconds": TIMESTAMPS,
    "nanoseconds": TIMESTAMPS,
}
"""What a number in an ingested file may count since 1970, where a timestamp or date is expected."""

KEY_TYPES = frozenset(
    {
        Primitive.INT,
        Primitive.LONG,
        Primitive.STRING,
        Primitive.BYTES,
        Primitive.DATE,
        Primitive.TIME,
        Primitive.UUID,
        *TIMESTAMPS,
    }
)


def leaf_columns(kind: FieldType) -> int:
    """Count the columns of primitive type that a column of type `kind` takes in a file."""
    match kind:
        case Primitive() | DecimalType():
            return 1
        case ListType(element=element):
            return leaf_columns(element)
        case MapType(value=value):
            return 1 + leaf_columns(value)
        case StructType(members=members):
            return sum(leaf_columns(member.type) for member in members)


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


def contains_type(kind: FieldType, wanted: type[StructType | DecimalType] | Primitive) -> bool:
    """Return whether a type is `wanted`, or contains it at any depth."""
    if kind is wanted if isinstance(wanted, Primitive) else isinstance(kind, wanted):
        return True
    match kind:
        case ListType(element=inner):
            return contains_type(inner, wanted)
        case MapType(key=key, value=inner):
            return key is wanted or contains_type(inner, wanted)
        case StructType(members=members):
            return any(contains_type(member.type, wanted) for member in members)
    return False


def nullable_members(kind: FieldType) -> FieldType:
    """Return a type in which every member of a struct, at any depth, can be null."""
    match kind:
        case ListType(element=inner):
            return ListType(nullable_members(inner))
        case MapType(key=key, value=inner):
            return MapType(key, nullable_members(inner))
        case StructType(members=members):
            return StructType(
                tuple(Member(m.name, nullable_members(m.type), True) for m in members)
            )
    return kind


def check_name_list(what: str, names: object) -> None:
    """Refuse a text in place of a list of names: its characters would be the names.

    Raises:
        InvalidRequestError: it is a text.
    """
    if isinstance(names, str):
        raise InvalidRequestError(
            f"{what} is a list of names, not a text", hint=f"write {what}=[{names!r}]"
        )


def check_column_name(name: str) -> str:
    """Return `name` if a column can have it. Raises InvalidRequestError if not."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(f"a column cannot be called {name!r}", hint=_NAME_HINT)
    return name


def parse_type(body: object, where: str, depth: int = 1) -> FieldType:
    """Build a type from its JSON form; `where` names it in errors.

    Raises:
        InvalidRequestError: `body` is not a type.
    """
    if depth > MAX_TYPE_DEPTH:
        raise InvalidRequestError(f"{where}: types nest at most {MAX_TYPE_DEPTH} deep")
    if isinstance(body, str):
        for primitive in Primitive:
            if primitive.value == body:
                return primitive
    elif isinstance(body, Mapping) and len(body) == 1:
        (kind, parameters), *_ = body.items()
        if kind in ("DecimalType", "ListType", "MapType", "StructType"):
            return _nested(kind, parse_object(parameters, where), where, depth + 1)
    raise InvalidRequestError(
        f"{where} has an unknown type: {json.dumps(body)}",
        hint="types: "
        + ", ".join(p.value for p in Primitive)
        + ", DecimalType, ListType, MapType, StructType",
    )


def _nested(kind: str, inner: Mapping[str, object], where: str, depth: int) -> FieldType:
    match kind:
        case "ListType":
            return ListType(parse_type(inner.get("elementType"), where, depth))
        case "MapType":
            key = parse_type(inner.get("keyType"), where, depth)
            if not isinstance(key, Primitive):
                raise InvalidRequestError(f"{where}: the key of a map must be a primitive type")
            return MapType(key, parse_type(inner.get("valueType"), where, depth))
        case "StructType":
            fields = parse_list(inner.get("fields"), f"{where}: the fields of a struct")
            return StructType(tuple(_member(f, where, depth) for f in fields))
    precision, scale = inner.get("precision"), inner.get("scale", 0)
    if _is_int(precision) and _is_int(scale):
        return DecimalType(precision, scale)  # type: ignore[arg-type]  # both were just checked
    raise InvalidRequestError(f"{where}: precision and scale of a decimal are whole numbers")


def _member(body: object, where: str, depth: int) -> Member:
    name, parts, nullable = parse_named(body, f"{where}: a field of a struct")
    return Member(name, parse_type(parts["type"], f"{where}.{name}", depth), nullable)


def parse_named(
    body: object, where: str, known: frozenset[str] = frozenset()
) -> tuple[str, Mapping[str, object], bool]:
    """Return the name of a field in JSON form, its parts, and whether it may be null.

    Raises:
        InvalidRequestError: name or type is missing, or there are parts other than these and
            `known`.
    """
    parts = parse_object(body, where)
    name, nullable = parts.get("name"), parts.get("nullable", False)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(f"{where} has no usable name", hint=_NAME_HINT)
    if not isinstance(nullable, bool):
        raise InvalidRequestError(f"{where} ({name}): nullable must be true or false")
    if "type" not in parts:
        raise InvalidRequestError(f"{where} ({name}) has no type")
    if unknown := sorted(set(parts) - known - {"name", "type", "nullable"}):
        raise InvalidRequestError(f"{where} ({name}) has unknown parts: {', '.join(unknown)}")
    return name, parts, nullable


def parse_object(body: object, where: str) -> Mapping[str, object]:
    """Return `body` if it is a JSON object. Raises InvalidRequestError if not."""
    if not isinstance(body, Mapping):
        raise InvalidRequestError(f"{where} is not a JSON object")
    return body


def parse_list(body: object, where: str) -> Sequence[object]:
    """Return `body` if it is a JSON list; empty if it is missing. Raises InvalidRequestError if it
    is something else.
    """
    if body is None:
        return ()
    if not isinstance(body, Sequence) or isinstance(body, str):
        raise InvalidRequestError(f"{where} is not a list of fields")
    return body


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
