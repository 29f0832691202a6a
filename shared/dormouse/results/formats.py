"""The formats in which rows are written, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import BinaryIO, Protocol

import pyarrow as pa

from dormouse.results.unwritable import refusing_unwritable
from dormouse.results.writers import (
    ArrowFileRows,
    ArrowRows,
    CsvRows,
    JsonRows,
    ParquetRows,
)


class ResultFormat(StrEnum):
    """A format of rows. `arrow` is a stream of Arrow IPC, `feather` a file of it, which can be
    mapped into memory; `json` is a line of JSON for each row.
    """

    parquet = "parquet"
    arrow = "arrow"
    feather = "feather"
    csv = "csv"
    json = "json"

    @property
    def suffix(self) -> str:
        """How the names of such files end, with the dot."""
        return f".{self.value}"

    @property
    def media_type(self) -> str:
        """The type that HTTP and object stores have for such files."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ResultFormat.parquet: "application/vnd.apache.parquet",
    ResultFormat.arrow: "application/vnd.apache.arrow.stream",
    ResultFormat.feather: "application/vnd.apache.arrow.file",
    ResultFormat.csv: "text/csv",
    ResultFormat.json: "application/x-ndjson",
}


class RowWriter(Protocol):
    """Writes rows of one schema into an open file, batch by batch, in bounded memory.

    The file is complete when the writer is closed, and not before; the file itself stays open. A
    writer without rows makes a file that has none.
    """

    rows: int

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what is pending, and the end of the file."""

    def end(self) -> None:
        """Release what is held, whether the file is complete or not; twice is as once."""


_WRITERS: dict[ResultFormat, Callable[[BinaryIO, pa.Schema], RowWriter]] = {
    ResultFormat.parquet: ParquetRows,
    ResultFormat.arrow: ArrowRows,
    ResultFormat.feather: ArrowFileRows,
    ResultFormat.csv: CsvRows,
    ResultFormat.json: JsonRows,
}


def row_writer(form: ResultFormat, sink: BinaryIO, schema: pa.Schema) -> RowWriter:
    """Return a writer of a format into an open file."""
    return _WRITERS[form](sink, schema)


def write_rows(
    form: ResultFormat, batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO
) -> int:
    """Write all rows in a format; return their number.

    Raises:
        InvalidRequestError: the format lacks the type of a column, or a value.
    """
    with refusing_unwritable():
        writer = row_writer(form, sink, schema)
    try:
        for batch in batches:
            with refusing_unwritable():
                writer.write(batch)
        with refusing_unwritable():
            writer.close()
    finally:
        writer.end()
    return writer.rows
