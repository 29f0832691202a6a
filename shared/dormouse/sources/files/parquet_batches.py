"""Read an ingested Parquet file in batches that are small in memory.

A row group is looked at when it is its turn, so that the first rows can be read while later ones
still arrive.

Neither the size of a file nor its footer shows how much memory its rows need: a repeated value is
stored once, null elements take no space, and zeros hardly any.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.shards.format.thrift import Fields, has_field
from dormouse.sources.files.local_files import LocalFile
from dormouse.sources.files.parquet_types import old_times, paired

BATCH_ROWS = 16 * 1024
BATCH_BYTES = 4 * 1024 * 1024
REPEATED_BYTES = 64 * 1024 * 1024
"""The largest size of a batch in which every value is the longest repeated one."""
SMALL_DICTIONARY_BYTES, INDEX_BYTES = 64 * 1024, 8
BATCH_ELEMENTS = 1024 * 1024
RUN_BYTES = 8 * 1024 * 1024
"""How many stored bytes of row groups are read as one."""
BUFFER_BYTES = 1024 * 1024
"""How much of a column is read at once: row groups may be large, and the file is local."""
MAX_FOOTER_BYTES = 32 * 1024 * 1024
"""The footer of hundreds of thousands of column chunks. It takes eight times that in memory."""
TAIL_BYTES = 8
"""A file ends in the length of its footer, and its magic number."""
PLAIN_MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
ENCRYPTION_FIELDS: Fields = {8: None, 4: {1: {8: None, 9: None}}}
"""Where a footer that can be read names encryption (parquet.thrift): for the file, its
`encryption_algorithm`; for a column chunk of a row group, `crypto_metadata` or
`encrypted_column_metadata`.
"""
PROBE_ROWS = 64
MAX_ELEMENTS = 100_000_000
"""The most list elements in one row group: one row may have all of them."""
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 512 * 1024 * 1024, 1000
"""A column chunk that unpacks to more than this many bytes, and to more than this many times its
stored size, was made to exhaust memory: one page may hold all of it.
"""


@contextmanager
def open_parquet(
    local: LocalFile,
    read_dictionary: list[str] | None = None,
    metadata: pq.FileMetaData | None = None,
    old_unit: str = "s",
) -> Iterator[pq.ParquetFile]:
    """Open a file to read its batches one after the other; `metadata` is its footer, if known.

    `old_unit` is what times of INT96 are counted in (`parquet_types`).

    Raises:
        RefusedSourceError: it is encrypted, or its footer is too large to be held in memory.
    """
    with local.open() as file:
        if metadata is None:
            _check_footer(file)
        with pq.ParquetFile(
            file if local.arrivals else local.path,  # which Arrow reads without Python
            metadata=metadata,
            read_dictionary=read_dictionary,
            pre_buffer=False,
            buffer_size=BUFFER_BYTES,
            coerce_int96_timestamp_unit=old_unit,
            page_checksum_verification=True,  # Spark writes page checksums
        ) as opened:
            yield opened


def _check_footer(file: BinaryIO) -> None:
    """Check that Arrow can look into a file.

    Asked for a column of a file that is encrypted in part, it ends the process.
    """
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(max(0, size_bytes - TAIL_BYTES))
    tail = file.read(TAIL_BYTES)
    footer_bytes, magic = int.from_bytes(tail[:4], "little"), tail[4:]
    if magic == ENCRYPTED_MAGIC:
        raise _encrypted()
    if magic != PLAIN_MAGIC or footer_bytes > size_bytes - TAIL_BYTES:
        return  # Arrow says what is wrong
    if footer_bytes > MAX_FOOTER_BYTES:
        raise RefusedSourceError(
            f"the footer has {footer_bytes:,} bytes; at most {MAX_FOOTER_BYTES:,} are possible",
            hint="write the file with larger row groups, or fewer columns",
        )
    file.seek(size_bytes - TAIL_BYTES - footer_bytes)
    try:
        if has_field(file.read(footer_bytes), ENCRYPTION_FIELDS):
            raise _encrypted()
    except (IndexError, RecursionError, ValueError) as error:
        raise RefusedSourceError(
            "the Parquet file cannot be read: its footer is damaged"
        ) from error


def _encrypted() -> RefusedSourceError:
    return RefusedSourceError(
        "the Parquet file is encrypted, as a whole or in part (modular encryption)",
        hint="write it without encryption; stored rows are encrypted by the storage they lie in",
    )


def read_batches(
    local: LocalFile, file: pq.ParquetFile, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `file`, which is `local`, opened. Columns of INT96 are `paired`.

    A batch has the least of the lengths allowed by the footer's sizes of row groups, by the size of
    the first rows, and by the longest value that is stored once for many rows.

    Raises:
        RefusedSourceError: a single row may be too large.
    """
    most, old = _most_rows(file), old_times(file.schema_arrow)
    with ExitStack() as opened:
        if old:
            finer = opened.enter_context(open_parquet(local, None, file.metadata, "ns"))
        for groups in _runs(file.metadata):
            repeated = REPEATED_BYTES // max(1, _longest_repeated(local, file.metadata, groups))
            rows = max(1, min(most, repeated))
            # one thread: the consumer of the batches works at the same time
            batches = file.iter_batches(rows, groups, columns, use_threads=False)
            if not old:
                yield from batches
                continue
            times = finer.iter_batches(rows, groups, old, use_threads=False)
            for batch, fine in zip(batches, times, strict=True):
                for name in old:
                    at = batch.schema.get_field_index(name)
                    pair = paired(batch.column(at), fine.column(name))
                    batch = batch.set_column(at, name, pair)
                yield batch


