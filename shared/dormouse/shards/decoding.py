"""Decode the rows of a shard that were fetched.

Where a few rows of large blocks are wanted, their keys are decoded first, and then of the other
columns only the pages with these rows.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, groupby
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.order import fit_range, rows_in_ranges, spans_in_ranges
from dormouse.arrow.types import arrow_type, columns_schema, evolved_rows, of_shard, present_fields
from dormouse.errors import DamagedShardError, InvariantError
from dormouse.keys import KeyRange
from dormouse.ports import Cache, Objects
from dormouse.schema.schema import Field, Schema
from dormouse.shards import reading, thrift
from dormouse.shards.crcs import Section
from dormouse.shards.footer import ShardIndex, raise_damaged
from dormouse.shards.stored_index import MAGIC, PAGE_ROWS, StoredIndex
from dormouse.state.partitions import Shard
from dormouse.stored.paths import shard_path

# Excerpts of shards: small Parquet files in memory, made of some pages of a shard.
#
# pyarrow decodes whole row groups by a whole footer. A look-up wants a few rows of some blocks, and
# does not read the whole footer. So it copies the pages that hold them, as they are, behind a
# footer of their own, and pyarrow decodes that file.

_TYPE, _NAME, _CHILDREN = 1, 4, 5
"""The fields of Parquet's SchemaElement."""
_CODECS = thrift.signed(0), thrift.signed(6)
"""What Parquet numbers no compression, and zstd."""
_ENCODINGS = thrift.list_of(thrift.INT32, [thrift.signed(3)])
"""Levels are run-length encoded; each page says how its values are."""

_FOOTER, _ROOT = b"\x15\4\x19%b\x16%b\x19%b\0", b"\x48\6schema\x15%b\0"
_ROW_GROUP = b"\x19%b\x16%b\x16%b\0"
"""Parquet's FileMetaData of version 2: its SchemaElements, rows and RowGroups; the first of the
elements, with the number of columns; and a RowGroup: its chunks, their size decoded, and its rows.
"""
_CHUNK = b"\x26%b\x1c%b\x16%b\x16%b\x16%b\x26%b%b\0\0"
"""Parquet's ColumnChunk: the offset of its first byte, and its ColumnMetaData, in which after what
is begun the values, their size decoded, that in the file and the offset of the first page follow.
"""
_DICTIONARY_AT = b"\x26"
"""What precedes the offset of the dictionary in ColumnMetaData, two fields after the first page."""


class PagesOfChunk(msgspec.Struct, frozen=True):
    """Some pages of a column chunk, as they are stored, and how many values they have.

    The first `dictionary_bytes` of the body are the chunk's dictionary, if it has one.
    """

    body: Sequence[thrift.Body]
    dictionary_bytes: int
    values: int
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class PagesOfGroup:
    """Pages of a row group, of each Parquet column of an excerpt, for the same rows."""

    rows: int
    chunks: Sequence[PagesOfChunk]


class PlacedChunk(msgspec.Struct, frozen=True):
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
    """A column as the schema of a file has it: encoded SchemaElements, and how the ColumnMetaData
    of each Parquet column that it has begins, not compressed and compressed.
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
    body: list[thrift.Body] = [MAGIC]
    at, places = len(MAGIC), []
    for group in _joined_groups(groups):
        chunks = []
        for pages in group.chunks:
            size_bytes = sum(map(len, pages.body))
            form = pages.dictionary_bytes, pages.values, pages.is_compressed
            chunks.append(PlacedChunk(at, at + size_bytes, *form, size_bytes))
            body += pages.body
            at += size_bytes
        places.append((group.rows, chunks))
    body.append(file_end(fields, places))
    reader = pq.ParquetReader()  # without what ParquetFile prepares for names of nested columns
    reader.open(pa.BufferReader(b"".join(body)), pre_buffer=False)
    (batch,) = reader.read_all(use_threads=False).combine_chunks().to_batches()
    return batch


def _joined_groups(groups: Sequence[PagesOfGroup]) -> Sequence[PagesOfGroup]:
    """Return row groups as one if they can be: none has a dictionary, and all are stored alike. To
    describe each and to begin to decode it takes as long as some thousand rows.
    """
    columns = [*zip(*(group.chunks for group in groups), strict=True)]
    forms = [{(c.dictionary_bytes, c.is_compressed) for c in column} for column in columns]
    if len(groups) == 1 or any(len(of) > 1 or max(of)[0] for of in forms):
        return groups
    chunks = [
        PagesOfChunk(
            [*chain.from_iterable(c.body for c in column)],
            0,
            sum(c.values for c in column),
            column[0].is_compressed,
        )
        for column in columns
    ]
    return [PagesOfGroup(sum(group.rows for group in groups), chunks)]


def file_end(fields: Sequence[Field], groups: Iterable[tuple[int, Sequence[PlacedChunk]]]) -> bytes:
    """Return the footer of a Parquet file of the columns `fields`, and what follows it. It has row
    groups of so many rows each, and of each a chunk for every Parquet column of the fields.
    """
    columns, structs = [_column(field) for field in fields], partial(thrift.list_of, thrift.STRUCT)
    elements = [element for column in columns for element in column.elements]
    leaves = [leaf for column in columns for leaf in column.leaves]
    described, rows_in_all = [], 0
    for rows, chunks in groups:
        rows_in_all += rows
        sizes = map(thrift.signed, (sum(chunk.memory_bytes for chunk in chunks), rows))
        described.append(_ROW_GROUP % (structs(map(_chunk, leaves, chunks)), *sizes))
    schema = structs([_ROOT % thrift.signed(len(columns)), *elements])
    footer = _FOOTER % (schema, thrift.signed(rows_in_all), structs(described))
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _chunk(leaf: tuple[bytes, bytes], chunk: PlacedChunk) -> bytes:
    """Return Parquet's ColumnChunk of a chunk."""
    start, first_page = map(thrift.signed, (chunk.start, chunk.start + chunk.dictionary_bytes))
    sizes = map(thrift.signed, (chunk.values, chunk.memory_bytes, chunk.end - chunk.start))
    dictionary = _DICTIONARY_AT + start if chunk.dictionary_bytes else b""
    begun = leaf[chunk.is_compressed]
    return _CHUNK % (start, begun, *sizes, first_page, dictionary)


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
    _, at = thrift.read_varint(footer, 1)
    length, _, at = thrift.read_list_head(footer, at + 1)
    _, at = thrift.read_struct(footer, at)
    elements, structs = [], []
    for _ in range(length - 1):
        element, end = thrift.read_struct(footer, at)
        elements.append(footer[at:end])
        structs.append(element)
        at = end
    return _Column(tuple(elements), tuple(_leaves(iter(structs), ())))


def _leaves(
    elements: Iterator[dict[int, Any]], above: tuple[bytes, ...]
) -> list[tuple[bytes, bytes]]:
    """Return `_Column.leaves` of the next element."""
    element = next(elements)
    path = (*above, element[_NAME])
    if not element.get(_CHILDREN):
        fields = [
            (1, thrift.INT32, thrift.signed(element[_TYPE])),
            (2, thrift.LIST, _ENCODINGS),
            (3, thrift.LIST, thrift.list_of(thrift.BINARY, map(thrift.binary, path))),
        ]
        plain, compressed = (thrift.struct([*fields, (4, thrift.INT32, c)])[:-1] for c in _CODECS)
        return [(plain, compressed)]
    return [leaf for _ in range(element[_CHILDREN]) for leaf in _leaves(elements, path)]


MIN_PAGES = 2
"""Of row groups with fewer pages, to find the page takes longer than to decode all."""

Span = tuple[int, int]
"""The first row of some in a row group, and the row after the last."""
Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _RowsOfBlock:
    """The rows in `spans` of a block; `keys` are those of all its rows."""

    number: int
    keys: pa.RecordBatch
    spans: list[Span]


PLACE_BYTES = 256
"""What it takes in memory to know where a page is, about."""
MOST_KEPT = 4
"""So many blocks of a shard stay in the cache decoded when they are looked up: more would push out
what others use."""


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """Some columns of all rows of a block, decoded."""

    fields: Sequence[Field]
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ShardRows:
    """The rows of some slices of one shard, in the blocks `numbers`; `decoded` returns them.

    `needed` are the columns to decode, the first of which are `keys`. Those in `whole` are decoded
    of whole blocks; `kept` has them of blocks that were decoded before. The rows get the columns of
    `result`.
    """

    path: str
    index: ShardIndex
    blocks: Sequence[reading.Blocks]
    numbers: Sequence[int]
    schema: Schema
    keys: Sequence[Field]
    needed: Sequence[Field]
    result: pa.Schema
    whole: Sequence[Field]
    kept: Mapping[int, pa.RecordBatch]

    def sections(self) -> Iterator[Section]:
        """Yield what has to be fetched to decode them."""
        if new := [number for number in self.numbers if number not in self.kept]:
            yield from self.index.sections(new, self.needed)
        if self.kept and (others := self.needed[len(self.whole) :]):
            yield from self.index.sections(sorted(self.kept), others)

    def decoded(self, file: FetchedFile, cache: Cache) -> list[pa.RecordBatch]:
        """Return the rows of the slices, in order. Of few blocks, the cache gets what is decoded.
        Raises NotFoundError: the shard is gone; DamagedShardError: it is damaged.
        """
        try:
            with file:
                blocks = self._whole_blocks(file, cache)
                if len(self.whole) < len(self.needed):
                    batches = self._sparse(file, blocks, cache)
                elif self.blocks[0].slice.is_whole:  # the only one: slices are disjoint
                    batches = [batch for _, batch in blocks]
                else:
                    batches = [
                        rows
                        for numbers, batch in blocks
                        for rows in rows_in_ranges(batch, self._ranges(numbers), self.schema)
                    ]
            return [self.shown(batch) for batch in batches]
        except (pa.ArrowException, OSError) as error:
            raise DamagedShardError(f"{self.path} is damaged: {error}", path=self.path) from error

    def shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return decoded rows with the columns of the result."""
        return of_shard(batch, self.result, self.blocks[0].slice.shard.constants)

    @property
    def shared_form(self) -> tuple[Field, ...] | str:
        """What shards have in common whose rows are decoded together: how their columns are stored,
        of small ones that are read whole. No other shard has the path of one in common with it.
        """
        part = self.blocks[0].slice
        is_small = part.shard.size_bytes <= SMALL_BYTES and len(self.index.blocks) == 1
        is_whole = part.is_whole and self.whole is self.needed and not self.kept
        if is_small and is_whole:
            return tuple(self.index.stored_fields(self.needed).values())
        return self.path

    def _whole_blocks(
        self, file: FetchedFile, cache: Cache
    ) -> Iterator[tuple[Sequence[int], pa.RecordBatch]]:
        """Yield the columns `whole` of all blocks: of few, block by block."""
        if not _may_be_kept(self.numbers, self.blocks):
            yield self.numbers, self._whole_groups(file, self.numbers)
            return
        for number in self.numbers:
            rows = self.kept.get(number)
            if rows is None:
                rows = self._whole_groups(file, [number])
                self.keep(number, rows, rows.get_total_buffer_size(), cache)
            yield [number], rows

    def keep(self, number: int, rows: pa.RecordBatch, size_bytes: int, cache: Cache) -> None:
        """Save the columns `whole` of a block in the cache."""
        cache.put(_kept_path(self.path, number), KeptBlock(self.whole, rows), size_bytes)

    def _sparse(
        self,
        file: FetchedFile,
        blocks: Iterable[tuple[Sequence[int], pa.RecordBatch]],
        cache: Cache,
    ) -> list[pa.RecordBatch]:
        """Find the wanted rows by the keys, and decode of other columns the pages with these."""
        groups = []
        for numbers, keys in blocks:
            row = 0
            for number in numbers:
                batch = keys.slice(row, self.index.rows(number))
                row += batch.num_rows
                if spans := list(spans_in_ranges(batch, self._ranges([number]), self.schema)):
                    groups.append(_RowsOfBlock(number, batch, spans))
        if not groups:
            return []
        layouts: dict[tuple[Spans, ...], list[tuple[Field, Sequence[PagesOfChunk]]]] = {}
        others = self.needed[len(self.keys) :]
        for field in present_fields(self.index.stored.columns, others):
            picks = (self._pick(file, field, group.number, group.spans, cache) for group in groups)
            pages, spans_of_pages = zip(*picks, strict=True)
            layouts.setdefault(spans_of_pages, []).append((field, pages))
        parts = [(layout, self._decode(columns)) for layout, columns in layouts.items()]
        return list(_joined(groups, parts))

    def _whole_groups(self, file: FetchedFile, numbers: Sequence[int]) -> pa.RecordBatch:
        """Return all rows of some blocks, with those of the columns `whole` that there are."""
        return self.excerpt(self.whole, self.groups(file, numbers))

    def groups(self, file: FetchedFile, numbers: Sequence[int]) -> list[PagesOfGroup]:
        """Return all pages of some blocks, of the columns `whole`."""
        leaves = [(leaf, is_flat(field)) for field, leaf in self.index.leaves(self.whole)]
        return [
            PagesOfGroup(
                self.index.rows(number),
                [self._whole(file, number, leaf, flat=flat) for leaf, flat in leaves],
            )
            for number in numbers
        ]

    def excerpt(self, fields: Sequence[Field], groups: Sequence[PagesOfGroup]) -> pa.RecordBatch:
        """Return the rows of some pages, with the columns as the table has them now."""
        stored = self.index.stored_fields(fields)
        return evolved_rows(excerpt([*stored.values()], groups), stored, fields)

    def _whole(self, file: FetchedFile, block: int, leaf: int, *, flat: bool) -> PagesOfChunk:
        """Return all pages of a Parquet column in a block, behind the dictionary of its chunk."""
        body = file.view(*self.index.pages_span(block, leaf))
        values = self.index.rows(block) if flat else self._pages(body)[-1].end_row
        return self._chunk(file, block, leaf, [body], values)

    def _chunk(
        self, file: FetchedFile, block: int, leaf: int, pages: Sequence[memoryview], values: int
    ) -> PagesOfChunk:
        """Return some pages of a block with so many values, behind the dictionary."""
        stored, dictionary = self.index.stored, memoryview(b"")
        if stored.layout.has_dictionary(leaf):
            group = stored.layout.row_group_of(block)
            dictionary = file.view(*self.index.dictionary_span(group, leaf))
        is_compressed = stored.is_compressed(leaf)
        return PagesOfChunk([dictionary, *pages], len(dictionary), values, is_compressed)

    def _pages(self, chunk: memoryview) -> list[thrift.DataPage]:
        with raise_damaged(self.path):
            return thrift.pages_of(chunk)

    def _ranges(self, numbers: Sequence[int]) -> list[KeyRange]:
        """Return the ranges that may have rows in a block, or in all of the slices."""
        return [
            fit_range(groups.slice.range, self.schema)
            for groups in self.blocks
            if len(numbers) > 1 or numbers[0] in groups.numbers
        ]

    def _pick(
        self, file: FetchedFile, field: Field, number: int, spans: Sequence[Span], cache: Cache
    ) -> tuple[PagesOfChunk, Spans]:
        """Return the pages of a flat column that hold some rows, and the rows of each page."""
        ((_, leaf),) = self.index.leaves([field])
        body = file.view(*self.index.pages_span(number, leaf))
        place = f"{_kept_path(self.path, number)}/{leaf}"
        if (all_pages := cache.get(place, list)) is None:
            all_pages = self._pages(body)
            cache.put(place, all_pages, PLACE_BYTES * len(all_pages))
        pages = [page for page in all_pages if _holds(page, spans)]
        parts = [body[page.start : page.end] for page in pages]
        rows = sum(page.end_row - page.first_row for page in pages)
        chunk = self._chunk(file, number, leaf, parts, rows)
        return chunk, tuple((page.first_row, page.end_row) for page in pages)

    def _decode(self, columns: Sequence[tuple[Field, Sequence[PagesOfChunk]]]) -> pa.RecordBatch:
        """Return the rows of pages of several columns, in all row groups; they have the same
        rows.
        """
        fields, chunks = zip(*columns, strict=True)
        groups = [PagesOfGroup(group[0].values, group) for group in zip(*chunks, strict=True)]
        return self.excerpt(fields, groups)


def _want_few_rows(
    numbers: Sequence[int], blocks: Sequence[reading.Blocks], needed: Sequence[Field]
) -> bool:
    """Return whether most blocks are wanted for a few rows, and have several pages.

    Of a wide range, all blocks but the first and the last are wanted whole. Of nested columns, no
    page tells which rows it has.
    """
    return (
        len(numbers) <= 2 * len(blocks)
        and max(map(blocks[0].index.rows, numbers)) >= MIN_PAGES * PAGE_ROWS
        and all(map(is_flat, needed))
    )


def _may_be_kept(numbers: Sequence[int], blocks: Sequence[reading.Blocks]) -> bool:
    """Return whether a few blocks are wanted, each for a few rows."""
    return len(numbers) <= min(MOST_KEPT, 2 * len(blocks))


def _kept_path(path: str, block: int) -> str:
    """Return under what name the cache has the rows of a block."""
    return f"{path}#{block}"


def _holds(page: thrift.DataPage, spans: Sequence[Span]) -> bool:
    return any(page.first_row < end and start < page.end_row for start, end in spans)


def _joined(
    requests: Sequence[_RowsOfBlock], decoded: Sequence[tuple[tuple[Spans, ...], pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of each row group: their keys, and what was decoded of the others.

    Each layout has the rows of its pages, by row group; they follow each other in its batch.
    """
    starts = [
        [0, *accumulate(sum(end - start for start, end in pages) for pages in layout)]
        for layout, _ in decoded
    ]
    for at, group in enumerate(requests):
        for start, end in group.spans:
            parts = [group.keys.slice(start, end - start)]
            for (layout, batch), firsts in zip(decoded, starts, strict=True):
                first = firsts[at] + _rows_before(layout[at], start)
                parts.append(batch.slice(first, end - start))
            columns = [column for part in parts for column in part.columns]
            schema = pa.schema([field for part in parts for field in part.schema])
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


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


