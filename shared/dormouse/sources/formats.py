"""Read ingested files as batches of the table: Parquet, CSV and JSON lines, plain or gzipped.

A file is accepted or refused as a whole; a refusal says where and why. Batches are yielded while
the file is read, so the caller must be able to drop them when a later row is invalid.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from dormouse.errors import RefusedSourceError
from dormouse.model.sources import format_of
from dormouse.schema.schema import Schema
from dormouse.sources.csv_files import read_csv
from dormouse.sources.json_files import read_json_lines
from dormouse.sources.key_sizes import with_fitting_keys
from dormouse.sources.parquet_files import read_parquet
from dormouse.tables.csv_dialect import CsvDialect

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_BUFFER_BYTES = 64 * 1024
_HINT = "a file is what its name says: .gz at its end if it is gzipped, .parquet if it is Parquet"
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 512 * 1024 * 1024, 200
"""A gzipped file that unpacks to more than this many bytes, and to more than this many times its
size, is refused: it could unpack to a thousand times its size, for hours.
"""


def read_source(
    local: Path, key: str, schema: Schema, dialect: CsvDialect | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as ``arrow_schema(schema)``; its format is
    chosen by the suffix of `key`.

    `dialect` is the dialect of CSV files, by default comma-separated with a header.

    Raises:
        RefusedSourceError: the format is unknown, the file is damaged, a column is missing, unknown
            or of the wrong type, a value is invalid or null, or a row key is too large. It is
            raised before the first batch or between batches.
    """
    yield from with_fitting_keys(_read(local, key, schema, dialect), schema)


def _read(
    local: Path, key: str, schema: Schema, dialect: CsvDialect | None
) -> Iterator[pa.RecordBatch]:
    suffix, zipped = format_of(key)
    check_content(local, suffix, zipped)
    try:
        if suffix == ".parquet":
            yield from _unzipped_parquet(local, schema) if zipped else read_parquet(local, schema)
            return
        with unzipped(local) if zipped else local.open("rb") as file:
            if suffix == ".csv":
                yield from read_csv(cast(BinaryIO, file), schema, dialect)
            else:
                yield from read_json_lines(cast(BinaryIO, file), schema)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RefusedSourceError(f"the gzipped file is damaged: {error}") from error


def check_content(local: Path, suffix: str, zipped: bool) -> None:
    """Check that a file begins as its name ends.

    Raises:
        RefusedSourceError: it is Parquet or gzipped and its name says otherwise, or the reverse.
    """
    with local.open("rb") as file:
        start = file.read(4)
    if zipped != start.startswith(_GZIP):
        problem = "is named .gz but is not gzipped" if zipped else "is gzipped but not named .gz"
        raise RefusedSourceError(f"the file {problem}", hint=_HINT)
    if not zipped and (suffix == ".parquet") != (start == _PARQUET):
        problem = "is not" if suffix == ".parquet" else "is"
        raise RefusedSourceError(f"the file is named {suffix} but {problem} Parquet", hint=_HINT)


def unzipped(local: Path) -> io.BufferedReader:
    """Open a gzipped file to read its content, with a limit on how much it may unpack to."""
    return io.BufferedReader(_Unpacked(local), _BUFFER_BYTES)


class _Unpacked(io.RawIOBase):
    """The content of a gzipped file."""

    def __init__(self, local: Path) -> None:
        self._file, self._stored_bytes = gzip.GzipFile(local), local.stat().st_size
        self._unpacked_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as raw files do. Raises RefusedSourceError if the file unpacks to too much."""
        count = self._file.readinto(buffer)
        self._unpacked_bytes += count
        times = self._unpacked_bytes / max(1, self._stored_bytes)
        if self._unpacked_bytes > MAX_UNPACKED_BYTES and times > MAX_UNPACK_RATIO:
            raise RefusedSourceError(
                f"the gzipped file takes {self._stored_bytes:,} bytes and unpacks to more than "
                f"{MAX_UNPACK_RATIO} times of that",
                hint=f"files that unpack to over {MAX_UNPACKED_BYTES >> 20} MiB may not: cut it",
            )
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _unzipped_parquet(local: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Read a gzipped Parquet file by way of a plain file, because Parquet is read from its end."""
    plain = local.with_name(local.name + ".plain")
    try:
        with unzipped(local) as zipped, plain.open("wb") as file:
            shutil.copyfileobj(zipped, file)
        yield from read_parquet(plain, schema)
    finally:
        plain.unlink(missing_ok=True)
