"""Excerpts of shards: small Parquet files in memory, made of a few pages of a shard.

pyarrow decodes whole row groups. A look-up wants a few rows of one, so it copies the pages that
hold them, as they are, behind a footer of their own, and pyarrow decodes that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_type
from dormouse.schema.schema import Field
from dormouse.shards.crcs import MAGIC
from dormouse.shards.thrift import (
    BINARY,
    INT32,
    INT64,
    LIST,
    STRUCT,
    Body,
    binary,
    list_of,
    read_list_head,
    read_struct,
    read_varint,
    signed,
    struct,
)

_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY")
_TYPE_IDS = {name: signed(number) for number, name in enumerate((*_TYPES, "FIXED_LEN_BYTE_ARRAY"))}
_CODEC_IDS = {"UNCOMPRESSED": signed(0), "ZSTD": signed(6)}
_ENCODING_IDS = {
    "PLAIN": signed(0),
    "RLE": signed(3),
    "DELTA_BINARY_PACKED": signed(5),
    "DELTA_LENGTH_BYTE_ARRAY": signed(6),
    "DELTA_BYTE_ARRAY": signed(7),
    "RLE_DICTIONARY": signed(8),
    "BYTE_STREAM_SPLIT": signed(9),
}
"""What Parquet numbers physical types, codecs and encodings; those that Dormouse writes."""
_NAME, _CHILDREN = 4, 5
_VERSION = signed(2)


@dataclass(frozen=True, slots=True)
class PagesOfChunk:
    """Some pages of a column chunk, as they are stored, and how many rows they have.

    The first `dictionary_bytes` of the body are the chunk's dictionary, if it has one.
    """

    chunk: pq.ColumnChunkMetaData
    body: Sequence[Body]
    dictionary_bytes: int
    rows: int


def can_be_excerpted(field: Field, chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether a chunk is of a flat column, in one of the forms that Dormouse writes."""
    return (
        _element(field) is not None
        and chunk.compression in _CODEC_IDS
        and all(encoding in _ENCODING_IDS for encoding in chunk.encodings)
    )


def excerpt(fields: Sequence[Field], groups: Sequence[Sequence[PagesOfChunk]]) -> pa.RecordBatch:
    """Return the rows of some pages of the columns `fields`, row group by row group.

    Requires: `can_be_excerpted`; each group has pages of all columns, for the same rows.
    """
    columns = [element for field in fields if (element := _element(field)) is not None]
    root = struct([(_NAME, BINARY, binary(b"schema")), (_CHILDREN, INT32, signed(len(columns)))])
    body: list[Body] = [MAGIC]
    at, described = len(MAGIC), []
    for group in groups:
        chunks = []
        for field, pages in zip(fields, group, strict=True):
            stored_bytes = sum(map(len, pages.body))
            chunks.append(_chunk(field.name, pages, at, stored_bytes))
            body += pages.body
            at += stored_bytes
        described.append(
            struct(
                [
                    (1, LIST, list_of(STRUCT, chunks)),
                    (2, INT64, signed(at)),
                    (3, INT64, signed(group[0].rows)),
                ]
            )
        )
    footer = struct(
        [
            (1, INT32, _VERSION),
            (2, LIST, list_of(STRUCT, [root, *columns])),
            (3, INT64, signed(sum(group[0].rows for group in groups))),
            (4, LIST, list_of(STRUCT, described)),
        ]
    )
    body += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    reader = pq.ParquetReader()  # without what ParquetFile prepares for names of nested columns
    reader.open(pa.BufferReader(b"".join(body)), pre_buffer=False)
    (batch,) = reader.read_all(use_threads=False).combine_chunks().to_batches()
    return batch


def _chunk(name: str, pages: PagesOfChunk, start: int, stored_bytes: int) -> bytes:
    """Return Parquet's ColumnChunk of pages that begin at an offset."""
    chunk = pages.chunk
    columns = [
        (1, INT32, _TYPE_IDS[chunk.physical_type]),
        (2, LIST, list_of(INT32, [_ENCODING_IDS[encoding] for encoding in chunk.encodings])),
        (3, LIST, list_of(BINARY, [binary(name.encode())])),
        (4, INT32, _CODEC_IDS[chunk.compression]),
        (5, INT64, signed(pages.rows)),
        (6, INT64, signed(chunk.total_uncompressed_size)),
        (7, INT64, signed(stored_bytes)),
        (9, INT64, signed(start + pages.dictionary_bytes)),
    ]
    if pages.dictionary_bytes:
        columns.append((11, INT64, signed(start)))
    return struct([(2, INT64, signed(start)), (3, STRUCT, struct(columns))])


@lru_cache(maxsize=1024)
def _element(field: Field) -> bytes | None:
    """Return Parquet's SchemaElement of a flat column, as pyarrow writes it; None if it is nested.

    It is cut from the footer of a file without rows: version, list of elements, and so on. The
    first element is the root.
    """
    column = pa.field(field.name, arrow_type(field.type), nullable=field.nullable)
    sink = pa.BufferOutputStream()
    pq.write_metadata(pa.schema([column]), sink)
    footer = sink.getvalue().to_pybytes()[len(MAGIC) :]
    _, at = read_varint(footer, 1)
    length, _, at = read_list_head(footer, at + 1)
    if length != 2:  # the root, and one without members
        return None
    _, start = read_struct(footer, at)
    _, end = read_struct(footer, start)
    return footer[start:end]
