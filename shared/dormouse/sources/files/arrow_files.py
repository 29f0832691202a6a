"""Read ingested Arrow IPC files, and streams in files, as batches of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Schema
from dormouse.sources.cells.casting import check_file_columns
from dormouse.sources.files.arrow_batches import arrow_converter, convert_arrow

FILE_MAGIC, STREAM_MAGIC = b"ARROW1", b"\xff\xff\xff\xff"
_COLUMN = re.compile(r"In column (\d+):")
BATCH_ROWS = 64 * 1024
"""The most rows that are converted at once: a file may be a single batch."""


def read_arrow(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow file; its columns may have narrower types than the table's.

    Raises:
        RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    with opened_arrow(local) as (found, batches):
        check_file_columns(found.names, schema)
        converter = arrow_converter(found, schema, of="the file")
        first = 1
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)

                def place(row: int, first: int = first) -> str:
                    return f"row {first + row}"

                yield convert_arrow(part, schema, place, converter)
                first += part.num_rows


@contextmanager
def opened_arrow(local: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open a file; yield its schema, and its batches, each validated when it is read.

    Raises:
        RefusedSourceError: the file is damaged.
    """
    with local.open("rb") as file:
        is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    try:
        with pa.memory_map(str(local)) as mapped:
            reader = pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)
            with reader:
                yield reader.schema, _batches(reader)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # names are decoded late
        raise RefusedSourceError(f"the Arrow file cannot be read: {error}") from error


def _batches(
    reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    for batch in _read(reader):
        try:
            batch.validate(full=True)  # else a damaged offset would be followed out of the file
        except pa.ArrowInvalid as error:  # which may quote a value
            at = _COLUMN.match(str(error))
            where = f"column {batch.schema.names[int(at[1])]!r} of " if at else ""
            raise RefusedSourceError(
                f"{where}the Arrow file has values that its type does not allow, or is damaged"
            ) from error
        yield batch


def _read(
    reader: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
        return
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return
