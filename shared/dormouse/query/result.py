"""The result of a query: one type for the client, exports and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dormouse.readers.read_counters import ReadCounters


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a selection, sorted by the keys: a stream of Arrow batches, readable once.

    Rows are read from storage while the stream is read. Libraries that speak Arrow (pyarrow,
    Polars, pandas, DuckDB) read it as it is: ``polars.from_arrow(result)``. `version` is the
    version of the table that is read. `reads` counts what was read so far.
    """

    reader: pa.RecordBatchReader
    reads: ReadCounters
    version: int

    @property
    def schema(self) -> pa.Schema:
        """The selected columns."""
        return self.reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        return iter(self.reader)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the stream by the Arrow C stream interface."""
        return self.reader.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def read_all(self) -> pa.Table:
        """Read all rows into memory."""
        return self.reader.read_all()

    def close(self) -> None:
        """Stop reading, and release what is held."""
        self.reader.close()
