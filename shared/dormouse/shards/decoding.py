"""Decode the rows of a shard that were fetched.

Where a few rows of large blocks are wanted, their keys are decoded first, and then of the other
columns only the pages with these rows.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolving import evolved_rows
from dormouse.arrow.order import fit_range, rows_in_ranges, spans_in_ranges
from dormouse.arrow.types import arrow_schema, arrow_type, of_shard, present_fields
from dormouse.errors import DamagedShardError, InvariantError
from dormouse.keys import KeyRange
from dormouse.ports import Cache, Objects
from dormouse.schema.schema import Field, Schema
from dormouse.shards.crcs import Section
from dormouse.shards.footer import ShardIndex, raise_damaged
from dormouse.shards.parquet import PAGE_ROWS
from dormouse.shards.reading import (
    DECODE_THREADS,
    Blocks,
    Start,
    byte_span,
    coalesce,
    in_threads,
    read_from,
    read_sections,
    reading_threads,
    when_asked,
)
from dormouse.shards.stored_index import MAGIC
from dormouse.shards.thrift import (
    BINARY,
    INT32,
    INT64,
    LIST,
    STRUCT,
    Body,
    ChunkPages,
    DataPage,
    binary,
    list_of,
    pages_of,
    read_list_head,
    read_struct,
    read_varint,
    signed,
    struct,
)
from dormouse.stored.paths import shard_path

# Excerpts of shards: small Parquet files in memory, made of some pages of a shard.
#
# pyarrow decodes whole row groups by a whole footer. A look-up wants a few rows of some blocks, and
# does not read the whole footer. So it copies the pages that hold them, as they are, behind a
# footer of their own, and pyarrow decodes that file.

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


MIN_PAGES = 2
"""Of row groups with fewer pages, to find the page takes longer than to decode all."""

Span = tuple[int, int]
"""The first row of some in a row group, and the row after the last."""


def numbers_of(blocks: Sequence[Blocks]) -> list[int]:
    """Return the row groups that slices of one shard need, in order."""
    return sorted({number for groups in blocks for number in groups.numbers})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is wanted of a row group: the rows in `spans`. `keys` are the keys of all its rows."""

    number: int
    keys: pa.RecordBatch
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class _Picked:
    """The pages of one column in which the wanted rows of a row group are."""

    pages: PagesOfChunk
    spans: tuple[Span, ...]


