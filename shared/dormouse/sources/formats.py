"""Read ingested files as batches of the table: Parquet, Arrow, CSV and JSON lines, also compressed.

A file is accepted or refused as a whole, unless single records may be left out (`rejects`); a
refusal says where and why. Batches are yielded while the file is read, so the caller must be able
to drop them when a later row is invalid.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.sources import format_of
from dormouse.ports.downloads import Arrivals
from dormouse.schema.schema import Schema
from dormouse.sources.files.arrow_files import FILE_MAGIC, STREAM_MAGIC, read_arrow
from dormouse.sources.files.compression import HEAD_BYTES, WORDS, compression_of, unpacked
from dormouse.sources.files.csv_files import read_csv
from dormouse.sources.files.json_files import read_json_lines
from dormouse.sources.files.local_files import LocalFile
from dormouse.sources.files.parquet_batches import ENCRYPTED_MAGIC, PLAIN_MAGIC
from dormouse.sources.files.parquet_files import read_parquet
from dormouse.sources.key_sizes import with_fitting_keys
from dormouse.sources.path_columns import path_values, with_path_values, without_required
from dormouse.sources.rejects import Finish, Rejects
from dormouse.tables.csv_dialect import CsvDialect

_BINARY = {
    ".parquet": ("Parquet", (PLAIN_MAGIC, ENCRYPTED_MAGIC)),
    ".arrow": ("Arrow", (FILE_MAGIC, STREAM_MAGIC)),
    ".arrows": ("Arrow", (FILE_MAGIC, STREAM_MAGIC)),
    ".feather": ("Arrow", (FILE_MAGIC, STREAM_MAGIC)),
}
"""Formats that are not text: what they are called, and how their files begin."""
CSV_ENDINGS = (".csv", ".tsv", ".txt")
_HINT = "a file is what its name says: .gz at its end if it is gzipped, .parquet if it is Parquet"


def read_source(
    local: Path,
    key: str,
    schema: Schema,
    dialect: CsvDialect | None = None,
    arrivals: Arrivals | None = None,
    rejects: Rejects | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as ``arrow_schema(schema)``; its format is
    chosen by the suffix of `key`, whose folders may give values of columns (`path_columns`).

    `dialect` is the dialect of CSV files, by default comma-separated with a header. With
    `arrivals`, rows are read as their bytes arrive, except those of Arrow files. With `rejects`,
    records of CSV and JSON that cannot be read or do not fit are left out.

    Raises:
        RefusedSourceError: the format is unknown, the file is damaged, a column is missing, unknown
            or of the wrong type, a value is invalid or null, or a row key is too large. It is
            raised before the first batch or between batches.
    """
    file = LocalFile(local, arrivals)
    values = path_values(key, schema)
    read = without_required(schema, values) if values else schema

    def finished(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placed = with_path_values(batches, schema, values) if values else batches
        return with_fitting_keys(placed, schema)

    if rejects is not None and format_of(key)[0] not in _BINARY:
        finish: Finish = lambda batch: next(finished(iter([batch])))  # noqa: E731
        yield from _read(file, key, read, dialect, rejects, finish)
    else:
        yield from finished(_read(file, key, read, dialect))


def _read(
    local: LocalFile,
    key: str,
    schema: Schema,
    dialect: CsvDialect | None,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
) -> Iterator[pa.RecordBatch]:
    suffix, compression = format_of(key)
    check_content(local, suffix, compression)
    if suffix in _BINARY:
        with plain_file(local, compression) as plain:
            if suffix == ".parquet":
                yield from read_parquet(plain, schema)
            else:
                yield from read_arrow(plain.wait(), schema)
        return
    with opened(local, compression) as file:
        if suffix in CSV_ENDINGS:
            own = (dialect or CsvDialect()).of_ending(suffix)
            yield from read_csv(file, schema, own, rejects, finish)
        else:
            yield from read_json_lines(file, schema, rejects, finish)


def check_content(local: LocalFile, suffix: str, compression: str) -> None:
    """Check that a file begins as its name ends.

    Raises:
        RefusedSourceError: it is compressed, or Parquet or Arrow, and its name says otherwise; or
            the reverse.
    """
    with local.open() as file:
        head = file.read(HEAD_BYTES)
    found = compression_of(head)
    if found != compression:
        is_named, is_in = WORDS.get(compression), WORDS.get(found)
        problem = (
            f"is {is_in} but not named {found}"
            if is_in
            else f"is named {compression} but is not {is_named}"
        )
        raise RefusedSourceError(f"the file {problem}", hint=_HINT)
    if compression:
        return
    name = next((name for name, magics in _BINARY.values() if head.startswith(magics)), "")
    wanted = _BINARY[suffix][0] if suffix in _BINARY else ""
    if name != wanted:
        problem = f"is {name}" if name else f"is not {wanted}"
        raise RefusedSourceError(f"the file is named {suffix} but {problem}", hint=_HINT)


def opened(local: LocalFile, compression: str) -> BinaryIO:
    """Open a file to read its content, unpacked if it is compressed."""
    file = local.open()
    return cast(BinaryIO, unpacked(file, compression)) if compression else file


@contextmanager
def plain_file(local: LocalFile, compression: str) -> Iterator[LocalFile]:
    """Yield a file that is not compressed, for formats that are read from their end."""
    if not compression:
        yield local
        return
    plain = local.path.with_name(local.path.name + ".plain")
    try:
        with opened(local, compression) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield LocalFile(plain)
    finally:
        plain.unlink(missing_ok=True)
