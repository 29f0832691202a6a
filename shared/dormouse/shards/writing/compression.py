"""Choose which columns of a shard have dictionaries, and which are compressed.

Dictionaries are for values that repeat, and compression is for what zstd makes smaller.

Packed numbers are often as short as they can be: random ones shrink by nothing, and compressing
them takes as long as compressing text does. The first row group shows which columns these are.
Columns of text, bytes and nested values are always compressed, because what is in them varies more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.schema.schema import DecimalType, Primitive, Schema

Codec: TypeAlias = Literal["zstd", "none"]
LEAST_SAVING = 0.05
"""The part of a column's bytes that compressing it must save."""
REPETITION = 4
"""A dictionary pays if, on average, each value occurs at least
this often in the first row group.
"""


def column_codecs(
    first: pa.Table, schema: Schema, stored: pa.Schema, encodings: Mapping[str, str]
) -> dict[str, Codec]:
    """Return the codec of each Parquet column of a file that begins with the rows `first`.

    The file has the schema `stored`, and `encodings` of some columns by name. The numbers of these
    rows are written to memory as they will be in the file; no other column is.
    """
    codecs: dict[str, Codec] = dict.fromkeys(column_paths(stored), "zstd")
    numbers = [field.name for field in schema.fields if _is_number(field.type)]
    if not numbers:
        return codecs
    packed = {name: encodings[name] for name in numbers if name in encodings}
    sink = pa.BufferOutputStream()
    kept = pa.schema([stored.field(name) for name in numbers])
    with pq.ParquetWriter(
        sink, kept, compression="zstd", use_dictionary=False, column_encoding=packed
    ) as writer:
        writer.write_table(first.select(numbers), row_group_size=first.num_rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return codecs | {chunk.path_in_schema: "none" for chunk in chunks if not _shrinks(chunk)}


@lru_cache(maxsize=64)
def column_paths(stored: pa.Schema) -> tuple[str, ...]:
    """Return the paths of all Parquet columns; a nested column has several, with longer names. Two
    may be the same: that of a column "a.b", and that of the member b of a column "a".
    """
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, stored).close()
    columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return tuple(columns.column(i).path for i in range(len(columns)))


def _is_number(kind: object) -> bool:
    """Return whether all values of a type take the same space before they are encoded."""
    if isinstance(kind, Primitive):
        return kind not in (Primitive.STRING, Primitive.BYTES)
    return isinstance(kind, DecimalType)


def _shrinks(chunk: pq.ColumnChunkMetaData) -> bool:
    plain_bytes = chunk.total_uncompressed_size
    return chunk.total_compressed_size <= (1 - LEAST_SAVING) * plain_bytes


def distinct_bytes(column: pa.ChunkedArray[Any]) -> int:
    """Return what the values of a column take in a dictionary, before it is compressed."""
    import pyarrow.compute as pc

    return int(pc.unique(column).nbytes)


def text_bytes(column: pa.ChunkedArray[Any]) -> int:
    """Return what the values of a column of text or bytes take, however often each occurs."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def repetitive_columns(rows: pa.Table) -> list[str]:
    """Return the text and binary columns whose values repeat often
    enough for a dictionary to pay.
    """
    import pyarrow.compute as pc  # what reads shards needs none of it, and it takes long to import

    most = rows.num_rows // REPETITION
    texts = [
        (name, column)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ]
    # where most values are unique, the first ones show it
    some = [(name, c) for name, c in texts if pc.count_distinct(c[: 2 * most]).as_py() <= most]
    return [name for name, column in some if pc.count_distinct(column).as_py() <= most]