MOST_KEPT = 4
"""So many blocks of a shard stay in the cache decoded when they are looked up: more would push out
what others use.
"""


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """Some columns of all rows of a block, decoded."""

    fields: Sequence[Field]
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The rows of some slices of one shard; `decoded` returns them.

    `needed` are the columns to decode, the first of which are `keys`. Those in `whole` are decoded
    of whole blocks; `kept` has them of blocks that were decoded before.
    """

    path: str
    blocks: Sequence[Blocks]
    schema: Schema
    keys: Sequence[Field]
    needed: Sequence[Field]
    columns: Sequence[str]
    whole: Sequence[Field]
    kept: Mapping[int, pa.RecordBatch]

    def sections(self) -> Iterator[Section]:
        """Yield what has to be fetched to decode them."""
        if new := [number for number in numbers_of(self.blocks) if number not in self.kept]:
            yield from self._index.sections(new, self.needed)
        if self.kept:
            others = self.needed[len(self.whole) :]
            yield from self._index.sections(sorted(self.kept), others)

    def decoded(self, file: FetchedFile, cache: Cache) -> list[pa.RecordBatch]:
        """Return the rows of the slices, in order. Of few blocks, the cache gets what is decoded.

        Raises:
            NotFoundError: the shard is gone.
            DamagedShardError: it is damaged.
        """
        try:
            with file:
                blocks = self._whole_blocks(file, cache)
                if len(self.whole) == len(self.needed):
                    found = [*self._dense(blocks)]
                else:
                    found = self._sparse(file, blocks)
            wanted = arrow_schema(self.schema)
            result_schema = pa.schema([wanted.field(name) for name in self.columns])
            constants = self.blocks[0].slice.shard.constants
            return [of_shard(batch, result_schema, constants) for batch in found]
        except (pa.ArrowException, OSError) as error:
            raise DamagedShardError(f"{self.path} is damaged: {error}", path=self.path) from error

    @property
    def _index(self) -> ShardIndex:
        return self.blocks[0].index

    def _whole_blocks(
        self, file: FetchedFile, cache: Cache
    ) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
        """Yield the columns `whole` of all blocks: of few, block by block."""
        numbers = numbers_of(self.blocks)
        if not _may_be_kept(self.blocks):
            yield numbers, self._whole_groups(file, numbers)
            return
        for number in numbers:
            rows = self.kept.get(number)
            if rows is None:
                rows = self._whole_groups(file, [number])
                kept = KeptBlock(self.whole, rows)
                cache.put(_kept_path(self.path, number), kept, rows.get_total_buffer_size())
            yield [number], rows

    def _dense(
        self, blocks: Iterable[tuple[Sequence[int], pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are in a range, of blocks of which all columns are decoded."""
        for numbers, batch in blocks:
            yield from rows_in_ranges(batch, self._ranges(numbers), self.schema)

    def _sparse(
        self, file: FetchedFile, blocks: Iterable[tuple[Sequence[int], pa.RecordBatch]]
    ) -> list[pa.RecordBatch]:
        """Find the wanted rows by the keys, and decode of other columns the pages with these."""
        groups = []
        for numbers, keys in blocks:
            row = 0
            for number in numbers:
                batch = keys.slice(row, self._index.rows(number))
                row += batch.num_rows
                if spans := list(spans_in_ranges(batch, self._ranges([number]), self.schema)):
                    groups.append(_Wanted(number, batch, spans))
        if not groups:
            return []
        layouts: dict[tuple[tuple[Span, ...], ...], list[tuple[Field, list[_Picked]]]] = {}
        others = self.needed[len(self.keys) :]
        for field in present_fields(self._index.stored.columns, others):
            picked = [self._pick(file, field, group.number, group.spans) for group in groups]
            layouts.setdefault(tuple(each.spans for each in picked), []).append((field, picked))
        decoded = [(layout, self._decode(columns)) for layout, columns in layouts.items()]
        return list(_joined(groups, decoded))

    def _whole_groups(self, file: FetchedFile, numbers: Sequence[int]) -> pa.RecordBatch:
        """Return all rows of some blocks, with those of the columns `whole` that there are."""
        leaves = [
            (leaf, is_flat(field))
            for field in self.whole
            for _, leaf in self._index.leaves([field])
        ]
        return self._excerpt(
            self.whole,
            [
                PagesOfGroup(
                    self._index.rows(number),
                    [self._whole(file, number, leaf, flat=flat) for leaf, flat in leaves],
                )
                for number in numbers
            ],
        )

    def _excerpt(self, fields: Sequence[Field], groups: Sequence[PagesOfGroup]) -> pa.RecordBatch:
        """Return the rows of some pages, with the columns as the table has them now."""
        stored = self._index.stored_fields(fields)
        return evolved_rows(excerpt([*stored.values()], groups), stored, fields)

    def _whole(self, file: FetchedFile, block: int, leaf: int, *, flat: bool) -> PagesOfChunk:
        """Return all pages of a Parquet column in a block, behind the dictionary of its chunk."""
        body = file.view(*self._index.pages_span(block, leaf))
        values = self._index.rows(block) if flat else self._pages(body).values
        return self._chunk(file, block, leaf, [body], values)

    def _chunk(
        self, file: FetchedFile, block: int, leaf: int, pages: Sequence[memoryview], values: int
    ) -> PagesOfChunk:
        """Return some pages of a block with so many values, behind the dictionary."""
        stored = self._index.stored
        group = stored.layout.row_group_of(block)
        dictionary = file.view(*self._index.dictionary_span(group, leaf))
        is_compressed = stored.is_compressed(leaf)
        return PagesOfChunk([dictionary, *pages], len(dictionary), values, is_compressed)

    def _pages(self, chunk: memoryview) -> ChunkPages:
        with raise_damaged(self.path):
            return pages_of(chunk)

    def _ranges(self, numbers: Sequence[int]) -> list[KeyRange]:
        """Return the ranges that may have rows in a block, or in all of the slices."""
        return [
            fit_range(groups.slice.range, self.schema)
            for groups in self.blocks
            if len(numbers) > 1 or numbers[0] in groups.numbers
        ]

    def _pick(self, file: FetchedFile, field: Field, number: int, spans: Sequence[Span]) -> _Picked:
        """Return the pages of a flat column that hold some rows."""
        ((_, leaf),) = self._index.leaves([field])
        body = file.view(*self._index.pages_span(number, leaf))
        pages = [page for page in self._pages(body).rows if _holds(page, spans)]
        parts = [body[page.start : page.end] for page in pages]
        rows = sum(page.end_row - page.first_row for page in pages)
        return _Picked(
            self._chunk(file, number, leaf, parts, rows),
            tuple((page.first_row, page.end_row) for page in pages),
        )

    def _decode(self, columns: Sequence[tuple[Field, Sequence[_Picked]]]) -> pa.RecordBatch:
        """Return the rows of pages of several columns, in all row groups; they have the same
        rows.
        """
        groups = zip(*(picked for _, picked in columns), strict=True)
        return self._excerpt(
            [field for field, _ in columns],
            [
                PagesOfGroup(group[0].pages.values, [each.pages for each in group])
                for group in groups
            ],
        )


