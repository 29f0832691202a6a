"""Write rows one by one: `TableHandle.writer` cuts them into files, and drops each when it is full.

Each file is ingested exactly once, as a whole. Files that were dropped stay if a later row fails,
so a writer that is repeated after an error needs an idempotency key, and the same rows in the same
order: then its files have the same names, and those that were dropped are not dropped again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.client.ingesting.dropping import Ingested, drop_files, ingest_key
from dormouse.client.ingesting.frames import idempotent_key
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.model.sources import Source
from dormouse.sources.cells.python_cells import Row, check_row_names, rows_to_batch
from dormouse.sources.frames import Frame, how_to_frame, is_frame, read_frame
from dormouse.sources.key_sizes import with_fitting_keys

BATCH_ROWS = 1024
"""How many rows are converted at once."""


class TableWriter:
    """Collects rows, and drops a file of them whenever there are enough; use it with `with`.

    If the block ends with an exception, the rows since the last file are dropped.
    """

    def __init__(
        self,
        handle: TableHandle,
        *,
        file_bytes: int,
        idempotency_key: str | None = None,
    ) -> None:
        """Begin with no rows; each file has about `file_bytes` of them."""
        if idempotency_key is not None:
            idempotent_key(handle.table, idempotency_key)
        self._handle, self._schema = handle, handle.current().schema
        self._file_bytes, self._idempotency_key = file_bytes, idempotency_key
        self._rows: list[Row] = []
        self._written_rows = self._pending_bytes = 0
        self._folder = tempfile.TemporaryDirectory(dir=handle.services.scratch)
        self._local = Path(self._folder.name) / "rows.parquet"
        self._parquet: pq.ParquetWriter | None = None
        self._sources: list[Source] = []
        self._known: set[str] = set()
        self._is_open = True

    @property
    def ingested(self) -> Ingested:
        """The files that were dropped so far; its `wait` returns when they are rows."""
        return Ingested(self._handle, tuple(self._sources), frozenset(self._known))

    def write(self, rows: Row | Frame) -> None:
        """Write one row, a mapping of columns to values, or all rows of a frame.

        Raises:
            RefusedSourceError: a column is unknown or missing, or a value does not fit it. Of a
                refused frame no row is written. A row's values are checked with those of the next
                rows; the message has its number, and the writer is closed without them.
            InvalidRequestError: the writer is closed, these are no rows, or a stream that was read
                before.
        """
        if not self._is_open:
            raise InvalidRequestError("the writer is closed", hint="open another one")
        if isinstance(rows, Mapping):
            check_row_names(rows, self._schema)
            self._rows.append(rows)
            if len(self._rows) >= BATCH_ROWS:
                self._convert()
        elif is_frame(rows):
            self._convert()
            self._add_whole(read_frame(rows, self._schema))
        else:
            raise InvalidRequestError(
                f"a {type(rows).__name__} is no row",
                hint=how_to_frame(rows) or "write a dict of column names and values, or a frame",
            )

    def close(self) -> Ingested:
        """Drop the last file, and return all of them; in a folder, once they are rows.

        Raises:
            RefusedSourceError: a value does not fit its column.
        """
        try:
            if self._is_open:
                self._convert()
                self._drop()
        finally:
            self.discard()
        if self._handle.polling.works_here:
            self.ingested.wait(timeout_seconds=inf)
        return self.ingested

    def discard(self) -> None:
        """Close the writer, and forget the rows since the last file."""
        self._is_open = False
        self._rows.clear()
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None
        self._folder.cleanup()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Drop the last file; after an exception, forget its rows instead."""
        if error is None:
            self.close()
        else:
            self.discard()

    def _convert(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        try:
            batch = rows_to_batch(rows, self._schema, self._written_rows)
            self._add(*with_fitting_keys([batch], self._schema))
        except RefusedSourceError:
            self.discard()  # the rows around the refused one are in no file, nor could be later
            raise

    def _add_whole(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Add batches once all are known to fit: a single one at once, others by way of a file."""
        first, second = next(batches, None), next(batches, None)
        if first is None:
            return
        if second is None:
            self._add(first)
            return
        local = str(Path(self._folder.name) / "frame.arrow")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(local, first.schema, options=options) as spool:
            for batch in chain((first, second), batches):
                spool.write_batch(batch)
        with pa.ipc.open_file(local) as spooled:
            for at in range(spooled.num_record_batches):
                self._add(spooled.get_batch(at))
        Path(local).unlink()

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._local, arrow_schema(self._schema), compression="zstd"
            )
        self._parquet.write_batch(batch)
        self._written_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._file_bytes:
            self._drop()

    def _drop(self) -> None:
        if self._parquet is None:
            return
        self._parquet.close()
        self._parquet, self._pending_bytes = None, 0
        once = self._idempotency_key is not None
        self._handle = self._handle.latest()  # it may be renamed while rows are written
        dropped = drop_files(self._handle, [(self._key(), self._local)], False, None, once=once)
        self._sources += dropped.sources
        self._known |= dropped.known

    def _key(self) -> str:
        if self._idempotency_key is None:
            return ingest_key(self._handle.name, f"{self._handle.services.ids.new()}.parquet")
        part = f"-{len(self._sources):05}"
        return idempotent_key(self._handle.table, self._idempotency_key, part)