def write_short_footer(
    local: Path, blocks: reading.Blocks, fields: Sequence[Field], path: str
) -> None:
    """End the local copy of what is read of a shard, which is called `path` in errors: describe the
    columns `fields` of its blocks, some of which are joined.
    Raises DamagedShardError: its pages are in a form that Dormouse does not write.
    """
    index = blocks.index
    stored = list(index.stored_fields(fields).values())
    leaves = [(leaf, is_flat(field)) for field in stored for _, leaf in index.leaves([field])]
    with local.open("r+b") as file:
        file.seek(index.stored.starts[-1])
        groups = [_placed(file, index.stored, joined, leaves, path) for joined in blocks.joined]
        file.write(file_end(stored, groups))
        file.truncate()


def _placed(
    file: BinaryIO,
    stored: StoredIndex,
    blocks: range,
    leaves: Sequence[tuple[int, bool]],
    path: str,
) -> tuple[int, list[PlacedChunk]]:
    """Return the rows of joined blocks, and where some Parquet columns of them are, which may be
    written to the end of the file. Only the pages of columns that are not flat, as is said of each,
    have to be looked at.
    """
    layout, starts, chunks = stored.layout, stored.starts, []
    group, rows = layout.row_group_of(blocks.start), sum(stored.rows[blocks.start : blocks.stop])
    place = blocks.start - layout.firsts[group]
    for leaf, flat in leaves:
        first = layout.chunk(group, leaf)
        pages = first + layout.has_dictionary(leaf)
        dictionary_bytes, values = starts[pages] - starts[first], rows
        start, end = starts[pages + place], starts[pages + place + len(blocks)]
        if not flat:
            with raise_damaged(path):
                values = thrift.pages_of(os.pread(file.fileno(), end - start, start))[-1].end_row
        if dictionary_bytes and place:
            dictionary = os.pread(file.fileno(), dictionary_bytes, starts[first])
            body = os.pread(file.fileno(), end - start, start)
            start = file.tell()
            end = start + file.write(dictionary + body)
        elif dictionary_bytes:
            start = starts[first]
        memory_bytes = sum(stored.memory_bytes(block, leaf) for block in blocks)
        is_compressed = stored.is_compressed(leaf)
        chunks.append(
            PlacedChunk(start, end, dictionary_bytes, values, is_compressed, memory_bytes)
        )
    return rows, chunks