def _want_few_rows(blocks: Sequence[Blocks], needed: Sequence[Field]) -> bool:
    """Return whether most blocks are wanted for a few rows, and have several pages.

    Of a wide range, all blocks but the first and the last are wanted whole. Of nested columns, no
    page tells which rows it has.
    """
    numbers = numbers_of(blocks)
    return (
        len(numbers) <= 2 * len(blocks)
        and max(map(blocks[0].index.rows, numbers)) >= MIN_PAGES * PAGE_ROWS
        and all(map(is_flat, needed))
    )


def _may_be_kept(blocks: Sequence[Blocks]) -> bool:
    """Return whether a few blocks are wanted, each for a few rows."""
    return len(numbers_of(blocks)) <= min(MOST_KEPT, 2 * len(blocks))


def _kept_path(path: str, block: int) -> str:
    """Return under what name the cache has the rows of a block."""
    return f"{path}#{block}"


def _holds(page: DataPage, spans: Sequence[Span]) -> bool:
    return any(page.first_row < end and start < page.end_row for start, end in spans)


def _joined(
    wanted: Sequence[_Wanted],
    decoded: Sequence[tuple[tuple[tuple[Span, ...], ...], pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of each row group: their keys, and what was decoded of the others.

    Each layout has the rows of its pages, by row group; they follow each other in its batch.
    """
    starts = [
        [0, *accumulate(sum(end - start for start, end in pages) for pages in layout)]
        for layout, _ in decoded
    ]
    for at, group in enumerate(wanted):
        for start, end in group.spans:
            parts = [group.keys.slice(start, end - start)]
            for (layout, batch), firsts in zip(decoded, starts, strict=True):
                first = firsts[at] + _rows_before(layout[at], start)
                parts.append(batch.slice(first, end - start))
            columns = [column for part in parts for column in part.columns]
            names = [name for part in parts for name in part.schema.names]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _rows_before(pages: Sequence[Span], row: int) -> int:
    """Return how many rows of some pages precede a row that is in one of them."""
    return sum(min(end, row) - start for start, end in pages if start < row)


# Footers of their own for parts of shards.
#
# A merge copies what one window reads of a shard to a file, mostly at the same offsets, and ends it
# with a footer that is made from the index. There each block is a row group. DataFusion reads a
# column chunk at once, by threads that come and go: chunks of blocks, of some 20 KB, are freed into
# pages that other threads use again; those of whole row groups, of 0.6 MB, made a process grow to
# 634 MB instead of 264. And at the border of two windows only blocks are read twice.
#
# Parquet wants pages to follow their dictionary, which only those of the first block of a row group
# do: others are copied with their dictionary behind all data.


def write_short_footer(local: Path, blocks: Blocks, fields: Sequence[Field], path: str) -> None:
    """End the local copy of what is read of a shard, which is called `path` in errors: describe the
    columns `fields` of its blocks.

    Raises:
        DamagedShardError: its pages are in a form that Dormouse does not write.
    """
    index = blocks.index
    stored = list(index.stored_fields(fields).values())
    leaves = [(leaf, is_flat(field)) for field in stored for _, leaf in index.leaves([field])]
    with local.open("r+b") as file:
        file.seek(index.stored.starts[-1])
        placed = [
            (
                index.rows(block),
                [_placed(file, index, block, leaf, path, flat=flat) for leaf, flat in leaves],
            )
            for block in blocks.numbers
        ]
        file.write(file_end(stored, placed))
        file.truncate()


def _placed(
    file: BinaryIO, index: ShardIndex, block: int, leaf: int, path: str, *, flat: bool
) -> PlacedChunk:
    """Return where a Parquet column of a block is, which may be written to the end of the file.
    Only the pages of nested columns have to be looked at.
    """
    stored, values = index.stored, index.rows(block)
    start, end = index.pages_span(block, leaf)
    if not flat:
        with raise_damaged(path):
            values = pages_of(os.pread(file.fileno(), end - start, start)).values
    first, after = index.dictionary_span(stored.layout.row_group_of(block), leaf)
    if first < after < start:
        dictionary = os.pread(file.fileno(), after - first, first)
        pages = os.pread(file.fileno(), end - start, start)
        start = file.tell()
        end = start + file.write(dictionary + pages)
    elif first < after:
        start = first
    memory_bytes, is_compressed = stored.memory_bytes(block, leaf), stored.is_compressed(leaf)
    return PlacedChunk(start, end, after - first, values, is_compressed, memory_bytes)


# Read the rows of row groups that were found: fetch and verify them whole, and decode them.


FEW_BYTES = 512 * 1024
"""So many bytes of pages are decoded in the thread that asks for them, one shard after the other:
to start two threads takes about as long.
"""
NOTHING_KEPT = Cache(0)
"""The cache of those who read blocks once."""


LOOK_UP_GAP_BYTES = 16 * 1024
"""The gap for those that are read side by side, which wait for each other's bytes at most: between
the pages of a block, other blocks of its row group lie.
"""


class FetchedFile:
    """A shard of which some spans are fetched: those that wait for a network at once, those of a
    file of this machine when they are looked at, while it is open. Close it at the end.
    """

    def __init__(
        self,
        start: Start,
        objects: Objects,
        path: str,
        size_bytes: int,
        groups: Sequence[Sequence[Section]],
    ) -> None:
        """Start to fetch groups of `coalesce`, which ascend, each in one ranged read."""
        self.path = path
        self._objects, self._size_bytes = objects, size_bytes
        self._file: BinaryIO | None = None
        read = self._read if objects.is_remote else self._read_opened
        starter = start if objects.is_remote else when_asked
        self._spans = [*map(byte_span, groups)]
        self._bodies = [starter(partial(read, group)) for group in groups]

    def __enter__(self) -> Self:
        """Open a file of this machine. Raises NotFoundError: it is gone."""
        if not self._objects.is_remote:
            with raise_damaged(self.path):
                self._file = self._objects.open(self.path, self._size_bytes)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two offsets, which must be within one of the spans, if any."""
        if start == end:
            return memoryview(b"")
        at = bisect_right(self._spans, start, key=itemgetter(0)) - 1
        if at >= 0:
            first, stop = self._spans[at]
            if start <= end <= stop:
                return memoryview(self._bodies[at]())[start - first : end - first]
        raise InvariantError(f"bytes {start} to {end} of {self.path} were not fetched")

    def _read(self, sections: Sequence[Section]) -> bytes:
        return read_sections(self._objects, self.path, self._size_bytes, sections)

    def _read_opened(self, sections: Sequence[Section]) -> bytes:
        if self._file is None:
            raise InvariantError(f"{self.path} is not open")
        return read_from(self._file, self.path, sections)


def read_blocks(
    objects: Objects,
    table_id: str,
    blocks: Sequence[Blocks],
    schema: Schema,
    columns: Sequence[str],
    cache: Cache = NOTHING_KEPT,
) -> list[list[pa.RecordBatch]]:
    """Read the row groups found for disjoint slices; return the rows of each shard, in its order.

    Each row group is read once, even if several slices need it, and neighbours are read together.
    All bytes are verified by their CRCs. Blocks in the cache are not read again.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: one is damaged.
    """
    by_shard = sorted((g for g in blocks if g.numbers), key=_place)
    of_shards = [list(groups) for _, groups in groupby(by_shard, key=lambda g: g.slice.shard.id)]
    keys = _keys_to_read(blocks, schema)
    asked = [schema.field_named(name) for name in columns]
    needed = list(dict.fromkeys([*keys, *asked]))
    shards = [
        _planned(table_id, groups, schema, keys, needed, columns, cache) for groups in of_shards
    ]
    spans = [coalesce(rows.sections(), gap_bytes=LOOK_UP_GAP_BYTES) for rows in shards]
    size_bytes = sum(
        part.end - part.start for of_shard in spans for span in of_shard for part in span
    )
    decodings = len(shards) if size_bytes > FEW_BYTES else 1
    with (
        reading_threads(objects, sum(map(len, spans))) as start_read,
        in_threads(decodings, DECODE_THREADS) as start_decoding,
    ):
        files = [
            FetchedFile(
                start_read, objects, rows.path, rows.blocks[0].slice.shard.size_bytes, wanted
            )
            for rows, wanted in zip(shards, spans, strict=True)
        ]
        started = [
            start_decoding(partial(rows.decoded, file, cache))
            for rows, file in zip(shards, files, strict=True)
        ]
        return [wait() for wait in started]


def _planned(
    table_id: str,
    blocks: Sequence[Blocks],
    schema: Schema,
    keys: Sequence[Field],
    needed: Sequence[Field],
    columns: Sequence[str],
    cache: Cache,
) -> ShardRows:
    """Return what is to be read of one shard, with what the cache has of it."""
    path = shard_path(table_id, blocks[0].slice.shard.id)
    whole, numbers = keys if _want_few_rows(blocks, needed) else needed, numbers_of(blocks)
    kept = {}
    for number in numbers if _may_be_kept(blocks) else ():
        found = cache.get(_kept_path(path, number), KeptBlock)
        if found is not None and all(field in found.fields for field in whole):
            there = set(found.rows.schema.names)
            kept[number] = found.rows.select([f.name for f in whole if f.name in there])
    return ShardRows(path, blocks, schema, keys, needed, columns, whole, kept)


def _keys_to_read(blocks: Sequence[Blocks], schema: Schema) -> Sequence[Field]:
    """Return the row keys, and as many sort keys as the longest end of a range has."""
    ranges = [groups.slice.range for groups in blocks]
    parts = max((max(len(r.min), len(r.max or ())) for r in ranges), default=0)
    return schema.keys[: max(parts, len(schema.row_keys))]


def _place(groups: Blocks) -> tuple[object, ...]:
    shard = groups.slice.shard
    return shard.low, shard.id, groups.slice.range.low
