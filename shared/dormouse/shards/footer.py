"""The footer of a shard: what Dormouse stores about it beside the rows.

It is written by `writing`. It is read to split partitions, to adopt a shard that another run wrote,
to record in an output where its inputs came from, and to check or rebuild a state.
docs/shard-format.md describes the format.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import becoming, present_fields
from dormouse.errors import CorruptDataError, DamagedShardError, InvariantError, damaged_shard
from dormouse.keys import Key, KeyHistogram, KeyRange, decode_key, encode_key
from dormouse.ports import Cache, Objects, Storage
from dormouse.schema.schema import Field, Schema
from dormouse.shards.crcs import TRAILER_BYTES, Section, chunk_section, decode_entry, index_of
from dormouse.shards.stored_index import (
    MAGIC,
    StoredIndex,
    find_entry,
    read_by_index_object,
    read_end,
)
from dormouse.state.partitions import Shard
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.paths import is_index_object, shard_path

# How large the blocks of a shard are, and what follows for its footer.
#
# Blocks are small, so that a look-up reads little: it finds the key in the index at the end of the
# footer and reads one block, not the shard. But each block takes room in the index, and where it is
# a row group of its own, room in the footer that merges and other readers read whole. So blocks
# grow with the square root of the file's size, and with them both parts of the footer.
#
# For example, a file of three columns and 20 MB has 490 blocks of 36 to 52 KB and an index of 34
# KB; one of 512 MB has 3,800 of up to 270 KB and an index of 260 KB. If each was a row group, the
# footers would have 160 KB and 1.1 MB.

BLOCK_BYTES = 160 * 1024
COLUMN_BYTES = 12 * 1024
"""The compressed size of the first blocks is this for each column, up to `BLOCK_BYTES`: smaller
ones would cost more time to write and merge."""
MANY_COLUMNS = 40
MANY_COLUMN_BYTES = BLOCK_BYTES // MANY_COLUMNS
"""With more columns than these, the first blocks have this of each, 4 KiB: every column chunk takes
some KB of memory where it is written or merged."""
MOST_COLUMNS = 16
"""With more Parquet columns, a row group is one block: a block takes a request for each column."""
LEAST_GROUP_BYTES = 512 * 1024
"""A row group of several blocks rarely takes less in the file."""
CHUNK_FOOTER_BYTES = 99
"""The approximate size in the footer of one column chunk, without the index."""
MOST_BLOCK_ROWS, MOST_SEARCHED_ROWS = 8192, 6144
"""The most rows of a block, however few bytes they take: a look-up decodes the keys of a block, one
by a term index its texts."""
BASE_FOOTER_BYTES = 12 * 1024
"""The approximate size of the rest of a footer, including samples of short keys."""
PAGES_INDEX_BYTES = 12
BLOCK_INDEX_BYTES = 32
"""The approximate sizes in the index of a column of a block, and of a block's bound and rows."""
COLUMN_INDEX_BYTES = 240
BASE_INDEX_BYTES = 1024
"""The approximate sizes of what follows the index in the footer, for each column, and besides."""


def block_bytes(written_bytes: int, columns: int, *, is_group: bool) -> int:
    """Return the compressed size of the next block after `written_bytes` of others, each of which
    `is_group` of its own, or is one of several in a row group.
    """
    growth_bytes = _growth_bytes(columns, is_group=is_group)
    return max(first_bytes(columns), math.isqrt(growth_bytes * written_bytes))


def _growth_bytes(columns: int, *, is_group: bool) -> int:
    """Return with what, times the bytes before it, a block is a square: if g is what describes
    each block of S bytes, blocks of up to √(2gS) and all that describes them take least together.
    """
    in_footer = CHUNK_FOOTER_BYTES * columns if is_group else 0
    return 2 * (PAGES_INDEX_BYTES * columns + BLOCK_INDEX_BYTES) + in_footer


def first_bytes(columns: int) -> int:
    """Return the compressed size of the first blocks."""
    if columns > MANY_COLUMNS:
        return MANY_COLUMN_BYTES * columns
    return min(BLOCK_BYTES, COLUMN_BYTES * columns)


