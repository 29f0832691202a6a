"""Write one local Parquet file, row group by row group, in the layout of a shard.

A row group is as large as scans like it, and consists of blocks: as much as a look-up reads. A
block is some whole pages of each column, so all columns begin a page where a block begins.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from math import ceil, inf, isnan, log2
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.arrow.order import row_span, taken_keys
from dormouse.arrow.types import Array, arrow_schema, stored_schema
from dormouse.keys import Key, KeyHistogram, encode_key
from dormouse.schema.schema import Schema
from dormouse.schema.types import (
    FLOATS,
    TIMESTAMPS,
    WHOLE,
    DecimalType,
    FieldType,
    Primitive,
    leaf_columns,
)
from dormouse.shards import stored_index, thrift
from dormouse.shards.crcs import FALSE_POSITIVES, Paging, seek_footer, write_facts
from dormouse.shards.footer import (
    MOST_BLOCK_ROWS,
    MOST_COLUMNS,
    MOST_SEARCHED_ROWS,
    block_bytes,
    first_bytes,
)
from dormouse.shards.stored_index import PAGE_ROWS
from dormouse.shards.terms import TermIndexWriter
from dormouse.stored import checksums
from dormouse.tables.indexing import TermColumns, is_shredded, other_id

# Choose which columns of a shard have dictionaries, and which are compressed.
#
# Dictionaries are for values that repeat, and compression is for what zstd makes smaller.
#
# Packed numbers are often as short as they can be: random ones shrink by nothing, and compressing
# them takes as long as compressing text does. The first row group shows which columns these are.
# Columns of text, bytes and nested values are always compressed, because what is in them varies
# more. So are those with dictionaries.

_VARYING = (Primitive.STRING, Primitive.BYTES, Primitive.DYNAMIC)
"""The types of values that are as long as they are."""
Codec: TypeAlias = Literal["zstd", "none"]
LEAST_SAVING = 0.05
"""The part of a column's bytes that compressing it must save."""
LEAST_MEASURED_ROWS = 64
"""Of fewer rows, the numbers take less time to compress than to measure."""
REPETITION = 4
"""A dictionary pays if, on average, each value occurs at least this often in a row group."""
DICTIONARY_SHARE = 2
"""A look-up reads dictionaries with its block: all of a row group are expected to take this part
(1/2) of the first block at most."""


def packed_numbers(
    first: pa.Table, schema: Schema, stored: pa.Schema, encodings: Mapping[str, str]
) -> dict[str, pq.ColumnChunkMetaData]:
    """Return the columns of numbers as they are in a file that begins with the rows `first`, has
    the schema `stored`, and `encodings` of some columns by name: they are written to memory.
    """
    numbers = [field.name for field in schema.fields if _is_number(field.type)]
    if not numbers or first.num_rows < LEAST_MEASURED_ROWS:
        return {}
    packed = {name: encodings[name] for name in numbers if name in encodings}
    sink = pa.BufferOutputStream()
    schema_of_numbers = pa.schema([stored.field(name) for name in numbers])
    with pq.ParquetWriter(
        sink, schema_of_numbers, compression="zstd", use_dictionary=False, column_encoding=packed
    ) as writer:
        writer.write_table(first.select(numbers), row_group_size=first.num_rows)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return {name: group.column(place) for place, name in enumerate(numbers)}


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
        return kind not in _VARYING
    return isinstance(kind, DecimalType)


def _shrinks(chunk: pq.ColumnChunkMetaData) -> bool:
    plain_bytes = chunk.total_uncompressed_size
    return chunk.total_compressed_size <= (1 - LEAST_SAVING) * plain_bytes


