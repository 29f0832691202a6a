"""Excerpts of shards: small Parquet files in memory, made of some pages of a shard.

pyarrow decodes whole row groups by a whole footer. A look-up wants a few rows of some row groups,
and does not read the whole footer. So it copies the pages that hold them, as they are, behind a
footer of their own, and pyarrow decodes that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_type
from dormouse.schema.schema import Field
from dormouse.shards.format.stored_index import MAGIC
from dormouse.shards.format.thrift import (
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

_TYPE, _NAME, _CHILDREN = 1, 4, 5
"""The fields of Parquet's SchemaElement."""
_VERSION = signed(2)
_CODECS = signed(0), signed(6)
"""What Parquet numbers no compression, and zstd."""
_ENCODINGS = list_of(INT32, [signed(3)])
"""Levels are run-length encoded; each page says how its values are."""


@dataclass(frozen=True, slots=True)
class PagesOfChunk:
    """Some pages of a column chunk, as they are stored, and how many values they have.

    The first `dictionary_bytes` of the body are the chunk's dictionary, if it has one.
    """

    body: Sequence[Body]
    dictionary_bytes: int
    values: int
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class PagesOfGroup:
    """Pages of a row group, of each Parquet column of an excerpt, for the same rows."""

    rows: int
    chunks: Sequence[PagesOfChunk]


@dataclass(slots=True)
class PlacedChunk:
    """A column chunk in a file: where it begins and ends, the size of its dictionary, how many
    values it has, and about what they take decoded.
    """

    start: int
    end: int
    dictionary_bytes: int
    values: int
    is_compressed: bool
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as the schema of a file has it: encoded SchemaElements, and the type and the path of
    each Parquet column that it has.
    """

    elements: tuple[bytes, ...]
    leaves: tuple[tuple[bytes, bytes], ...]


def is_flat(field: Field) -> bool:
    """Return whether a column is not nested, so that each value is that of a row."""
    return len(_column(field).elements) == 1


def excerpt(fields: Sequence[Field], groups: Sequence[PagesOfGroup]) -> pa.RecordBatch:
    """Return the rows of some pages of the columns `fields`, row group by row group.

    Requires: each group has pages of all Parquet columns of the fields, for the same rows.
    """
    body: list[Body] = [MAGIC]
    at, placed = len(MAGIC), []
    for group in groups:
        chunks = []
        for pages in group.chunks:
            size_bytes = sum(map(len, pages.body))
            chunks.append(
                PlacedChunk(
                    at,
                    at + size_bytes,
                    pages.dictionary_bytes,
                    pages.values,
                    pages.is_compressed,
                    size_bytes,
                )
            )
            body += pages.body
            at += size_bytes
        placed.append((group.rows, chunks))
    body.append(file_end(fields, placed))
    reader = pq.ParquetReader()  # without what ParquetFile prepares for names of nested columns
    reader.open(pa.BufferReader(b"".join(body)), pre_buffer=False)
    (batch,) = reader.read_all(use_threads=False).combine_chunks().to_batches()
    return batch


def file_end(fields: Sequence[Field], groups: Iterable[tuple[int, Sequence[PlacedChunk]]]) -> bytes:
    """Return the footer of a Parquet file of the columns `fields`, and what follows it. It has row
    groups of so many rows each, and of each a chunk for every Parquet column of the fields.
    """
    columns = [_column(field) for field in fields]
    elements = [element for column in columns for element in column.elements]
    leaves = [leaf for column in columns for leaf in column.leaves]
    root = struct([(_NAME, BINARY, binary(b"schema")), (_CHILDREN, INT32, signed(len(columns)))])
    described, rows_in_all = [], 0
    for rows, chunks in groups:
        rows_in_all += rows
        described.append(
            struct(
                [
                    (1, LIST, list_of(STRUCT, map(_chunk, leaves, chunks))),
                    (2, INT64, signed(sum(chunk.memory_bytes for chunk in chunks))),
                    (3, INT64, signed(rows)),
                ]
            )
        )
    footer = struct(
        [
            (1, INT32, _VERSION),
            (2, LIST, list_of(STRUCT, [root, *elements])),
            (3, INT64, signed(rows_in_all)),
            (4, LIST, list_of(STRUCT, described)),
        ]
    )
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _chunk(leaf: tuple[bytes, bytes], chunk: PlacedChunk) -> bytes:
    """Return Parquet's ColumnChunk of a chunk."""
    kind, path = leaf
    start = signed(chunk.start)
    columns = [
        (1, INT32, kind),
        (2, LIST, _ENCODINGS),
        (3, LIST, path),
        (4, INT32, _CODECS[chunk.is_compressed]),
        (5, INT64, signed(chunk.values)),
        (6, INT64, signed(chunk.memory_bytes)),
        (7, INT64, signed(chunk.end - chunk.start)),
        (9, INT64, signed(chunk.start + chunk.dictionary_bytes)),
    ]
    if chunk.dictionary_bytes:
        columns.append((11, INT64, start))
    return struct([(2, INT64, start), (3, STRUCT, struct(columns))])


@lru_cache(maxsize=4096)
def _column(field: Field) -> _Column:
    """Return how the schema of a file describes a column, as pyarrow writes it.

    It is cut from the footer of a file without rows: version, list of elements, and so on. The
    first element is the root, each other one is followed by its children.
    """
    column = pa.field(field.name, arrow_type(field.type), nullable=field.nullable)
    sink = pa.BufferOutputStream()
    pq.write_metadata(pa.schema([column]), sink)
    footer = sink.getvalue().to_pybytes()[len(MAGIC) :]
    _, at = read_varint(footer, 1)
    length, _, at = read_list_head(footer, at + 1)
    _, at = read_struct(footer, at)
    elements, read = [], []
    for _ in range(length - 1):
        element, end = read_struct(footer, at)
        elements.append(footer[at:end])
        read.append(element)
        at = end
    return _Column(tuple(elements), tuple(_leaves(iter(read), ())))


def _leaves(
    elements: Iterator[dict[int, Any]], above: tuple[bytes, ...]
) -> list[tuple[bytes, bytes]]:
    """Return the type and the path of each Parquet column of the next element."""
    element = next(elements)
    path = (*above, element[_NAME])
    if not element.get(_CHILDREN):
        return [(signed(element[_TYPE]), list_of(BINARY, map(binary, path)))]
    return [leaf for _ in range(element[_CHILDREN]) for leaf in _leaves(elements, path)]