def estimated_footer_bytes(size_bytes: int, columns: int) -> int:
    """Return a length that the footer of a shard of `size_bytes` rarely exceeds."""
    groups = blocks = _estimated_blocks(size_bytes, columns)
    if columns <= MOST_COLUMNS:
        groups = min(blocks, 2 + size_bytes / LEAST_GROUP_BYTES)
    in_blocks = blocks * (columns * PAGES_INDEX_BYTES + BLOCK_INDEX_BYTES)
    return BASE_FOOTER_BYTES + int(groups * columns * CHUNK_FOOTER_BYTES + in_blocks)


def estimated_index_bytes(size_bytes: int, columns: int, rows: int) -> int:
    """Return how far from its end a shard's index rarely begins, by its bytes and rows."""
    blocks = _estimated_blocks(size_bytes, columns)
    if columns <= MOST_COLUMNS:
        blocks = max(blocks, 1.03 * rows / MOST_BLOCK_ROWS + 2)
    in_blocks = blocks * (columns * PAGES_INDEX_BYTES + BLOCK_INDEX_BYTES)
    return BASE_INDEX_BYTES + COLUMN_INDEX_BYTES * columns + int(in_blocks)


def _estimated_blocks(size_bytes: int, columns: int) -> float:
    """Return how many blocks a shard of `size_bytes` has, or some more."""
    density = _growth_bytes(columns, is_group=columns > MOST_COLUMNS)
    grown_from = first_bytes(columns) ** 2 / density
    blocks = min(size_bytes, grown_from) / first_bytes(columns)
    if size_bytes > grown_from:
        blocks += 2 * (math.sqrt(size_bytes) - math.sqrt(grown_from)) / math.sqrt(density)
    return blocks * 1.03 + 2


METADATA_KEY = "dormouse"
VERSION = 3
FOOTER_READ_THREADS = 8
TYPICAL_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class ShardFooter:
    """What a shard says about itself.

    `samples` are row keys in strictly ascending order, each with its rank: the number of rows with
    a lesser key. `tags` are those of `state.Shard`.
    """

    table_id: str
    shard_id: str
    schema: Schema
    provenance: Provenance
    rows: int
    min_key: Key
    max_key: Key
    samples: tuple[tuple[Key, int], ...]
    tags: str = ""

    def shard(self, size_bytes: int) -> Shard:
        """Return the shard, of so many bytes, as a state has it."""
        return Shard.of(self.shard_id, self.rows, size_bytes, self.min_key, self.max_key, self.tags)

    @property
    def keys(self) -> KeyHistogram:
        """The distribution of its row keys."""
        return KeyHistogram(self.samples, self.rows, self.max_key)


_Superseded: TypeAlias = str | tuple[str, str, str | None]
"""A shard, with the range of its rows that are meant, unless it is that of the provenance."""


class StoredProvenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the JSON forms of footers and run markers say of where rows come from; keys are encoded
    by `encode_key`, in hexadecimal digits.
    """

    range_min: str
    range_max: str | None
    job: str
    written_ms: int
    generation: int
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    superseded: tuple[_Superseded, ...]
    completed: tuple[str, ...]

    @staticmethod
    def parts(provenance: Provenance) -> dict[str, Any]:
        """Return its fields."""
        lineage, (low, high) = provenance.lineage, _hex_range(provenance.range)
        superseded = (
            shard if span.covers(provenance.range) else (shard, *_hex_range(span))
            for shard, span in lineage.superseded
        )
        return {
            "range_min": low,
            "range_max": high,
            "job": provenance.job,
            "written_ms": provenance.written_ms,
            "generation": provenance.generation,
            "sources": lineage.sources,
            "inputs": lineage.inputs,
            "superseded": tuple(superseded),
            "completed": lineage.completed,
        }

    def provenance(self, number: int, *, last: bool) -> Provenance:
        """Return it decoded. Raises ValueError: a bound is not the stored form of a key."""
        span = _range_of_hex(self.range_min, self.range_max)
        superseded = tuple(
            (each, span) if isinstance(each, str) else (each[0], _range_of_hex(*each[1:]))
            for each in self.superseded
        )
        lineage = Lineage(self.sources, self.inputs, superseded, self.completed)
        return Provenance(span, self.job, self.written_ms, number, last, lineage, self.generation)


class _Stored(StoredProvenance, frozen=True, forbid_unknown_fields=True):
    v: int
    table_id: str
    shard_id: str
    schema: msgspec.Raw
    number: Annotated[int, msgspec.Meta(ge=0)]
    last: bool
    rows: Annotated[int, msgspec.Meta(ge=1)]
    min_key: str
    max_key: str
    samples: tuple[tuple[str, int], ...]
    tags: str = ""


@lru_cache(maxsize=64)
def _encoded(schema: Schema) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(schema.to_json()))


@lru_cache(maxsize=64)
def _decoded_schema(stored: bytes) -> Schema:
    """Return a schema, which takes most of the time in which a footer is decoded."""
    return Schema.from_json(decode_json(stored, object))


def encode_footer(footer: ShardFooter) -> bytes:
    """Return the value of the Parquet metadata key ``dormouse``."""
    provenance = footer.provenance
    return msgspec.json.encode(
        _Stored(
            **StoredProvenance.parts(provenance),
            v=VERSION,
            table_id=footer.table_id,
            shard_id=footer.shard_id,
            schema=_encoded(footer.schema),
            number=provenance.number,
            last=provenance.last,
            rows=footer.rows,
            min_key=key_to_hex(footer.min_key),
            max_key=key_to_hex(footer.max_key),
            samples=tuple((key_to_hex(key), rank) for key, rank in footer.samples),
            tags=footer.tags,
        )
    )


def decode_footer(stored: bytes, path: str) -> ShardFooter:
    """Decode what `encode_footer` returned; `path` names the shard. Raises CorruptDataError."""
    with raise_corrupt(f"the footer of shard {path} is damaged"):
        body = decode_json(stored, _Stored)
        if body.v != VERSION:
            raise CorruptDataError(f"it is of the unknown version {body.v}")
        return ShardFooter(
            table_id=body.table_id,
            shard_id=body.shard_id,
            schema=_decoded_schema(bytes(body.schema)),
            provenance=body.provenance(body.number, last=body.last),
            rows=body.rows,
            min_key=key_from_hex(body.min_key),
            max_key=key_from_hex(body.max_key),
            samples=tuple((key_from_hex(key), rank) for key, rank in body.samples),
            tags=body.tags,
        )


def key_to_hex(key: Key) -> str:
    """Return the stored form of a key, in hexadecimal digits."""
    return encode_key(key).hex()


def key_from_hex(stored: str) -> Key:
    """Return the key whose stored form has these hexadecimal digits. Raises ValueError."""
    return decode_key(bytes.fromhex(stored))


def _hex_range(span: KeyRange) -> tuple[str, str | None]:
    return span.low.hex(), None if span.high is None else span.high.hex()


def _range_of_hex(low: str, high: str | None) -> KeyRange:
    return KeyRange(key_from_hex(low), None if high is None else key_from_hex(high))


def read_footer(storage: Storage, path: str, size_bytes: int) -> ShardFooter:
    """Read the footer of a shard of known size, with one or two ranged reads. Parquet's description
    of its column chunks, which may take much memory, is not decoded.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or was not written by Dormouse.
    """
    return footer_of(verified_footer(storage, path, size_bytes, TYPICAL_COLUMNS), path)


def footer_of(footer: bytes, path: str) -> ShardFooter:
    """Return what the shard at `path` says about itself in its stored Parquet footer.
    Raises CorruptDataError: it was not written by Dormouse.
    """
    with raise_damaged(path):
        stored = find_entry(footer, METADATA_KEY)
        if stored is None:
            raise CorruptDataError(f"{path} is a Parquet file, but not one that Dormouse wrote")
        decoded, rows = decode_footer(stored, path), sum(_index_in(footer, path).rows)
        if decoded.rows != rows:
            raise CorruptDataError(f"{path} has {rows} rows, but its footer says {decoded.rows}")
        return decoded


def verified_footer(objects: Objects, path: str, size_bytes: int, columns: int) -> bytes:
    """Read the Parquet footer of a shard of known size and what follows it, with one or two ranged
    reads. `columns` is the expected number of Parquet columns.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or its checksum is not that of its bytes.
    """
    footer = _footer(objects, path, size_bytes, columns)
    try:
        checksums.verify(footer)
    except ValueError as error:
        raise _unreadable(path, error) from error
    return footer


def read_behind_rows(objects: Objects, table_id: str, shard: Shard) -> bytes:
    """Return all bytes that are behind the rows of a shard: what its index object has.
    Raises NotFoundError: the shard is gone; CorruptDataError: it is damaged.
    """
    path = shard_path(table_id, shard.id)
    footer = verified_footer(objects, path, shard.size_bytes, TYPICAL_COLUMNS)
    with raise_damaged(path), objects.open(path, shard.size_bytes) as file:
        file.seek(_index_in(footer, path).starts[-1])
        return file.read()


def check_names(path: str, names: tuple[str, str], expected: tuple[str, str]) -> None:
    """Check that a shard says it is the shard `expected` of a table. Raises DamagedShardError."""
    if names != expected:
        raise DamagedShardError(
            f"{path} is shard {names[1]} of table {names[0]}",
            path=path,
            hint="Dormouse never overwrites an object, so it was replaced by hand",
        )


@contextmanager
def raise_damaged(path: str) -> Iterator[None]:
    """Raise a CorruptDataError of the block as a DamagedShardError that names the shard `path`."""
    try:
        yield
    except DamagedShardError:
        raise
    except CorruptDataError as error:
        raise DamagedShardError(str(error), path=path, hint=error.hint) from error


def read_metadata(
    objects: Objects,
    path: str,
    size_bytes: int,
    columns: int = TYPICAL_COLUMNS,
    *,
    is_shard: bool = True,
) -> pq.FileMetaData:
    """Read the Parquet metadata of a shard, or of another file, of known
    size, with one or two ranged reads.

    The footer of a shard has a checksum, which must match. `columns` is the expected number of
    Parquet columns: a second read is needed if the footer is longer than that of such a shard.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or not a Parquet file.
    """
    read = verified_footer if is_shard else _footer
    footer = read(objects, path, size_bytes, columns)
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> DamagedShardError:
    return DamagedShardError(
        f"the Parquet footer of {path} is damaged, or not written by Dormouse: {error}", path=path
    )


def _footer(objects: Objects, path: str, size_bytes: int, columns: int) -> bytes:
    """Read the footer of a file and its trailer, with one or two ranged reads."""
    tail = _tail(objects, path, size_bytes, estimated_footer_bytes(size_bytes, columns))
    footer_bytes = _footer_bytes(tail)
    if footer_bytes > len(tail):
        tail = _tail(objects, path, size_bytes, footer_bytes)
    return tail[-footer_bytes:]


def read_index_entry(objects: Objects, path: str, shard: Shard, columns: int) -> bytes | None:
    """Read what the footer of a shard has as its index, with one or two ranged reads; return None
    if it has none. `columns` is the expected number of Parquet columns.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or not a Parquet file.
    """
    size_bytes = shard.size_bytes
    estimated_bytes = estimated_index_bytes(size_bytes, columns, shard.rows)
    tail = _tail(objects, path, size_bytes, estimated_bytes)
    with raise_damaged(path):
        entry = find_entry(tail)
        footer_bytes = _footer_bytes(tail)
        if entry is None and footer_bytes > len(tail):
            entry = find_entry(_tail(objects, path, size_bytes, footer_bytes))
        return entry


def _footer_bytes(tail: bytes) -> int:
    """Return the size of a Parquet footer with the trailer that ends `tail`."""
    (length,) = struct.unpack("<I", tail[-TRAILER_BYTES:-4])
    return int(length) + TRAILER_BYTES


def _tail(objects: Objects, path: str, size_bytes: int, length: int) -> bytes:
    """Return the last `length` bytes of a file, or all of it; of the index object of a shard what
    it has of them.
    """
    length = min(size_bytes, length)
    with raise_damaged(path):
        if is_index_object(path):
            tail = read_end(objects, path, length)
            length = len(tail)
        else:
            with objects.open(path, size_bytes) as file:
                file.seek(size_bytes - length)
                tail = file.read(length)
        if len(tail) != length or tail[-4:] != MAGIC or length < TRAILER_BYTES:
            raise CorruptDataError(f"{path} is not a Parquet file of {size_bytes} bytes")
    return tail


# The index of a shard in memory: read once, and cached.
#
# A look-up reads no more of the footer than the index in it (`stored_index`), and a merge decodes
# no more. What asks statistics or Bloom filters needs the whole Parquet footer, which takes about
# eight times its stored size in memory.

_MEMORY_PER_FOOTER_BYTE = 8
"""Measured: 413 KB for a footer of 57 KB."""
ByteSpan = tuple[int, int]
"""The first byte of some bytes of an object, and the byte after the last."""
VALUE_BYTES = 4
"""What a value takes beside its bytes: the end of a text, or whether it is null."""


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The index of a shard; and its whole Parquet footer if that was read, too."""

    stored: StoredIndex
    footer: pq.FileMetaData | None = None

    def stored_fields(self, fields: Iterable[Field]) -> dict[str, Field]:
        """Return how those of `fields` that the shard has are stored there, by the table's names.
        Raises UnavailableError: the shard lacks a field that cannot be null, or has it in a type of
        which values do not become those of its own.
        """
        present = present_fields(self.stored.columns, fields)
        return {
            each.name: becoming(self.stored.columns[each.id][0].field, each) for each in present
        }

    @property
    def metadata(self) -> pq.FileMetaData:
        """The Parquet footer. Requires: it was asked for when the index was read."""
        if self.footer is None:
            raise InvariantError(f"the footer of shard {self.stored.shard_id} was not read")
        return self.footer

    @property
    def blocks(self) -> range:
        """All blocks."""
        return range(len(self.stored.rows))

    def row_groups_of(self, blocks: Iterable[int]) -> list[int]:
        """Return the row groups of some blocks, which ascend."""
        return list(dict.fromkeys(map(self.stored.layout.row_group_of, blocks)))

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        footer_bytes = 0 if self.footer is None else self.footer.serialized_size
        return self.stored.size_bytes + _MEMORY_PER_FOOTER_BYTE * footer_bytes

    def rows(self, block: int) -> int:
        """Return the number of rows of a block."""
        return self.stored.rows[block]

    def start(self, row_group: int) -> int:
        """Return the offset of the first byte of a row group; after the last, that after it."""
        return self.stored.starts[self.stored.layout.chunk(row_group, 0)]

    def dictionary_span(self, row_group: int, leaf: int) -> ByteSpan:
        """Return where the dictionary of a column chunk is; it is empty if there is none."""
        first, starts = self.stored.layout.chunk(row_group, leaf), self.stored.starts
        return starts[first], starts[first + self.stored.layout.has_dictionary(leaf)]

    def pages_span(self, block: int, leaf: int) -> ByteSpan:
        """Return where the pages of a Parquet column in a block are."""
        layout, starts = self.stored.layout, self.stored.starts
        at = layout.pages(layout.row_group_of(block), block, leaf)
        return starts[at], starts[at + 1]

    def chunk_span(self, row_group: int, leaf: int) -> ByteSpan:
        """Return where a column chunk is: its dictionary and the pages of all its blocks."""
        last = self.stored.layout.blocks_of(row_group)[-1]
        return self.dictionary_span(row_group, leaf)[0], self.pages_span(last, leaf)[1]

    def leaves(self, fields: Iterable[Field]) -> Iterator[tuple[Field, int]]:
        """Yield the Parquet columns of those of some fields that the shard has, with the fields."""
        for field in present_fields(self.stored.columns, fields):
            column, first = self.stored.columns[field.id]
            for leaf in range(first, first + column.leaves):
                yield field, leaf

    def sections(self, blocks: Iterable[int], fields: Iterable[Field]) -> Iterator[Section]:
        """Yield the pages of some fields in some blocks, which ascend, and their dictionaries: what
        follows each other in a column chunk as one.
        """
        leaves, layout = list(self.leaves(fields)), self.stored.layout
        for group, numbers in groupby(blocks, layout.row_group_of):
            places = [number - layout.firsts[group] for number in numbers]
            runs = [*_runs(places)], [*_runs([-1, *places])]  # -1 is the dictionary
            for field, leaf in leaves:
                has_dictionary = layout.has_dictionary(leaf)
                first = layout.chunk(group, leaf) + has_dictionary
                for low, after in runs[has_dictionary]:
                    yield chunk_section(self.stored, first + low, first + after, group, field.name)

    def column_bytes(self, block: int, fields: Iterable[Field]) -> int:
        """Return the approximate size in memory of some columns of a block."""
        ends_bytes = VALUE_BYTES * self.rows(block)
        return sum(
            self.stored.memory_bytes(block, leaf) + ends_bytes for _, leaf in self.leaves(fields)
        )


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each run of numbers that follow each other begins, and the number after it."""
    low = numbers[0]
    if numbers[-1] - low + 1 == len(numbers):  # mostly
        yield low, low + len(numbers)
        return
    for number, following in pairwise([*numbers, low]):
        if following != number + 1:
            yield low, number + 1
            low = following


def cached_index(
    table_id: str, shard_id: str, cache: Cache, *, footer: bool = False
) -> ShardIndex | None:
    """Return the index of a shard if it is in the cache, with the `footer` if that is needed."""
    cached = cache.get(shard_path(table_id, shard_id), ShardIndex)
    return None if cached is None or (footer and cached.footer is None) else cached


def read_index(
    objects: Objects,
    table_id: str,
    shard: Shard,
    schema: Schema,
    cache: Cache,
    *,
    footer: bool = False,
) -> ShardIndex:
    """Return the index of a shard by one or two reads at its end; the cache gets it.

    With `footer`, all of the Parquet footer is read and verified.

    Raises:
        NotFoundError: the shard is gone.
        CorruptDataError: it is damaged, or is not the shard that the state names.
    """

    def read(path: str) -> ShardIndex:
        metadata, columns = None, schema.leaf_columns
        if footer:
            metadata = read_metadata(objects, path, shard.size_bytes, columns)
            stored = index_of(metadata, path)
        else:
            stored = decode_entry(read_index_entry(objects, path, shard, columns), path)
        check_index(stored, path, table_id, shard)
        return ShardIndex(stored, metadata)

    index = read_by_index_object(read, table_id, shard.id)
    cache.put(shard_path(table_id, shard.id), index, index.size_bytes)
    return index


def read_own_footer(
    objects: Objects, table_id: str, shard: Shard, schema: Schema, cache: Cache
) -> ShardFooter:
    """Return what a shard says about itself. Its index, which the read brings, is cached. Raises as
    `read_index`.
    """

    def read(path: str) -> tuple[ShardIndex, ShardFooter]:
        stored = verified_footer(objects, path, shard.size_bytes, schema.leaf_columns)
        index = ShardIndex(_index_in(stored, path))
        check_index(index.stored, path, table_id, shard)
        return index, footer_of(stored, path)

    index, footer = read_by_index_object(read, table_id, shard.id)
    cache.put(shard_path(table_id, shard.id), index, index.size_bytes)
    return footer


def _index_in(footer: bytes, path: str) -> StoredIndex:
    with raise_damaged(path):
        return decode_entry(find_entry(footer), path)


def check_index(stored: StoredIndex, path: str, table_id: str, shard: Shard) -> None:
    """Check that an index is that of the shard that the state names. Raises DamagedShardError."""
    check_names(path, (stored.table_id, stored.shard_id), (table_id, shard.id))
    rows = sum(stored.rows)
    if rows != shard.rows:
        raise DamagedShardError(
            f"{path} has {rows} rows, but the state says {shard.rows}", path=path
        )
    end = stored.starts[-1] + stored.terms_bytes
    if end > shard.size_bytes:
        problem = f"by its index, its rows end at byte {end:,} of {shard.size_bytes:,}"
        raise damaged_shard(path, problem)