def _most_rows(file: pq.ParquetFile) -> int:
    """Return the largest batch length allowed by the footer, and by the size of the first rows."""
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    groups = [group for group in groups if group.num_rows > 0]
    wanted = [BATCH_ROWS]
    for group in groups:
        wanted += [_checked(group.column(i), group.num_rows) for i in range(group.num_columns)]
    widest = max((group.total_byte_size / group.num_rows for group in groups), default=0.0)
    for probe in file.iter_batches(PROBE_ROWS, use_threads=False):
        widest = max(widest, probe.nbytes / max(1, probe.num_rows))
        break
    wanted.append(int(BATCH_BYTES / max(widest, 1)))
    return min(wanted)


def _runs(metadata: pq.FileMetaData) -> Iterator[list[int]]:
    """Yield the numbers of row groups in order, as many together as have `RUN_BYTES`, at least one:
    each start of a reader takes time.
    """
    run: list[int] = []
    size_bytes = 0
    for number in range(metadata.num_row_groups):
        run.append(number)
        size_bytes += _stored_bytes(metadata.row_group(number))
        if size_bytes >= RUN_BYTES:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def _stored_bytes(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def _checked(column: pq.ColumnChunkMetaData, rows: int) -> int:
    """Return how many rows of a column may be read at once, given its number of elements.

    Raises:
        RefusedSourceError: it has too many elements, or unpacks to too much.
    """
    if column.num_values > rows and column.num_values > MAX_ELEMENTS:
        raise RefusedSourceError(
            f"a row group has {column.num_values:,} elements in one column; "
            f"at most {MAX_ELEMENTS:,} are possible",
            hint="write the file with smaller row groups",
        )
    unpacked, stored = column.total_uncompressed_size, column.total_compressed_size
    if unpacked > MAX_UNPACKED_BYTES and unpacked > MAX_UNPACK_RATIO * stored:
        raise RefusedSourceError(
            f"a column of a row group takes {stored:,} bytes and unpacks to {unpacked:,}",
            hint="write the file with smaller row groups",
        )
    return BATCH_ELEMENTS * rows // max(1, column.num_values)


def _longest_repeated(local: LocalFile, metadata: pq.FileMetaData, groups: list[int]) -> int:
    """Return the length of the longest value in a dictionary of some row groups;
    reading any row reads the dictionary.
    """
    wanted = {}
    for number in groups:
        group = metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        if paths := [column.path_in_schema for column in columns if _may_repeat(column)]:
            wanted[number] = paths
    if not wanted:
        return 0
    longest = 0
    every = sorted({path for paths in wanted.values() for path in paths})
    with open_parquet(local, every, metadata) as file:
        for number, paths in wanted.items():
            for batch in file.iter_batches(1, [number], paths, use_threads=False):
                found = (_dictionaries(column) for column in batch.columns)
                longest = max(longest, *(_length(d) for texts in found for d in texts), 0)
                break
    return longest


def _may_repeat(column: pq.ColumnChunkMetaData) -> bool:
    """Return whether a column has a dictionary whose values may be long and repeated often.

    A large dictionary beside which most values are stored plainly holds almost only distinct
    values: checking it would cost as much as reading the column.
    """
    if column.physical_type != "BYTE_ARRAY" or not column.has_dictionary_page:
        return False
    stored = column.data_page_offset - (column.dictionary_page_offset or 0)
    mostly_in_it = column.total_uncompressed_size <= INDEX_BYTES * column.num_values
    may_be_long = column.total_uncompressed_size > REPEATED_BYTES // BATCH_ROWS
    return may_be_long and (mostly_in_it or stored <= SMALL_DICTIONARY_BYTES)


def _dictionaries(column: Array) -> Iterator[Array]:
    """Yield the dictionaries in a column, at any depth."""
    found: Any = column
    if isinstance(found, pa.DictionaryArray):
        yield found.dictionary
    elif isinstance(found, pa.StructArray):
        for child in found.flatten():
            yield from _dictionaries(child)
    elif isinstance(found, pa.MapArray):
        yield from _dictionaries(found.keys)
        yield from _dictionaries(found.items)
    elif isinstance(found, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        yield from _dictionaries(found.values)


def _length(texts: Array) -> int:
    return pc.max(pc.call_function("binary_length", [texts])).as_py() or 0
