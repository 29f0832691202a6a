"""Column types of a table as Spark types."""

from __future__ import annotations

from pyspark.sql import types

from dormouse.schema.schema import (
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
)

_PRIMITIVES: dict[Primitive, types.DataType] = {
    Primitive.INT: types.IntegerType(),
    Primitive.LONG: types.LongType(),
    Primitive.FLOAT: types.FloatType(),
    Primitive.DOUBLE: types.DoubleType(),
    Primitive.BOOLEAN: types.BooleanType(),
    Primitive.STRING: types.StringType(),
    Primitive.BYTES: types.BinaryType(),
    Primitive.TIMESTAMP: types.TimestampType(),
    Primitive.DATE: types.DateType(),
}


def spark_schema(schema: Schema) -> types.StructType:
    """Return the columns of a table as a Spark schema."""
    return types.StructType(
        [types.StructField(f.name, spark_type(f.type), f.nullable) for f in schema.fields]
    )


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