# Read the rows of row groups that were found: fetch and verify them whole, and decode them.


FEW_BYTES = 512 * 1024
"""So many bytes of pages are decoded in the thread that asks for them, one shard after the other:
to start two threads takes about as long."""
SMALL_BYTES = 16 * 1024
"""The size of a small shard, as commits of some rows write them: most of what it takes to decode
one does not depend on its rows."""
MOST_ALIKE = 64
"""So many are decoded as one. What the cache keeps of one keeps the others in memory."""
NOTHING_KEPT = Cache(0)
"""The cache of those who read blocks once."""


LOOK_UP_GAP_BYTES = 16 * 1024
"""The gap for those that are read side by side, which wait for each other's bytes at most: between
the pages of a block, other blocks of its row group lie."""


class FetchedFile:
    """A shard of which some spans are fetched: those that wait for a network at once, those of a
    file of this machine when they are looked at. Close it at the end.
    """

    def __init__(
        self,
        start: reading.Start,
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
        starter = start if objects.is_remote else reading.when_asked
        self._spans = [*map(reading.byte_span, groups)]
        self._bodies = [starter(partial(read, group)) for group in groups]

    def __enter__(self) -> Self:
        """Return it: a file of this machine is opened by the first look."""
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None  # what is not read yet opens it again

    def view(self, start: int, end: int) -> memoryview:
        """Return the bytes between two offsets, which must be within one of the spans, if any."""
        if start == end:
            return memoryview(b"")
        at = bisect_right(self._spans, (start, inf)) - 1
        if at >= 0:
            first, stop = self._spans[at]
            if start <= end <= stop:
                return memoryview(self._bodies[at]())[start - first : end - first]
        raise InvariantError(f"bytes {start} to {end} of {self.path} were not fetched")

    def _read(self, sections: Sequence[Section]) -> bytes:
        return reading.read_sections(self._objects, self.path, self._size_bytes, sections)

    def _read_opened(self, sections: Sequence[Section]) -> bytes:
        if self._file is None:
            with raise_damaged(self.path):
                self._file = self._objects.open(self.path, self._size_bytes)
        return reading.read_from(self._file, self.path, sections)


def read_blocks(
    objects: Objects,
    table_id: str,
    blocks: Sequence[reading.Blocks],
    schema: Schema,
    columns: Sequence[str],
    cache: Cache = NOTHING_KEPT,
) -> list[list[pa.RecordBatch]]:
    """Read the row groups found for disjoint slices; return the rows of each shard, in its order.

    Each row group is read once, even if several slices need it, and neighbours are read together.
    All bytes are verified by their CRCs. Blocks in the cache are not read again.
    Raises NotFoundError: a shard is gone; CorruptDataError: one is damaged.
    """
    by_shard = sorted((g for g in blocks if g.numbers), key=_place)
    of_shards = [list(groups) for _, groups in groupby(by_shard, key=lambda g: g.slice.shard.id)]
    fields = [schema.field_named(name) for name in columns]
    keys = _keys_to_read(blocks, schema, fields)
    needed = list(dict.fromkeys([*keys, *fields]))
    result = columns_schema(schema, tuple(columns))
    shards = [
        _planned(table_id, groups, schema, keys, needed, result, cache) for groups in of_shards
    ]
    spans = [reading.coalesce(rows.sections(), gap_bytes=LOOK_UP_GAP_BYTES) for rows in shards]
    size_bytes = sum(
        part.end - part.start for of_shard in spans for span in of_shard for part in span
    )
    decodings = len(shards) if size_bytes > FEW_BYTES else 1
    with (
        reading.reading_threads(objects, sum(map(len, spans))) as start_read,
        reading.in_threads(decodings, reading.DECODE_THREADS) as start_decoding,
    ):
        files = [
            FetchedFile(
                start_read, objects, rows.path, rows.blocks[0].slice.shard.size_bytes, groups
            )
            for rows, groups in zip(shards, spans, strict=True)
        ]
        pairs = zip(shards, files, strict=True)
        alike = (list(some) for _, some in groupby(pairs, lambda pair: pair[0].shared_form))
        together = [
            some[at : at + MOST_ALIKE] for some in alike for at in range(0, len(some), MOST_ALIKE)
        ]
        started = [start_decoding(partial(_decoded, some, cache)) for some in together]
        return [batches for wait in started for batches in wait()]


def _decoded(
    shards: Sequence[tuple[ShardRows, FetchedFile]], cache: Cache
) -> list[list[pa.RecordBatch]]:
    """Return the rows of each shard; those of several, which have a `shared_form`, are decoded as
    one.
    """
    if len(shards) > 1:
        with suppress(pa.ArrowException, OSError):  # decoded alone, a shard says that it is damaged
            return _decoded_together(shards, cache)
    return [rows.decoded(file, cache) for rows, file in shards]


def _decoded_together(
    shards: Sequence[tuple[ShardRows, FetchedFile]], cache: Cache
) -> list[list[pa.RecordBatch]]:
    groups = []
    for rows, file in shards:
        with file:
            groups += rows.groups(file, rows.numbers)
    first, at, result = shards[0][0], 0, []
    batch = first.excerpt(first.whole, groups)
    for (rows, _), group in zip(shards, groups, strict=True):
        part = batch.slice(at, group.rows)
        rows.keep(0, part, part.nbytes, cache)
        result.append([rows.shown(part)])
        at += group.rows
    return result


def _planned(
    table_id: str,
    blocks: Sequence[reading.Blocks],
    schema: Schema,
    keys: Sequence[Field],
    needed: Sequence[Field],
    result: pa.Schema,
    cache: Cache,
) -> ShardRows:
    """Return what is to be read of one shard, with what the cache has of it."""
    index, numbers = blocks[0].index, reading.numbers_of(blocks)
    path = shard_path(table_id, blocks[0].slice.shard.id)
    whole = keys if keys and _want_few_rows(numbers, blocks, needed) else needed
    cached = {}
    for number in numbers if _may_be_kept(numbers, blocks) else ():
        if (rows := _kept(cache, path, number, whole)) is not None:
            cached[number] = rows
    return ShardRows(path, index, blocks, numbers, schema, keys, needed, result, whole, cached)


def _kept(cache: Cache, path: str, number: int, fields: Sequence[Field]) -> pa.RecordBatch | None:
    """Return those of some columns of a block that there are, if the cache has it with them."""
    block = cache.get(_kept_path(path, number), KeptBlock)
    if block is not None and block.fields == fields:
        return block.rows
    if block is None or not all(field in block.fields for field in fields):
        return None
    there = set(block.rows.schema.names)
    return block.rows.select([field.name for field in fields if field.name in there])


def kept_shard(
    cache: Cache, table_id: str, shard: Shard, fields: Sequence[Field]
) -> pa.RecordBatch | None:
    """Return some columns of all rows of a shard, if the cache has them and they are one block: to
    find and plan what is read of it takes three times as long.
    """
    rows = _kept(cache, shard_path(table_id, shard.id), 0, fields)
    return rows if rows is not None and rows.num_rows == shard.rows else None


def _keys_to_read(
    blocks: Sequence[reading.Blocks], schema: Schema, fields: Sequence[Field]
) -> Sequence[Field]:
    """Return the row keys, and as many sort keys as the longest end of a range has; of whole
    shards none, if each has some of the fields.
    """
    if all(g.slice.is_whole and present_fields(g.index.stored.columns, fields) for g in blocks):
        return ()
    ranges = [groups.slice.range for groups in blocks]
    parts = max((max(len(r.min), len(r.max or ())) for r in ranges), default=0)
    return schema.keys[: max(parts, len(schema.row_keys))]


def _place(groups: reading.Blocks) -> tuple[object, ...]:
    shard = groups.slice.shard
    return shard.low, shard.id, groups.slice.range.low
