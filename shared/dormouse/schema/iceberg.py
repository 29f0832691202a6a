"""A table's schema as an Iceberg schema, and the bounds of its keys."""

from collections.abc import Iterable, Iterator, Mapping
from struct import pack

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.keys import Key, KeyPart, KeyRange, above
from dormouse.schema.schema import Schema
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    StructType,
    contains_type,
    nested_parts,
    show_type,
)

PRIMITIVES: Mapping[Primitive, str] = {
    Primitive.INT: "int",
    Primitive.LONG: "long",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.BOOLEAN: "boolean",
    Primitive.STRING: "string",
    Primitive.BYTES: "binary",
    Primitive.TIMESTAMP: "timestamptz",
    Primitive.TIMESTAMP_NTZ: "timestamp",
    Primitive.TIMESTAMP_NS: "timestamptz_ns",
    Primitive.TIMESTAMP_NTZ_NS: "timestamp_ns",
    Primitive.DATE: "date",
    Primitive.TIME: "time",
    Primitive.UUID: "uuid",
    Primitive.DYNAMIC: "string",
}
"""The types of Iceberg that have the same values."""
BOUND_CHARACTERS = 64
"""How much of a text or of bytes is published as a bound. More would make manifests large."""


def check_publishable(schema: Schema, format_version: int) -> None:
    """Check that every column has a type in this version of Iceberg's format that stored types are
    promoted to, and a name of its own for engines that ignore the case of names.
    Raises InvalidRequestError: one has not; the message names the column.
    """
    for field in schema.fields:
        if field.finer:
            raise InvalidRequestError(
                f"the times of column {field.name!r} became nanoseconds, and Iceberg promotes no "
                "type to these: its readers would not read what was stored before",
                hint="add a column of the type instead, or leave iceberg off",
            )
        for kind in sorted(NANOSECONDS, key=show_type):
            if format_version < 3 and contains_type(field.type, kind):
                raise InvalidRequestError(
                    f"column {field.name!r} is {show_type(field.type)}, and Iceberg has no "
                    f"nanoseconds before version 3 of its format",
                    hint="set iceberg_format to 3, which fewer engines read, or leave iceberg off",
                )
        _check_members(field.type, f"column {field.name!r}")
    _check_names((field.name for field in schema.fields), "the table")


def iceberg_schema(schema: Schema) -> dict[str, object]:
    """Return a schema in Iceberg's JSON form, without a schema id.

    Only keys are required: a shard may have been written before a column was added.
    """
    keys = set(schema.keys)
    fields = [
        {
            "id": field.id,
            "name": field.name,
            "required": field in keys,
            "type": _iceberg_type(field.type, iter(field.nested_ids)),
        }
        for field in schema.fields
    ]
    return {"type": "struct", "fields": fields}


def key_bounds(schema: Schema, low: Key, high: Key) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return lower and upper bounds of row keys by field id, from the least and greatest key.

    They bound the first column, and a later one if those before it are constant. UUIDs have none:
    some readers order them otherwise. Nor has text without a short upper bound.
    """
    lower, upper = {}, {}
    for field, least, greatest in zip(schema.row_keys, low, high, strict=True):
        if field.type is not Primitive.UUID:
            low_part = least if isinstance(least, int) else least[:BOUND_CHARACTERS]
            lower[field.id] = encode_bound(field.type, low_part)
            high_part = _cut_above(greatest)
            if high_part is not None:
                upper[field.id] = encode_bound(field.type, high_part)
        if least != greatest:
            break
    return lower, upper


def named_keys(
    schema: Schema, lower: Mapping[int, bytes], upper: Mapping[int, bytes]
) -> tuple[KeyRange, ...] | None:
    """Return the keys that bounds of a file name: as ranges, since they may be cut or be the first
    parts of keys. None if they are of no keys of this schema.

    An upper bound that was cut names what it was cut from with another last character.
    """
    if not {*lower, *upper} <= {field.id for field in schema.row_keys}:
        return None
    return tuple(_named_key(schema, bounds) for bounds in (lower, upper) if bounds)


def _named_key(schema: Schema, bounds: Mapping[int, bytes]) -> KeyRange:
    parts: list[KeyPart] = []
    for field in schema.row_keys:
        if field.id not in bounds:
            break
        part = decode_bound(field.type, bounds[field.id])
        if not isinstance(part, int) and len(part) >= BOUND_CHARACTERS:
            head = part[: BOUND_CHARACTERS - 1]
            end = above(head)
            if end is not None:
                return KeyRange((*parts, head), (*parts, end))
        parts.append(part)
    return KeyRange.exactly(tuple(parts))


def decode_bound(kind: FieldType, bound: bytes) -> KeyPart:
    """Return a key part from Iceberg's form of single values. Raises CorruptDataError: no text."""
    if kind is Primitive.STRING:
        try:
            return bound.decode()
        except UnicodeDecodeError as error:
            raise CorruptDataError("a bound is no text") from error
    if kind is Primitive.BYTES:
        return bound
    return int.from_bytes(bound, "big" if isinstance(kind, DecimalType) else "little", signed=True)