def value_bytes(column: pa.ChunkedArray[Any]) -> int:
    """Return what the values of a column that is not nested take, however often each occurs."""
    if _is_text(column.type):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return int(len(column) * column.type.bit_width // 8)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def dictionaries(
    first: pa.Table,
    packed: Mapping[str, pq.ColumnChunkMetaData],
    group_rows: int,
    most_bytes: float,
) -> dict[str, tuple[int, int]]:
    """Return the columns for which dictionaries pay, by the `first` rows of a file with row groups
    of `group_rows`, and about what each takes for these rows, and in a row group; there they take
    `most_bytes` at most, all together. Numbers are `packed` otherwise.
    """
    sizes_by_name = {}
    for name, column in zip(first.column_names, first.columns, strict=True):
        if _is_text(column.type) or (name in packed and not pa.types.is_boolean(column.type)):
            sizes = _dictionary_bytes(column, packed.get(name), group_rows)
            if sizes is not None:
                sizes_by_name[name] = sizes
    shortest = sorted(sizes_by_name, key=lambda name: sizes_by_name[name][1])
    totals = accumulate(sizes_by_name[name][1] for name in shortest)
    names = {name for name, total in zip(shortest, totals, strict=True) if total <= most_bytes}
    return {name: sizes for name, sizes in sizes_by_name.items() if name in names}


