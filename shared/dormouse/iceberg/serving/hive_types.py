"""The types of columns as Glue names them: by Hive's names, which Iceberg's engines only show."""

from __future__ import annotations

from collections.abc import Mapping

from dormouse.schema.types import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    StructType,
)

_NAMES: Mapping[Primitive, str] = {
    Primitive.INT: "int",
    Primitive.LONG: "bigint",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.BOOLEAN: "boolean",
    Primitive.STRING: "string",
    Primitive.BYTES: "binary",
    Primitive.TIMESTAMP: "timestamp",
    Primitive.TIMESTAMP_NTZ: "timestamp",
    Primitive.TIMESTAMP_NS: "timestamp",
    Primitive.TIMESTAMP_NTZ_NS: "timestamp",
    Primitive.DATE: "date",
    Primitive.TIME: "string",
    Primitive.UUID: "string",
}


def hive_type(kind: FieldType) -> str:
    """Return the name of a type. Hive has none for some, which Iceberg calls text there."""
    match kind:
        case Primitive():
            return _NAMES[kind]
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListType(element=element):
            return f"array<{hive_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{hive_type(key)},{hive_type(value)}>"
        case StructType(members=members):
            inner = ",".join(f"{each.name.lower()}:{hive_type(each.type)}" for each in members)
            return f"struct<{inner}>"