def encode_bound(kind: FieldType, part: KeyPart) -> bytes:
    """Return a key part in the form that Iceberg has for single values."""
    if isinstance(part, str):
        return part.encode()
    if isinstance(part, bytes):
        return part
    if isinstance(kind, DecimalType):  # as few bytes as hold the number and its sign
        return part.to_bytes(
            (part if part >= 0 else ~part).bit_length() // 8 + 1, "big", signed=True
        )
    return pack("<i" if kind in (Primitive.INT, Primitive.DATE) else "<q", part)


def _cut_above(part: KeyPart) -> KeyPart | None:
    """Return a short part that is not less; None if there is none."""
    if isinstance(part, int) or len(part) <= BOUND_CHARACTERS:
        return part
    return above(part[:BOUND_CHARACTERS])


def _iceberg_type(kind: FieldType, ids: Iterator[int]) -> object:
    """Return a type in Iceberg's JSON form; `ids` are those of its parts, the first one first."""
    match kind:
        case Primitive():
            return PRIMITIVES[kind]
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision}, {scale})"
        case ListType(element=element):
            own = next(ids)
            return {
                "type": "list",
                "element-id": own,
                "element-required": False,
                "element": _iceberg_type(element, ids),
            }
        case MapType(key=key, value=value):
            own = next(ids)
            shape = {"type": "map", "key-id": own, "key": PRIMITIVES[key], "value-required": False}
            return {**shape, "value-id": next(ids), "value": _iceberg_type(value, ids)}
        case StructType(members=members):
            fields = []
            for member in members:
                member_json = {"id": next(ids), "name": member.name, "required": False}
                fields.append({**member_json, "type": _iceberg_type(member.type, ids)})
            return {"type": "struct", "fields": fields}


def _check_members(kind: FieldType, where: str) -> None:
    if isinstance(kind, StructType):
        _check_names((member.name for member in kind.members), where)
    for part in nested_parts(kind):
        _check_members(part, where)


def _check_names(names: Iterable[str], where: str) -> None:
    spellings: dict[str, str] = {}
    for name in names:
        other = spellings.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidRequestError(
                f"{where} has {other!r} and {name!r}, which are one name to engines that ignore "
                "case",
                hint="rename one of them, or leave iceberg off",
            )


# The types of columns as Glue names them: by Hive's names, which Iceberg's engines only show.

_HIVE = {"long": "bigint", "time": "string", "uuid": "string"}
"""The types of Iceberg that have another name there, beside timestamps."""


def hive_type(kind: FieldType) -> str:
    """Return the name of a type. Hive has none for some, which Iceberg calls text there."""
    match kind:
        case Primitive():
            name = PRIMITIVES[kind]
            return "timestamp" if kind in TIMESTAMPS else _HIVE.get(name, name)
        case DecimalType():
            return show_type(kind)
        case ListType(element=element):
            return f"array<{hive_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{hive_type(key)},{hive_type(value)}>"
        case StructType(members=members):
            inner = ",".join(f"{each.name.lower()}:{hive_type(each.type)}" for each in members)
            return f"struct<{inner}>"
