"""Files of a result as batches: Arrow streams while they arrive, Parquet by row groups."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import conform
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.ports.services import StreamedObjects
from dormouse.results.formats import ResultFormat

BATCH_ROWS = 64 * 1024
READABLE = (ResultFormat.arrow, ResultFormat.parquet)
"""The formats that are read back: those that have all types."""


def read_schema(stored: str, query_id: str) -> pa.Schema:
    """Return the columns of a result as the manifest of its query has them.

    Raises:
        CorruptDataError: they are damaged.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored, validate=True)))
    except (ValueError, pa.ArrowException, OSError) as error:
        raise CorruptDataError(
            f"the manifest of query {query_id!r} has no schema", hint="ask again"
        ) from error


def read_rows(
    objects: StreamedObjects,
    form: ResultFormat,
    schema: pa.Schema,
    path: str,
    size_bytes: int,
    rows: int,
    first: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file that has these columns, and so many bytes and rows, from row
    `first` on: 0 is the first one.

    Raises:
        InvalidRequestError: the format has not all types, so rows cannot be read back.
        NotFoundError: the file was deleted.
        CorruptDataError: it is damaged, or has other columns or rows.
    """
    if form not in READABLE:
        raise InvalidRequestError(
            f"a result in {form.value} is not read back: its types are those of text",
            hint=f"ask for {' or '.join(READABLE)}, or read the files themselves",
        )
    found = 0
    try:
        for batch, before in _batches(objects, form, path, size_bytes, first):
            batch.validate(full=True)
            if batch.schema.names != schema.names:  # the footer of Parquet has no checksum
                raise CorruptDataError(
                    f"{path} has other columns than its manifest says", hint="ask again"
                )
            found = before + batch.num_rows
            if found > first:
                yield conform(batch.slice(max(0, first - before)), schema)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # not of what was read, but of reading it
        raise CorruptDataError(f"{path} is damaged: {error}", hint="ask again") from error
    if found != rows:  # a stream of Arrow that is cut off between two batches ends like a whole one
        raise CorruptDataError(f"{path} has {found:,} rows, not {rows:,}", hint="ask again")


def _batches(
    objects: StreamedObjects, form: ResultFormat, path: str, size_bytes: int, first: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches and how many rows are before each; row groups before `first` are not read."""
    before = 0
    if form is ResultFormat.arrow:
        arriving = io.BufferedReader(_Arriving(objects.stream(path, size_bytes, 0, size_bytes)))
        with pa.ipc.open_stream(arriving) as reader:
            for batch in reader:
                yield batch, before
                before += batch.num_rows
        return
    with objects.open(path, size_bytes) as file:
        parquet = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
        for group in range(parquet.num_row_groups):  # each is fetched by itself
            group_rows = parquet.metadata.row_group(group).num_rows
            if before + group_rows <= first:
                before += group_rows
                continue
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group]):
                yield batch, before
                before += batch.num_rows


class _Arriving(io.RawIOBase):
    """Bytes that arrive in pieces, as a file that is read from its beginning."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        """Fill the buffer with bytes that are there, or the next to come; return how many."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        into = cast(memoryview, buffer)
        taken = min(len(into), len(self._left))
        into[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken
