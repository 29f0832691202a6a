"""The schema of a table: its fields, which of them are keys, and their types.

The JSON form is that of GCHQ's Sleeper, accepted unchanged, with more types beside its own:
``{"rowKeyFields": [{"name": "id", "type": "LongType"}], "sortKeyFields": [], "valueFields": []}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dormouse.errors import InvalidRequestError

MAX_FIELDS = 1_000
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


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
    DATE = "DateType"  # days since 1970-01-01

    def to_json(self) -> object:
        """Give the JSON form."""
        return self.value


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal number of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        """Refuse what Parquet cannot hold."""
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise InvalidRequestError(
                f"DecimalType({self.precision}, {self.scale}) is not a decimal type",
                hint="precision is 1 to 38, scale 0 to precision",
            )

    def to_json(self) -> object:
        """Give the JSON form."""
        return {"DecimalType": {"precision": self.precision, "scale": self.scale}}


@dataclass(frozen=True, slots=True)
class ListType:
    """A list of one element type."""

    element: FieldType

    def to_json(self) -> object:
        """Give the JSON form."""
        return {"ListType": {"elementType": self.element.to_json()}}


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from one primitive type to any type."""

    key: Primitive
    value: FieldType

    def to_json(self) -> object:
        """Give the JSON form."""
        return {"MapType": {"keyType": self.key.to_json(), "valueType": self.value.to_json()}}


FieldType = Primitive | DecimalType | ListType | MapType

KEY_TYPES = frozenset(
    {
        Primitive.INT,
        Primitive.LONG,
        Primitive.STRING,
        Primitive.BYTES,
        Primitive.TIMESTAMP,
        Primitive.DATE,
    }
)


