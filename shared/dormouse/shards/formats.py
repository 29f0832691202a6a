"""Ingested files → batches of the table: Parquet, CSV and JSON lines, plain or gzipped.

A file is good as a whole or refused as a whole, with a reason that says where and what. Batches
come as the file is read, so whoever takes them must be ready to drop them when a later row is bad.
"""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.csv_dialect import CsvDialect
from dormouse.model.schema import Schema
from dormouse.shards.csv_files import read_csv
from dormouse.shards.json_files import read_json_lines
from dormouse.shards.parquet_files import read_parquet

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_SUFFIXES = (".parquet", ".csv", ".json", ".jsonl", ".ndjson")
_HINT = "files end in .parquet, .csv, .json, .jsonl or .ndjson, and in .gz after that if gzipped"


def read_source(
    local: Path, key: str, schema: Schema, dialect: CsvDialect | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, its format told by the end of `key`, as ``arrow_schema(schema)``.

    `dialect` is that of CSV files, by default the usual one.

    Raises:
        RefusedSourceError: the format is unknown, the file damaged, a column missing, unknown or
            of the wrong type, or a value wrong or null; before or between batches.
    """
    name = key.rpartition("/")[2].lower()
    zipped = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix not in _SUFFIXES:
        raise RefusedSourceError(f"{name!r} is of no known format", hint=_HINT)
    _check_content(local, suffix, zipped)
    try:
        if suffix == ".parquet":
            yield from _unzipped_parquet(local, schema) if zipped else read_parquet(local, schema)
            return
        with gzip.open(local) if zipped else local.open("rb") as file:
            if suffix == ".csv":
                yield from read_csv(cast(BinaryIO, file), schema, dialect)
            else:
                yield from read_json_lines(cast(BinaryIO, file), schema)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RefusedSourceError(f"the gzipped file is damaged: {error}") from error


def _check_content(local: Path, suffix: str, zipped: bool) -> None:
    with local.open("rb") as file:
        start = file.read(4)
    if zipped != start.startswith(_GZIP):
        said = "is named .gz but is not gzipped" if zipped else "is gzipped but not named .gz"
        raise RefusedSourceError(f"the file {said}", hint=_HINT)
    if not zipped and (suffix == ".parquet") != (start == _PARQUET):
        said = "is not" if suffix == ".parquet" else "is"
        raise RefusedSourceError(f"the file is named {suffix} but {said} Parquet", hint=_HINT)


def _unzipped_parquet(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Read Parquet, which is read from its end, from a gzipped file: by way of a plain one."""
    plain = local.with_name(local.name + ".plain")
    try:
        with gzip.open(local) as zipped, plain.open("wb") as file:
            shutil.copyfileobj(zipped, file)
        yield from read_parquet(plain, schema)
    finally:
        plain.unlink(missing_ok=True)