def _dictionary_bytes(
    column: pa.ChunkedArray[Any], packed: pq.ColumnChunkMetaData | None, group_rows: int
) -> tuple[int, int] | None:
    """Return what the dictionary of a column takes, and about in a row group; None if none pays."""
    each = _unique(column)
    rows, distinct = len(column), len(each)
    values = float(distinct)
    if group_rows > rows > distinct:  # if each is another, so may be those that follow
        half = len(_unique(column[: rows // 2]))
        values = _expected(half, distinct, group_rows / rows)
    if rows == distinct or values * REPETITION > group_rows:
        return None
    codec = pa.Codec("zstd")
    stored_bytes = sum(len(codec.compress(buffer)) for buffer in each.buffers()[1:] if buffer)
    size_bytes = int(stored_bytes * values / max(1, distinct))
    if packed is not None:
        places_bytes = group_rows * ceil(log2(max(1, values))) / 8
        if size_bytes + places_bytes > packed.total_compressed_size * group_rows / rows:
            return None
    return stored_bytes, size_bytes


def _unique(column: pa.ChunkedArray[Any]) -> Array:
    """Return each value of a column once; Arrow takes twice as long only to count them."""
    values: Any = column.drop_null()
    unique: Array = pc.unique(values)
    return unique


def _expected(half: int, distinct: int, growth: float) -> float:
    """Return how many distinct values so many times the rows may have, of which one half has `half`
    and all have `distinct`.

    They are counted as fish in a pond: by how many of one half are again in the other. For example,
    if 974 and 974 are 1,853 together, 95 were there again, a tenth; so there are about 10,000.
    Where values drift, hardly one is there again, and as many follow with every row.
    """
    again = 2 * half - distinct
    if again == half:
        return distinct
    drifting = distinct * growth
    return min(drifting, half * half / (again - 1)) if again > 1 else drifting


# Columns of floats that hold NaN have no bounds in a shard.
#
# Statistics of Parquet leave out NaN, which is greater than all other numbers, and readers believe
# them: they would miss rows. pyarrow has to be told which columns get bounds before the first row
# is written, and whether there is NaN is known after the last one: so they are taken out of the
# footer.


class NaNSearch:
    """Looks for NaN in the columns of floats of batches, up to the first of each column."""

    def __init__(self, schema: Schema) -> None:
        self._without = {n: f.name for n, f in enumerate(schema.fields) if f.type in FLOATS}

    def see(self, batch: pa.RecordBatch) -> None:
        """Look at the rows of a batch, whose columns are those of the schema."""
        for number in list(self._without):
            column = batch.column(number)
            total = pc.sum(column).as_py()
            # the sum is NaN if a value is, or of both infinities; only then is it worth to look
            if total is not None and isnan(total) and pc.any(pc.is_nan(column)).as_py():
                del self._without[number]

    @property
    def without(self) -> list[str]:
        """The names of the columns of floats in which there was none."""
        return list(self._without.values())


# Numbers of fields in Parquet's structs.
_ROW_GROUPS = 4  # of a footer
_CHUNKS = 1  # of a row group
_METADATA, _COLUMN_INDEX = 3, (6, 7)  # of a column chunk; the latter as offset and length
_STATISTICS = 12  # of the metadata of a column chunk
_BOUNDS = (1, 2, 5, 6, 7, 8)  # of statistics: all but the numbers of nulls and distinct values


def drop_bounds(local: Path, leaves: Collection[int]) -> None:
    """Take the least and greatest values of some Parquet columns, by place, out of the footer of a
    local file, and the references to their column indexes. The other bytes of the file stay.
    """

    def statistics(body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, dict.fromkeys(_BOUNDS))

    def described(body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, {_STATISTICS: statistics})

    def chunk(place: int, body: thrift.Body, at: int) -> tuple[bytes, int]:
        if place in leaves:
            return thrift.edit_struct(
                body, at, {_METADATA: described, **dict.fromkeys(_COLUMN_INDEX)}
            )
        end = thrift.read_struct(body, at)[1]
        return bytes(body[at:end]), end

    def group(place: int, body: thrift.Body, at: int) -> tuple[bytes, int]:
        return thrift.edit_struct(body, at, {_CHUNKS: lambda b, i: thrift.edit_list(b, i, chunk)})

    with local.open("r+b") as file:
        start = seek_footer(file)
        edits = {_ROW_GROUPS: lambda b, i: thrift.edit_list(b, i, group)}
        footer, _ = thrift.edit_struct(file.read(), 0, edits)
        file.seek(start)
        file.write(footer + struct.pack("<I4s", len(footer), stored_index.MAGIC))
        file.truncate()


FIRST_ROW_GROUP_ROWS = 2048
"""The rows of the first row group, whose size shows how wide the rows are."""
FIRST_ROW_GROUP_VALUES = 256 * 1024
"""Its values at most, 2 MiB of numbers: with more, it would be larger than the others of many
columns, and a merge would merge those of all inputs in levels."""
PACKED_TOGETHER = 128
"""Its rows are a multiple: numbers are packed in blocks of so many, and one that is not full
compresses, as if the numbers did."""
CHECKSUM_KEY = "dormouse.checksum"
MAX_ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 4 * 1024 * 1024
"""The size of most row groups in memory. DuckDB takes half the time for rows in groups of these
sizes that it takes for single blocks, and each has its dictionaries; but a merge holds a row group
of each input."""
MAX_ROW_GROUP_BYTES = 8 * 1024 * 1024
"""The largest size of a row group in memory, unless it has one row."""
MOST_CHUNKS = 20_000
"""A shard ends after the row group with which it has as many column chunks: each takes about 3 KB
of memory while it is written, and 1 to 2 KB where its footer is read."""
FEW_COLUMNS = 24
"""With fewer columns, a batch adds only a small part of the most chunks."""
LEAST_PAGE_ROWS = 64
"""A page has fewer rows than others where a block may have fewer, but each takes some 30 bytes."""
UNLIMITED = 1 << 30
"""In place of limits of pyarrow that would end a page before it has its rows."""
MOST_DICTIONARY = 8
"""Dictionaries are taken for all but this fraction (1/8) of a file at most, when it is estimated
how many rows fill a row group: each has its dictionaries however few rows it has."""
MOST_GROWTH = 8
MOST_HEADER_BYTES = 64 * 1024
"""Rows take no more in the file than this many times their size in memory, and this much besides:
a key may be stored in a page, twice in the page's header and twice in the footer."""
TYPICAL_BYTES = 64 * 1024 * 1024
"""The size of a shard whose row groups the Bloom filters are made for."""

_ENCODINGS: dict[FieldType, str] = {
    **dict.fromkeys(_VARYING, "DELTA_LENGTH_BYTE_ARRAY"),
    **dict.fromkeys((*WHOLE, Primitive.DATE, Primitive.TIME, *TIMESTAMPS), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(FLOATS, "BYTE_STREAM_SPLIT"),
}
"""Encodings that are faster to write and read, and smaller, than plain values."""


class ParquetFileWriter:
    """Writes a Parquet file; it is complete after `close`, and removed by `discard`."""

    def __init__(
        self,
        local: Path,
        schema: Schema,
        bloom_columns: Sequence[str] = (),
        *,
        term_columns: TermColumns = (),
        plain: bool = False,
    ) -> None:
        """Write rows of `schema`, sorted by its keys, to `local`; `bloom_columns` get filters,
        `term_columns` a term index, and `plain` values are as every reader knows them, in
        dictionaries or as they are.
        """
        self._local = local
        self._schema = schema
        self._stored = stored_schema(schema, plain=plain)
        # what is said of a path holds for all columns that have it
        counts = Counter(column_paths(self._stored))
        self._shared = {path for path, columns in counts.items() if columns > 1}
        self._bloom_columns = [name for name in bloom_columns if name not in self._shared]
        self._encodings = {} if plain else _ENCODINGS
        self._arrow = arrow_schema(schema)
        self._is_marked = not self._stored.equals(self._arrow)
        self._columns = schema.leaf_columns
        leaves = accumulate((leaf_columns(f.type) for f in schema.fields), initial=0)
        self._places = dict(zip((f.name for f in schema.fields), leaves, strict=False))
        self._floats = NaNSearch(schema)
        self._sink = pa.OSFile(str(local), "wb")
        self._writer: pq.ParquetWriter | None = None
        self._described: list[pq.FileMetaData] = []
        self._written_rows = 0
        self._dictionaries: dict[str, tuple[int, int]] = {}
        self._packed: dict[str, pq.ColumnChunkMetaData] = {}
        self._bounded: list[str] = []
        self._decoded: dict[int, list[int]] = {}
        self._forms = b""
        # filters are those of row groups, and exclude what a look-up would read
        self._has_blocks = self._columns <= MOST_COLUMNS and not self._bloom_columns
        self._page_rows = PAGE_ROWS
        self._most_rows = MAX_ROW_GROUP_ROWS
        self._row_groups: list[list[int]] = []
        self._ends: list[tuple[Key, Key]] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._known_bytes: int | None = 0
        fields = {field.name: field for field in schema.fields}
        self._terms: TermIndexWriter | None = None
        if indexed := [(fields[name], how) for name, how in term_columns if name in fields]:
            self._terms = TermIndexWriter(indexed, local.with_suffix(".terms"))

    @property
    def size_bytes(self) -> int:
        """The size of the row groups written so far; these bytes of the file do not change."""
        return self._sink.tell()

    @property
    def finished_bytes(self) -> int:
        """About the size of the file when what was written is all, without its footer, in bytes."""
        return self.size_bytes + self._pending_bytes

    @property
    def _chunks(self) -> int:
        return len(self._row_groups) * self._columns

    def is_full(self, target_bytes: int) -> bool:
        """Return whether the file has its target size, or as many column chunks as it may have."""
        return self.size_bytes >= target_bytes or self._chunks >= MOST_CHUNKS

    def room(self, batch: pa.RecordBatch, target_bytes: int) -> int:
        """Return how many of the first rows of `batch`, at least one, may be written before
        it must be asked again whether it `is_full`.

        These are all if the file stays smaller in any case; else those that fit into the pending
        row group. A batch that is written whole costs less than its parts.
        """
        left_bytes = (target_bytes - self.size_bytes - MOST_HEADER_BYTES) / MOST_GROWTH
        left_bytes -= self._pending_bytes
        is_far = self._columns < FEW_COLUMNS and 2 * self._chunks < MOST_CHUNKS
        if is_far and (batch.get_total_buffer_size() < left_bytes or batch.nbytes < left_bytes):
            return batch.num_rows
        return min(batch.num_rows, max(1, self._group_rows() - self._pending_rows))

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self._floats.see(batch)
        self._known_bytes = self._pending_bytes + batch.nbytes
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= self._group_rows():
            self._write_groups()

    def close(
        self, metadata: dict[str, str], table_id: str, shard_id: str, partial: Collection[int] = ()
    ) -> None:
        """Write the pending rows and the Parquet footer with the given key-value metadata, and with
        the index of the shard that the file is. The columns of the ids `partial` lack values.

        Requires: at least one row was written.
        """
        if self._pending_rows:
            rest = pa.Table.from_batches(self._pending, self._arrow)
            self._note_ends(rest, self._write_group(rest))
        assert self._writer is not None
        blocks = [*map(len, self._row_groups)]
        terms = self._write_terms()
        blank = stored_index.encode_index(
            table_id,
            shard_id,
            [
                stored_index.IndexedColumn.of(
                    replace(f, id=other_id(f.id)) if f.id in partial else f
                )
                for f in self._schema.fields
            ],
            blocks,
            [*chain.from_iterable(self._row_groups)],
            stored_index.Facts.blank(self._forms, blocks, has_filters=bool(self._bloom_columns)),
            stored_index.KeyBounds.of(self._ends),
            terms,
        )
        self._writer.add_key_value_metadata(
            {**metadata, stored_index.INDEX_KEY: blank, CHECKSUM_KEY: checksums.BLANK}
        )
        self._writer.close()
        self._writer = None  # it holds what describes all column chunks
        self._sink.close()
        if unbounded := self._leaves_with_nan():
            drop_bounds(self._local, unbounded)
        flat = [
            isinstance(f.type, Primitive | DecimalType)
            for f in self._schema.fields
            for _ in range(leaf_columns(f.type))
        ]
        terms_bytes = terms.size_bytes if terms else 0
        paging = Paging(self._page_rows, self._forms, flat, self._row_groups, terms_bytes)
        write_facts(self._local, self._described.pop(), blank, paging, self._decoded)

    def discard(self) -> None:
        """Remove the local file, finished or not."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):  # it finishes the file, for which a disk may
                self._writer.close()  # have no room; pyarrow fails otherwise after a failure
        self._sink.close()
        self._local.unlink(missing_ok=True)
        if self._terms is not None:
            self._terms.discard()

    def _write_terms(self) -> stored_index.TermIndexPlace | None:
        """Write the term index behind the row groups, if there is to be one."""
        if self._terms is None:
            return None
        place = self._terms.write(self._sink)
        self._terms.discard()
        return place

    def _leaves_with_nan(self) -> list[int]:
        """Return the places of the floats, also of nested ones, that have statistics by their path
        and are not known to be without NaN.
        """
        leaves = self._described[-1].schema
        places = {self._places[name] for name in self._floats.without}
        return [
            place
            for place in range(self._columns)
            if leaves.column(place).physical_type in ("FLOAT", "DOUBLE")
            and leaves.column(place).path in self._bounded
            and place not in places
        ]

    def _group_rows(self) -> int:
        """Return the number of rows of the pending row group.

        It does not depend on how rows are divided into batches, unless they are very wide: so two
        runs that write the same rows write identical files.
        """
        some = FIRST_ROW_GROUP_VALUES // (PACKED_TOGETHER * self._columns)
        rows = min(FIRST_ROW_GROUP_ROWS, PACKED_TOGETHER * max(1, some))
        if self._written_rows:
            rows = block_rows = self._block_rows()
            if self._has_blocks:
                rows *= max(1, self._most_rows // block_rows)
        most_bytes = MAX_ROW_GROUP_BYTES * self._pending_rows
        if self._pending_rows and most_bytes < rows * self._buffers_bytes():
            rows = min(rows, most_bytes // max(1, self._pending_bytes))
        return max(1, rows)

    def _block_rows(self) -> int:
        """Return the number of rows of the next blocks, by what was written so far."""
        size_bytes = self.size_bytes
        sizes = self._dictionaries.values()
        of_first, of_others = (sum(each[n] for each in sizes) for n in (0, 1))
        target_bytes = block_bytes(size_bytes, self._columns, is_group=not self._has_blocks)
        if of_others <= target_bytes // DICTIONARY_SHARE:  # longer ones are of few rows
            target_bytes -= of_others
        values_bytes = size_bytes - of_first - (len(self._row_groups) - 1) * of_others
        values_bytes = max(values_bytes, size_bytes // MOST_DICTIONARY)
        rows = min(MAX_ROW_GROUP_ROWS, target_bytes * self._written_rows // values_bytes)
        if self._has_blocks:
            page = self._page_rows
            most = (MOST_SEARCHED_ROWS if self._terms else MOST_BLOCK_ROWS) // page
            rows = page * min(most, max(1, round(rows / page)))
        return max(1, rows)

    @property
    def _pending_bytes(self) -> int:
        """What the pending rows take in memory, in bytes. Adding it up takes Arrow as long as to
        encode dozens of rows, so it is known only once it is asked for.
        """
        if self._known_bytes is None:
            self._known_bytes = sum(batch.nbytes for batch in self._pending)
        return self._known_bytes

    def _buffers_bytes(self) -> int:
        """Return `_pending_bytes`, or if that is not known more: the size of all their buffers."""
        if self._known_bytes is not None:
            return self._known_bytes
        return sum(batch.get_total_buffer_size() for batch in self._pending)

    def _write_groups(self) -> None:
        """Write the pending rows but for those that do not fill a row group."""
        rest = pending = pa.Table.from_batches(self._pending, self._arrow)
        blocks: list[int] = []
        while self._pending_rows >= (rows := self._group_rows()):
            blocks += self._write_group(rest.slice(0, rows))
            rest = rest.slice(rows)
            self._pending, self._pending_rows = rest.to_batches(), rest.num_rows
            self._known_bytes = None
        self._note_ends(pending, blocks)

    def _write_group(self, group: pa.Table) -> list[int]:
        """Write a row group; return the rows of its blocks."""
        if self._writer is None:
            self._measure(group)
            self._writer = self._open(group)
        rows = group.num_rows
        step = self._block_rows() if self._written_rows and self._has_blocks else rows
        parts = [group.slice(first, step) for first in range(0, rows, step)]
        blocks = [part.num_rows for part in parts]
        for name in self._dictionaries:
            sizes = self._decoded.setdefault(self._places[name], [])
            sizes += [value_bytes(part[name]) for part in parts]
        if self._terms is not None:
            for number, part in enumerate(parts, sum(map(len, self._row_groups))):
                self._terms.add(number, part)
        marked = group.cast(self._stored) if self._is_marked else group
        self._writer.write_table(marked, row_group_size=rows)
        self._row_groups.append(blocks)
        self._written_rows += rows
        return blocks

    def _measure(self, first: pa.Table) -> None:
        """Decide by the first rows how many a page and a row group have, and what repeats."""
        row_bytes = max(1, first.combine_chunks().nbytes // first.num_rows)
        if self._has_blocks:
            self._most_rows = min(MAX_ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes)
            # about half of the rows of the first blocks, since values are stored in less
            rows = 2 * first_bytes(self._columns) // row_bytes
            rows = min(PAGE_ROWS, MAX_ROW_GROUP_ROWS, max(LEAST_PAGE_ROWS, rows))
            self._page_rows = 1 << (rows.bit_length() - 1)
        self._packed = packed_numbers(first, self._schema, self._stored, self._encoding(()))
        names = [f.name for f in self._schema.fields if f.name not in self._shared]
        group_rows = self._most_rows if self._has_blocks else first.num_rows
        # the dictionaries of few rows are read with most of these
        is_long = group_rows >= 2 * first.num_rows
        self._dictionaries = dictionaries(
            first.select(names),
            {name: chunk for name, chunk in self._packed.items() if name in names},
            group_rows,
            first_bytes(self._columns) // DICTIONARY_SHARE if is_long else inf,
        )

    def _encoding(self, names: Collection[str]) -> dict[str, str]:
        """Return the encodings of all columns but some."""
        return {
            f.name: self._encodings[f.type]
            for f in self._schema.fields
            if f.type in self._encodings and f.name not in {*names, *self._shared}
        }

    def _note_ends(self, rows: pa.Table, sizes: Sequence[int]) -> None:
        """Note the first and the last key of blocks of these sizes, which begin with `rows`."""
        starts = accumulate(sizes, initial=0)
        ends = [edge for low, high in pairwise(starts) for edge in (low, high - 1)]
        keys: list[Key] = []
        at = 0
        for batch in rows.to_batches():  # Arrow would join them before it takes rows of several
            here = [edge - at for edge in ends if at <= edge < at + batch.num_rows]
            keys += taken_keys(batch, here, self._schema.keys)
            at += batch.num_rows
        self._ends.extend(zip(keys[::2], keys[1::2], strict=True))

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        repetitive = [*self._dictionaries]
        self._bounded = [
            f.name
            for f in self._schema.fields
            if f in self._schema.keys
            or f.name in repetitive
            or (_is_number(f.type) and f.type is not Primitive.UUID)  # others skip hardly a group
            or is_shredded(f.id)
        ]
        paths = column_paths(self._stored)
        codecs: dict[str, Codec] = dict.fromkeys(paths, "zstd")
        for name, chunk in self._packed.items():
            if name not in repetitive and not _shrinks(chunk):
                codecs[name] = "none"
        self._forms = bytes(
            stored_index.form_of(
                is_compressed=codecs[path] != "none", has_dictionary=path in repetitive
            )
            for path in paths
        )
        # a dict, because the type stubs lack some of the arguments
        layout: dict[str, Any] = {
            "use_dictionary": repetitive,
            "column_encoding": self._encoding(repetitive),
            "compression": codecs,
            "write_statistics": self._bounded,
            "write_page_index": True,
            "write_page_checksum": True,
            "max_rows_per_page": self._page_rows,
            "bloom_filter_options": {
                name: {"ndv": _filter_rows(first, self._schema), "fpp": FALSE_POSITIVES}
                for name in self._bloom_columns
            },
            "sorting_columns": [pq.SortingColumn(i) for i in range(len(self._schema.keys))],
            "metadata_collector": self._described,
        }
        if self._has_blocks:
            layout |= {"data_page_size": UNLIMITED, "dictionary_pagesize_limit": UNLIMITED}
        return pq.ParquetWriter(self._sink, self._stored, **layout)


def _filter_rows(first: pa.Table, schema: Schema) -> int:
    """Return for how many values the filters have room at first, by the width of the first rows.

    pyarrow holds all filters of a file in memory with the room that they have at first, and stores
    them as small as their values allow. In larger files, row groups have more rows than this, and a
    filter excludes somewhat fewer row groups.
    """
    row_bytes = max(1, first.nbytes // first.num_rows)
    target_bytes = block_bytes(TYPICAL_BYTES, schema.leaf_columns, is_group=True)
    return max(FIRST_ROW_GROUP_ROWS, min(MAX_ROW_GROUP_ROWS, 2 * target_bytes // row_bytes))


# Samples of a shard's keys with exact ranks, taken while its rows are written.
#
# From the samples of its shards alone, a partition can be split near its median, at an existing
# key, with a known number of rows on both sides. They are exact where a sketch would be
# approximate.

MAX_SAMPLES = 256
MAX_SAMPLES_BYTES = 32 * 1024
"""The largest size of the keys of the samples in a footer; fewer samples of long keys are kept."""


class _Sample(NamedTuple):
    row: int
    key: Key
    rank: int
    size_bytes: int


class KeySampler:
    """Samples the key of every n-th row of a sorted stream; n doubles
    whenever there are too many samples.

    The rank of a sample is the number of rows with a lesser key: the number of the first row with
    its key.

    For example, with at most 3 samples and the keys a b b c d e f g: rows 0, 1 and 2 are sampled
    with n = 1, as (a, 0) (b, 1) (b, 1). Row 3 would be a fourth sample, so n becomes 2 and the rows
    0, 2 remain; row 4 is added. At row 6, n becomes 4. The result is (a, 0) (d, 4).
    """

    def __init__(
        self, schema: Schema, most: int = MAX_SAMPLES, most_bytes: int = MAX_SAMPLES_BYTES
    ) -> None:
        """Sample the row keys of `schema`, which are the first columns of the batches.

        At most `most` samples are kept, and their keys take at most `most_bytes`.
        """
        self._schema = schema
        self._most = most
        self._most_bytes = most_bytes
        self._samples: list[_Sample] = []
        self._samples_bytes = 0
        self._step = 1
        self.rows = 0
        self._last: Key | None = None
        self._last_rank = 0

    def see(self, batch: pa.RecordBatch) -> None:
        """Sample the next batch."""
        if not batch.num_rows:
            return
        end = self.rows + batch.num_rows
        while -(-end // self._step) > self._most:  # skip what would be dropped in this batch
            self._double_step()
        first = self.rows + -self.rows % self._step
        sampled = range(first, end, self._step)
        places = [row - self.rows for row in sampled]
        *ranked, (self._last, self._last_rank) = self._ranked(batch, [*places, batch.num_rows - 1])
        for row, (key, rank) in zip(sampled, ranked, strict=True):
            self._samples.append(_Sample(row, key, rank, len(encode_key(key))))
            self._samples_bytes += self._samples[-1].size_bytes
        self._thin()
        self.rows = end

    @property
    def min_key(self) -> Key:
        """The least key so far. Requires: a row was sampled."""
        return self._samples[0].key

    @property
    def max_key(self) -> Key:
        """The greatest key so far. Requires: a row was sampled."""
        assert self._last is not None
        return self._last

    def samples(self) -> tuple[tuple[Key, int], ...]:
        """Return the sampled keys, strictly ascending, each with its rank."""
        ranks = {sample.key: sample.rank for sample in self._samples}
        return tuple(ranks.items())

    def keys(self) -> KeyHistogram:
        """Return the distribution of the keys."""
        return KeyHistogram(self.samples(), self.rows, self._last or ())

    def _ranked(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[tuple[Key, int]]:
        """Return the keys of some rows of `batch`, and their ranks in the stream."""
        fields = self._schema.row_keys
        keys = taken_keys(batch, [*rows, *(max(0, row - 1) for row in rows)], fields)
        return [
            # most keys are unique and need no search
            (key, self.rows + row if row and other != key else self._first_row_of(key, row, batch))
            for row, key, other in zip(rows, keys, keys[len(rows) :], strict=False)
        ]

    def _first_row_of(self, key: Key, row: int, batch: pa.RecordBatch) -> int:
        """Return the number in the stream of the first row with the key of a row of `batch`."""
        below = row_span(batch, key, self._schema)[0] if row else 0
        begun_before = below == 0 and key == self._last
        return self._last_rank if begun_before else self.rows + below

    def _thin(self) -> None:
        while len(self._samples) > 1 and (
            len(self._samples) > self._most or self._samples_bytes > self._most_bytes
        ):
            self._double_step()

    def _double_step(self) -> None:
        self._step *= 2
        self._samples = [s for s in self._samples if s.row % self._step == 0]
        self._samples_bytes = sum(s.size_bytes for s in self._samples)