@dataclass(frozen=True, slots=True)
class Field:
    """One column: name, type, and whether it may be null (values only)."""

    name: str
    type: FieldType
    nullable: bool = False

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        body: dict[str, object] = {"name": self.name, "type": self.type.to_json()}
        if self.nullable:
            body["nullable"] = True
        return body


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table, in order: row keys, sort keys, values.

    Rows are partitioned and sorted by the row keys, then sorted by the sort keys.

    Raises:
        InvalidRequestError: no row key, a name twice, a key of a type without an order, a
            nullable key, or too many fields.
    """

    row_keys: tuple[Field, ...]
    sort_keys: tuple[Field, ...] = ()
    values: tuple[Field, ...] = ()
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the rules above and index the fields by name."""
        if not self.row_keys:
            raise InvalidRequestError(
                "the schema has no row key", hint="add a field to rowKeyFields"
            )
        if len(self.fields) > MAX_FIELDS:
            raise InvalidRequestError(
                f"the schema has {len(self.fields)} fields; at most {MAX_FIELDS} are allowed"
            )
        for key in self.keys:
            if key.type not in KEY_TYPES:
                raise InvalidRequestError(
                    f"field {key.name!r} cannot be a key: {type_name(key.type)} has no key order",
                    hint="keys are " + ", ".join(sorted(t.value for t in KEY_TYPES)),
                )
            if key.nullable:
                raise InvalidRequestError(f"field {key.name!r} is a key and cannot be nullable")
        names = [f.name for f in self.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidRequestError(f"the schema names {', '.join(twice)} more than once")
        object.__setattr__(self, "_by_name", {f.name: f for f in self.fields})

    @property
    def keys(self) -> tuple[Field, ...]:
        """Row keys, then sort keys: the sort order of the rows."""
        return self.row_keys + self.sort_keys

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields in column order."""
        return self.row_keys + self.sort_keys + self.values

    def field_named(self, name: str) -> Field:
        """Give the field called `name`.

        Raises:
            InvalidRequestError: there is none; the message lists those there are.
        """
        if found := self._by_name.get(name):
            return found
        raise InvalidRequestError(
            f"there is no column {name!r}", hint="columns: " + ", ".join(self._by_name)
        )

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {
            "rowKeyFields": [f.to_json() for f in self.row_keys],
            "sortKeyFields": [f.to_json() for f in self.sort_keys],
            "valueFields": [f.to_json() for f in self.values],
        }

    def dumps(self) -> str:
        """Give the JSON text, the same for equal schemas."""
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def loads(text: str | bytes) -> Schema:
        """Parse the JSON text.

        Raises:
            InvalidRequestError: it is not JSON, or not a schema; the message says where.
        """
        try:
            body = json.loads(text)
        except ValueError as error:  # covers bad JSON and bad UTF-8
            raise InvalidRequestError(f"the schema is not valid JSON: {error}") from error
        return Schema.from_json(body)

    @staticmethod
    def from_json(body: object) -> Schema:
        """Build a schema from parsed JSON.

        Raises:
            InvalidRequestError: `body` is not a schema; the message says where.
        """
        parts = _object(body, "the schema")
        unknown = set(parts) - {"rowKeyFields", "sortKeyFields", "valueFields"}
        if unknown:
            raise InvalidRequestError(f"the schema has unknown parts: {', '.join(sorted(unknown))}")
        return Schema(
            row_keys=_fields(parts.get("rowKeyFields"), "rowKeyFields"),
            sort_keys=_fields(parts.get("sortKeyFields"), "sortKeyFields"),
            values=_fields(parts.get("valueFields"), "valueFields"),
        )


def _fields(body: object, where: str) -> tuple[Field, ...]:
    if body is None:
        return ()
    if not isinstance(body, Sequence) or isinstance(body, str):
        raise InvalidRequestError(f"{where} is not a list of fields")
    return tuple(_field(item, f"{where}[{i}]") for i, item in enumerate(body))


def _field(body: object, where: str) -> Field:
    parts = _object(body, where)
    name, nullable = parts.get("name"), parts.get("nullable", False)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{where} has no usable name", hint="a name is 1 to 255 characters, none a control one"
        )
    if not isinstance(nullable, bool):
        raise InvalidRequestError(f"{where} ({name}): nullable must be true or false")
    if "type" not in parts:
        raise InvalidRequestError(f"{where} ({name}) has no type")
    return Field(name, parse_type(parts["type"], f"{where} ({name})"), nullable)


def parse_type(body: object, where: str) -> FieldType:
    """Build a field type from its JSON form; `where` names it in errors.

    Raises:
        InvalidRequestError: there is no such type.
    """
    if isinstance(body, str):
        for primitive in Primitive:
            if primitive.value == body:
                return primitive
    elif isinstance(body, Mapping) and len(body) == 1:
        (kind, parameters), *_ = body.items()
        if kind == "ListType":
            return ListType(parse_type(_object(parameters, where).get("elementType"), where))
        if kind == "MapType":
            inner = _object(parameters, where)
            key = parse_type(inner.get("keyType"), where)
            if not isinstance(key, Primitive):
                raise InvalidRequestError(f"{where}: the key of a map must be a primitive type")
            return MapType(key, parse_type(inner.get("valueType"), where))
        if kind == "DecimalType":
            inner = _object(parameters, where)
            precision, scale = inner.get("precision"), inner.get("scale", 0)
            if isinstance(precision, int) and isinstance(scale, int):
                return DecimalType(precision, scale)
    raise InvalidRequestError(
        f"{where} has an unknown type: {json.dumps(body)}",
        hint="types: " + ", ".join(p.value for p in Primitive) + ", DecimalType, ListType, MapType",
    )


def _object(body: object, where: str) -> Mapping[str, object]:
    if not isinstance(body, Mapping):
        raise InvalidRequestError(f"{where} is not a JSON object")
    return body


def type_name(kind: FieldType) -> str:
    """Give the name of a type, for people."""
    return kind.value if isinstance(kind, Primitive) else type(kind).__name__
