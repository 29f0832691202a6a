"""Choose which columns of a shard are compressed: those that zstd makes smaller.

Packed numbers are often as short as they can be: random ones shrink by nothing, and compressing
them takes as long as compressing text does. The first row group shows which columns these are.
Columns of text, bytes and nested values are always compressed, because what is in them varies more.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.schema.schema import DecimalType, Primitive, Schema

Codec: TypeAlias = Literal["zstd", "none"]
LEAST_SAVING = 0.02
"""The part of a column's bytes that compressing it must save."""


def column_codecs(
    first: pa.Table, schema: Schema, stored: pa.Schema, layout: dict[str, Any]
) -> dict[str, Codec]:
    """Return the codec of each Parquet column of a file that begins with the rows `first`.

    The rows are written to memory as the file will be: with the schema `stored` and the other
    arguments of the writer in `layout`.
    """
    numbers = {field.name for field in schema.fields if _is_number(field.type)}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, stored, compression="zstd", **layout) as writer:
        writer.write_table(first, row_group_size=first.num_rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return {
        chunk.path_in_schema: "none"
        if chunk.path_in_schema in numbers and not _shrinks(chunk)
        else "zstd"
        for chunk in chunks
    }


def _is_number(kind: object) -> bool:
    """Return whether all values of a type take the same space before they are encoded."""
    if isinstance(kind, Primitive):
        return kind not in (Primitive.STRING, Primitive.BYTES)
    return isinstance(kind, DecimalType)


def _shrinks(chunk: pq.ColumnChunkMetaData) -> bool:
    plain_bytes = chunk.total_uncompressed_size
    return chunk.total_compressed_size <= (1 - LEAST_SAVING) * plain_bytes
