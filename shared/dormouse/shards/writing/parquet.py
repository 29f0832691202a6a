"""Write one local Parquet file, row group by row group, in the layout of a shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolution import stored_schema
from dormouse.arrow.order import sort_keys
from dormouse.arrow.types import arrow_schema
from dormouse.keys.ranges import Key
from dormouse.schema.schema import DecimalType, FieldType, Primitive, Schema
from dormouse.schema.types import TIMESTAMPS, leaf_columns
from dormouse.shards.format import crcs
from dormouse.shards.format.bloom import FALSE_POSITIVES
from dormouse.shards.format.bounds import KeyBounds
from dormouse.shards.format.row_groups import row_group_bytes
from dormouse.shards.format.stored_index import INDEX_KEY, Facts, IndexedColumn, encode_index
from dormouse.shards.writing.compression import (
    column_codecs,
    column_paths,
    distinct_bytes,
    repetitive_columns,
    text_bytes,
)
from dormouse.shards.writing.floats import NaNSearch, drop_bounds
from dormouse.stored import checksums

FIRST_ROW_GROUP_ROWS = 2048
"""The rows of the first row group, whose size shows how wide the rows are."""
CHECKSUM_KEY = "dormouse.checksum"
MAX_ROW_GROUP_ROWS = 128 * 1024
MAX_ROW_GROUP_BYTES = 4 * 1024 * 1024
"""The largest uncompressed size of a row group in memory."""
MOST_CHUNKS = 20_000
"""A shard ends after the row group with which it has as many column chunks: each takes about 3 KB
of memory while it is written, and 1 to 2 KB where its footer is read.
"""
FEW_COLUMNS = 24
"""With fewer columns, a batch adds only a small part of the most chunks."""
PAGE_ROWS = 4096
MOST_DICTIONARY = 8
"""Dictionaries are taken for all but this fraction (1/8) of a file at most, when it is estimated
how many rows fill a row group: each has its dictionaries however few rows it has.
"""
MOST_GROWTH = 8
MOST_HEADER_BYTES = 64 * 1024
"""Rows take no more in the file than this many times their size in memory, and this much besides:
a key may be stored in a page, twice in the page's header and twice in the footer.
"""
TYPICAL_BYTES = 64 * 1024 * 1024
"""The size of a shard whose row groups the Bloom filters are made for."""

_ENCODINGS: dict[FieldType, str] = {
    Primitive.STRING: "DELTA_LENGTH_BYTE_ARRAY",
    Primitive.BYTES: "DELTA_LENGTH_BYTE_ARRAY",
    Primitive.INT: "DELTA_BINARY_PACKED",
    Primitive.LONG: "DELTA_BINARY_PACKED",
    Primitive.DATE: "DELTA_BINARY_PACKED",
    Primitive.TIME: "DELTA_BINARY_PACKED",
    **dict.fromkeys(TIMESTAMPS, "DELTA_BINARY_PACKED"),
    Primitive.FLOAT: "BYTE_STREAM_SPLIT",
    Primitive.DOUBLE: "BYTE_STREAM_SPLIT",
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
        plain: bool = False,
    ) -> None:
        """Write rows of `schema`, sorted by its keys, to `local`; `bloom_columns` get filters, and
        `plain` values are as every reader knows them, in dictionaries or as they are.
        """
        self._local = local
        self._schema = schema
        self._stored = stored_schema(schema)
        # what is said of a path holds for all columns that have it
        counted = Counter(column_paths(self._stored))
        self._shared = {path for path, columns in counted.items() if columns > 1}
        self._bloom_columns = [name for name in bloom_columns if name not in self._shared]
        self._encodings = {} if plain else _ENCODINGS
        self._arrow = arrow_schema(schema)
        self._columns = schema.leaf_columns
        leaves = accumulate((leaf_columns(f.type) for f in schema.fields), initial=0)
        self._places = dict(zip((f.name for f in schema.fields), leaves, strict=False))
        self._floats = NaNSearch(schema)
        self._sink = pa.OSFile(str(local), "wb")
        self._writer: pq.ParquetWriter | None = None
        self._described: list[pq.FileMetaData] = []
        self._written_rows = self._written_groups = 0
        self._repetitive: list[str] = []
        self._bounded: list[str] = []
        self._dictionary_bytes = 0
        self._decoded: dict[int, list[int]] = {}
        self._groups: list[tuple[int, Key, Key]] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._known_bytes: int | None = 0

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
        return len(self._groups) * self._columns

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

    def close(self, metadata: dict[str, str], table_id: str, shard_id: str) -> None:
        """Write the pending rows and the Parquet footer with the given key-value metadata, and with
        the index of the shard that the file is.

        Requires: at least one row was written.
        """
        if self._pending_rows:
            rest = pa.Table.from_batches(self._pending, self._arrow)
            self._write_group(rest)
            self._note_groups(rest, [rest.num_rows])
        assert self._writer is not None
        blank = encode_index(
            table_id,
            shard_id,
            [IndexedColumn(f.id, f.name, leaf_columns(f.type)) for f in self._schema.fields],
            [rows for rows, _, _ in self._groups],
            Facts.blank(self._columns, len(self._groups), has_filters=bool(self._bloom_columns)),
            KeyBounds.of([(first, last) for _, first, last in self._groups]),
        )
        self._writer.add_key_value_metadata(
            {
                **metadata,
                INDEX_KEY: blank,
                CHECKSUM_KEY: checksums.BLANK,
            }
        )
        self._writer.close()
        self._writer = None  # it holds what describes all column chunks
        self._sink.close()
        if unbounded := self._leaves_with_nan():
            drop_bounds(self._local, unbounded)
        crcs.write_facts(self._local, self._described.pop(), blank, self._decoded)

    def discard(self) -> None:
        """Remove the local file, finished or not."""
        if self._writer is not None:
            self._writer.close()
        self._sink.close()
        self._local.unlink(missing_ok=True)

    def _leaves_with_nan(self) -> list[int]:
        """Return the places of the floats, also of nested ones, that have statistics by their path
        and are not known to be without NaN.
        """
        leaves = self._described[-1].schema
        known = {self._places[name] for name in self._floats.without}
        return [
            place
            for place in range(self._columns)
            if leaves.column(place).physical_type in ("FLOAT", "DOUBLE")
            and leaves.column(place).path in self._bounded
            and place not in known
        ]

    def _group_rows(self) -> int:
        """Return the number of rows of the pending row group.

        It does not depend on how rows are divided into batches, unless they are very wide: so two
        runs that write the same rows write identical files.
        """
        if not self._written_rows:
            rows = FIRST_ROW_GROUP_ROWS
        else:
            size_bytes = self.size_bytes
            wanted_bytes = row_group_bytes(size_bytes, self._columns)
            values_bytes = size_bytes - self._written_groups * self._dictionary_bytes
            values_bytes = max(values_bytes, size_bytes // MOST_DICTIONARY)
            rows = min(MAX_ROW_GROUP_ROWS, wanted_bytes * self._written_rows // values_bytes)
        most_bytes = MAX_ROW_GROUP_BYTES * self._pending_rows
        if self._pending_rows and most_bytes < rows * self._buffers_bytes():
            rows = min(rows, most_bytes // max(1, self._pending_bytes))
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
        written = []
        while self._pending_rows >= (rows := self._group_rows()):
            self._write_group(rest.slice(0, rows))
            written.append(rows)
            rest = rest.slice(rows)
            self._pending, self._pending_rows = rest.to_batches(), rest.num_rows
            self._known_bytes = None
        self._note_groups(pending, written)

    def _write_group(self, group: pa.Table) -> None:
        if self._writer is None:
            self._repetitive = repetitive_columns(group)
            self._writer = self._open(group)
            self._dictionary_bytes = sum(distinct_bytes(group[name]) for name in self._repetitive)
        for name in self._repetitive:
            self._decoded.setdefault(self._places[name], []).append(text_bytes(group[name]))
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._written_rows += group.num_rows
        self._written_groups += 1

    def _note_groups(self, rows: pa.Table, sizes: Sequence[int]) -> None:
        """Note the sizes of row groups that the first of `rows` were written to, and the first and
        the last key of each.
        """
        starts = accumulate(sizes, initial=0)
        ends = [edge for low, high in pairwise(starts) for edge in (low, high - 1)]
        keys: list[Key] = []
        at = 0
        for batch in rows.to_batches():  # Arrow would join them before it takes rows of several
            here = [edge - at for edge in ends if at <= edge < at + batch.num_rows]
            keys += sort_keys(batch, here, self._schema)
            at += batch.num_rows
        self._groups.extend(zip(sizes, keys[::2], keys[1::2], strict=True))

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        repetitive = self._repetitive
        encodings = {
            f.name: self._encodings[f.type]
            for f in self._schema.fields
            if f.type in self._encodings and f.name not in {*repetitive, *self._shared}
        }
        self._bounded = [
            f.name
            for f in self._schema.fields
            if f in self._schema.keys or f.name in repetitive or _is_ordered(f.type)
        ]
        # a dict, because the type stubs lack some of the arguments
        layout: dict[str, Any] = {
            "use_dictionary": repetitive,
            "column_encoding": encodings,
            "compression": column_codecs(first, self._schema, self._stored, encodings),
            "write_statistics": self._bounded,
            "write_page_index": True,
            "write_page_checksum": True,
            "max_rows_per_page": PAGE_ROWS,
            "bloom_filter_options": {
                name: {"ndv": _filter_rows(first, self._schema), "fpp": FALSE_POSITIVES}
                for name in self._bloom_columns
            },
            "sorting_columns": [pq.SortingColumn(i) for i in range(len(self._schema.keys))],
            "metadata_collector": self._described,
        }
        return pq.ParquetWriter(self._sink, self._stored, **layout)


def _filter_rows(first: pa.Table, schema: Schema) -> int:
    """Return for how many values the filters have room at first, by the width of the first rows.

    pyarrow holds all filters of a file in memory with the room that they have at first, and stores
    them as small as their values allow. In larger files, row groups have more rows than this, and a
    filter excludes somewhat fewer row groups.
    """
    row_bytes = max(1, first.nbytes // first.num_rows)
    wanted_bytes = row_group_bytes(TYPICAL_BYTES, schema.leaf_columns)
    return max(FIRST_ROW_GROUP_ROWS, min(MAX_ROW_GROUP_ROWS, 2 * wanted_bytes // row_bytes))


def _is_ordered(kind: FieldType) -> bool:
    """Return whether statistics of a value column help to skip row
    groups; those of free text do not.
    """
    if isinstance(kind, Primitive):
        return kind not in (Primitive.STRING, Primitive.BYTES, Primitive.UUID)
    return isinstance(kind, DecimalType)
