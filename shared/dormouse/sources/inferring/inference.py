"""Infer the columns of a file, and the types they have in a table.

A Parquet or Arrow file says its types. Of CSV and JSON lines, the first rows are read, up to a
limit; a column gets the narrowest type that reads every one of these values, by the very parsers of
ingest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.inference import infer_columns
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.model.sources import format_of
from dormouse.schema.columns import FoundColumn
from dormouse.sources.cells.casting import unreadable
from dormouse.sources.files.arrow_files import opened_arrow
from dormouse.sources.files.compression import WORDS
from dormouse.sources.files.csv_files import read_csv_texts
from dormouse.sources.files.json_files import read_json_objects
from dormouse.sources.files.local_files import LocalFile
from dormouse.sources.files.parquet_batches import open_parquet, read_batches
from dormouse.sources.files.parquet_types import (
    declared_schema,
    has_nanoseconds,
    old_times,
    remarks_on,
)
from dormouse.sources.formats import CSV_ENDINGS, check_content, opened
from dormouse.sources.inferring.inferred_json import JsonColumns
from dormouse.sources.inferring.inferred_text import TextColumn
from dormouse.sources.rejects import Rejects
from dormouse.tables.csv_dialect import CsvDialect

SAMPLE_ROWS = 100_000
SAMPLE_BYTES = 32 * 1024 * 1024
"""At most this much of a CSV or JSON file is looked at, whichever limit is reached first."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """The columns of a file. `rows` were looked at, and all there are only if `is_whole`."""

    columns: tuple[FoundColumn, ...]
    rows: int
    is_whole: bool


def infer_file(local: Path, dialect: CsvDialect | None = None, *, skips: bool = False) -> FoundFile:
    """Return the columns of a file; its format is chosen by the end of its name.

    `dialect` is that of CSV files, by default comma-separated with a header. With `skips`, records
    of CSV and JSON that cannot be read are left out.

    Raises:
        RefusedSourceError: it is damaged, of no known format, or not what its name says.
        InvalidRequestError: it has no columns.
    """
    suffix, compression = format_of(local.name)
    file_here = LocalFile(local)
    check_content(file_here, suffix, compression)
    if suffix in (".parquet", ".arrow", ".arrows", ".feather"):
        if compression:
            raise RefusedSourceError(
                f"the schema of a {WORDS[compression]} {suffix} file is not inferred",
                hint="unpack it first",
            )
        return _of_parquet(file_here) if suffix == ".parquet" else _of_arrow(local)
    rejects = Rejects(local.name) if skips else None
    with opened(file_here, compression) as file:
        if suffix in CSV_ENDINGS:
            own = (dialect or CsvDialect()).of_ending(suffix)
            return _of_csv(read_csv_texts(file, own, rejects))
        return _of_json(read_json_objects(file, rejects))


def _of_arrow(local: Path) -> FoundFile:
    with opened_arrow(local) as (schema, batches):
        rows = sum(batch.num_rows for batch in batches)
        return FoundFile(tuple(infer_columns(schema)), rows, is_whole=True)


def _of_parquet(local: LocalFile) -> FoundFile:
    try:
        with open_parquet(local) as file:
            declared = declared_schema(file, _finer(local, file))
            columns = tuple(infer_columns(declared, remarks_on(file)))
            return FoundFile(columns, file.metadata.num_rows, is_whole=True)
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"the Parquet file ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise RefusedSourceError(f"the Parquet file cannot be read: {error}") from error


def _finer(local: LocalFile, file: pq.ParquetFile) -> set[str]:
    """Return the columns of INT96 that microseconds do not hold, which only the values say."""
    old = old_times(file.schema_arrow)
    batches = read_batches(local, file, old) if old else iter(())
    return {name for batch in batches for name in old if has_nanoseconds(batch.column(name))}


def _of_csv(batches: Iterator[pa.RecordBatch]) -> FoundFile:
    names = next(batches).schema.names
    columns = [TextColumn() for _ in names]
    rows = size_bytes = 0
    is_whole = True
    for batch in batches:
        if rows >= SAMPLE_ROWS or size_bytes >= SAMPLE_BYTES:
            is_whole = False
            break
        for column, cells in zip(columns, batch.columns, strict=True):
            column.see(cells)
        rows += batch.num_rows
        size_bytes += batch.nbytes
    found = (column.found(name) for name, column in zip(names, columns, strict=True))
    return FoundFile(tuple(found), rows, is_whole)


def _of_json(objects: Iterable[tuple[int, int, dict[str, object]]]) -> FoundFile:
    columns = JsonColumns()
    rows = size_bytes = 0
    is_whole = True
    for line, line_bytes, values in objects:
        if rows >= SAMPLE_ROWS or size_bytes >= SAMPLE_BYTES:
            is_whole = False
            break
        columns.see(line, values)
        rows += 1
        size_bytes += line_bytes
    if not rows:
        raise InvalidRequestError(
            "the file has no rows, so its columns are not known", hint="write the schema"
        )
    return FoundFile(tuple(columns.found()), rows, is_whole)
