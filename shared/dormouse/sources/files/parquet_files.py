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
from dormouse.sources.files.parquet_types import (
    check_calendar,
    declared_schema,
    exact_times,
    is_legacy,
    old_times,
)


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
            converter = _of_times(
                converter, set(old_times(found)), is_legacy=is_legacy(file.metadata)
            )
            place, row = _Rows(file.metadata), 0
            for batch in read_batches(local, file):
                yield convert_arrow(batch, schema, partial(place, row), converter)
                row += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"the Parquet file ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _of_times(converter: Converter, old: set[str], *, is_legacy: bool) -> Converter:
    """Return a converter that also takes the pairs that columns of INT96 are read as, and refuses
    what Spark's legacy calendar has made of early days.
    """

    def of_field(field: Field) -> Callable[[Array], Array]:
        build = converter(field)
        in_nanoseconds = any(contains_type(field.type, kind) for kind in NANOSECONDS)

        def build_times(column: Array) -> Array:
            if field.name in old:
                column = exact_times(column, in_nanoseconds=in_nanoseconds)
            found = build(column)
            if is_legacy:
                check_calendar(found)
            return found

        return build_times

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
