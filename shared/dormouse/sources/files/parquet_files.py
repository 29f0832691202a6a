"""Read ingested Parquet files as batches of the table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Schema
from dormouse.sources.cells.casting import check_file_columns, convert_batch
from dormouse.sources.files.arrow_batches import caster, check_column_types
from dormouse.sources.files.local_files import LocalFile
from dormouse.sources.files.parquet_batches import open_parquet, read_batches


def read_parquet(local: LocalFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; its columns may have narrower types than the table's.

    Raises:
        RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    try:
        with open_parquet(local) as file:
            check_file_columns(file.schema_arrow.names, schema)
            check_column_types(file.schema_arrow, schema, of="the file")
            place, row = _Rows(file.metadata), 0
            for batch in read_batches(local, file):
                yield convert_batch(batch, schema, partial(place, row), caster)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


class _Rows:
    """Finds the row group of a file that contains a row; messages count both from 1."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._metadata = metadata

    def __call__(self, first: int, row: int) -> str:
        at = first + row
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            if at < rows:
                return f"row {first + row + 1}, which is row {at + 1} of row group {number + 1}"
            at -= rows
        return f"row {first + row + 1}"
