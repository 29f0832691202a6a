"""Read ingested Parquet files as batches of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import NANOSECONDS, contains_type
from dormouse.sources.cells.casting import check_file_columns, unreadable
from dormouse.sources.files.arrow_batches import Converter, arrow_converter, convert_arrow
from dormouse.sources.files.local_files import LocalFile
from dormouse.sources.files.parquet_batches import open_parquet, read_batches
from dormouse.sources.files.parquet_types import declared_schema, exact_times, old_times


def read_parquet(local: LocalFile, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; its columns may have narrower types than the table's.

    Raises:
        RefusedSourceError: the file is damaged, or its columns or values do not fit the table.
    """
    try:
        with open_parquet(local) as file:
            found, declared = file.schema_arrow, declared_schema(file)
            check_file_columns(found.names, schema)
            converter = arrow_converter(found, schema, of="the file", declared=declared)
            converter = _of_old_times(converter, set(old_times(found)))
            place, row = _Rows(file.metadata), 0
            for batch in read_batches(local, file):
                yield convert_arrow(batch, schema, partial(place, row), converter)
                row += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"the Parquet file ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _of_old_times(converter: Converter, names: set[str]) -> Converter:
    """Return a converter that also takes the pairs that columns of INT96 are read as."""

    def of_field(field: Field) -> Callable[[Array], Array]:
        build = converter(field)
        if field.name not in names:
            return build
        in_nanoseconds = any(contains_type(field.type, kind) for kind in NANOSECONDS)
        return lambda pair: build(exact_times(pair, in_nanoseconds=in_nanoseconds))

    return of_field


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
