"""Local files of rows, while they are written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dormouse.results.formats import ResultFormat, row_writer
from dormouse.results.unwritable import refusing_unwritable


class RowFile:
    """A local file that rows are being written to, in some format."""

    def __init__(self, local: Path, form: ResultFormat, schema: pa.Schema) -> None:
        """Create the file.

        Raises:
            InvalidRequestError: the format lacks the type of a column.
        """
        self._sink = local.open("wb")
        try:
            with refusing_unwritable():
                self._writer = row_writer(form, self._sink, schema)
        except BaseException:
            self._sink.close()
            raise

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self._writer.rows

    @property
    def size_bytes(self) -> int:
        """How many bytes were written so far; they will not change."""
        return self._sink.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises InvalidRequestError if the format lacks a value."""
        with refusing_unwritable():
            self._writer.write(batch)
        self._sink.flush()  # so that what `size_bytes` counts can be read

    def close(self) -> None:
        """Complete the file; raises as `write`."""
        with refusing_unwritable():
            self._writer.close()
        self._sink.close()

    def end(self) -> None:
        """Release what is held, whether the file is complete or not."""
        if not self._sink.closed:
            self._writer.end()
            self._sink.close()
