"""Column types of a table as Spark types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types

from dormouse.schema.schema import Schema
from dormouse.schema.types import DecimalType, FieldType, ListType, MapType, Primitive, StructType

_PRIMITIVES: dict[Primitive, types.DataType] = {
    Primitive.INT: types.IntegerType(),
    Primitive.LONG: types.LongType(),
    Primitive.FLOAT: types.FloatType(),
    Primitive.DOUBLE: types.DoubleType(),
    Primitive.BOOLEAN: types.BooleanType(),
    Primitive.STRING: types.StringType(),
    Primitive.BYTES: types.BinaryType(),
    Primitive.TIMESTAMP: types.TimestampType(),
    Primitive.TIMESTAMP_NTZ: types.TimestampNTZType(),
    Primitive.TIMESTAMP_NS: types.LongType(),
    Primitive.TIMESTAMP_NTZ_NS: types.LongType(),
    Primitive.DATE: types.DateType(),
    Primitive.TIME: types.LongType(),
    Primitive.UUID: types.BinaryType(),
    Primitive.DYNAMIC: types.StringType(),
}
"""Spark 4.0 has no nanoseconds, time of day or UUID: these are read as the number that they are
stored as (nanoseconds since 1970, microseconds since midnight), or as 16 bytes."""


def spark_schema(schema: Schema, columns: Sequence[str] | None = None) -> types.StructType:
    """Return the columns of a table as a Spark schema: all, or those in their order."""
    fields = schema.fields if columns is None else map(schema.field_named, columns)
    return types.StructType(
        [types.StructField(f.name, spark_type(f.type), f.nullable) for f in fields]
    )


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema in which Spark takes batches of a table's columns."""
    return pa.schema([field.with_type(_spark_arrow_type(field.type)) for field in schema])


def _spark_arrow_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.MapType):
        return pa.map_(_spark_arrow_type(kind.key_type), _spark_arrow_type(kind.item_type))
    if isinstance(kind, pa.ListType):
        return pa.list_(_spark_arrow_type(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([f.with_type(_spark_arrow_type(f.type)) for f in kind])
    if pa.types.is_time64(kind) or isinstance(kind, pa.TimestampType) and kind.unit == "ns":
        return pa.int64()
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def spark_type(kind: FieldType) -> types.DataType:
    """Return the Spark type of a column's values."""
    match kind:
        case Primitive():
            return _PRIMITIVES[kind]
        case DecimalType(precision=precision, scale=scale):
            return types.DecimalType(precision, scale)
        case ListType(element=element):
            return types.ArrayType(spark_type(element))
        case MapType(key=key, value=value):
            return types.MapType(spark_type(key), spark_type(value))
        case StructType(members=members):
            return types.StructType(
                [types.StructField(m.name, spark_type(m.type)) for m in members]
            )
