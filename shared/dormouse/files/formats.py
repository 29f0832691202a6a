"""Read ingested files as batches of the table: Parquet, Arrow, CSV and JSON lines, also compressed.

A file is accepted or refused as a whole, unless single records may be left out (`rejects`); a
refusal says where and why. Batches are yielded while the file is read, so the caller must be able
to drop them when a later row is invalid.
"""

import bz2
import fcntl
import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.values import infer_columns
from dormouse.errors import InvalidRequestError, RefusedSourceError, is_panic
from dormouse.files import inferred, parquet_files
from dormouse.files.cells import with_fitting_keys
from dormouse.files.change_data import ChangeData, FileChanges
from dormouse.files.rejects import NOT_ASKED, Finish, Rejects, RowNumbers
from dormouse.files.text_files import read_csv, read_csv_texts, read_json_lines, read_json_objects
from dormouse.ports import Arrivals
from dormouse.schema.schema import FoundColumn, Schema
from dormouse.state.sources import format_of
from dormouse.tables.properties import CsvDialect

# Compressed files: gzip, bzip2 and zstd, recognised by their first bytes and read as a stream.

BUFFER_BYTES = 64 * 1024
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 512 * 1024 * 1024, 200
"""A file that unpacks to more than this many bytes, and to more than this many times its size, is
refused: it could unpack to a thousand times its size, for hours."""
WORDS = {".gz": "gzipped", ".bz2": "bzipped", ".zst": "zstd-compressed"}
"""What a file with such an ending is."""
_BZIP2 = b"BZh"
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What follows the level: a block, or the end of an empty file. Text may begin with BZh, too."""
HEAD_BYTES = 64


def compression_of(head: bytes) -> str:
    """Return the ending of files that begin with `head`, its first `HEAD_BYTES`; or nothing."""
    if head.startswith(b"\x1f\x8b"):
        return ".gz"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return ".zst"
    is_bzip2 = head.startswith(_BZIP2) and head[4:].startswith(_BZIP2_BLOCKS)
    return ".bz2" if is_bzip2 else ""


def _opened(file: BinaryIO, compression: str) -> BinaryIO:
    match compression:
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=file))
        case ".bz2":
            return cast(BinaryIO, bz2.BZ2File(file))
        case _:
            native = pa.PythonFile(cast(io.IOBase, file))
            return cast(BinaryIO, pa.CompressedInputStream(native, "zstd"))


class _Unpacked(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stored_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._packed, self._file = file, _opened(file, compression)
        self._what = f"the {WORDS[compression]} file"
        self._unpacked_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as raw files do. Raises RefusedSourceError: it is damaged, or too much."""
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        self._unpacked_bytes += len(content)
        times = self._unpacked_bytes / max(1, self._stored_bytes)
        if self._unpacked_bytes > MAX_UNPACKED_BYTES and times > MAX_UNPACK_RATIO:
            raise RefusedSourceError(
                f"{self._what} takes {self._stored_bytes:,} bytes and unpacks to more than "
                f"{MAX_UNPACK_RATIO} times of that",
                hint=f"files that unpack to over {MAX_UNPACKED_BYTES >> 20} MiB may not: cut it",
            )
        return len(content)

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk; what is wrong with the content has no number
            raise RefusedSourceError(f"{self._what} is damaged: {error}") from error

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()


_ARROW = "Arrow", (parquet_files.FILE_MAGIC, parquet_files.STREAM_MAGIC)
_BINARY = {
    ".parquet": ("Parquet", (parquet_files.PLAIN_MAGIC, parquet_files.ENCRYPTED_MAGIC)),
    **dict.fromkeys((".arrow", ".arrows", ".feather"), _ARROW),
}
"""Formats that are not text: what they are called, and how their files begin."""
CSV_ENDINGS = (".csv", ".tsv", ".txt")
_FOREIGN = (
    ("a ZIP archive or an Excel sheet", (b"pk\x03\x04",), "unpack it, or save the sheet as CSV"),
    ("a file of an old Office", (b"\xd0\xcf\x11\xe0",), "save the sheet as CSV"),
    (
        "a page of HTML or XML",
        (b"<!doctype html", b"<html", b"<?xml"),
        "a server may have answered with an error: read it, and fetch the file again",
    ),
    ("a pointer of Git LFS", (b"version https://git-lfs",), "`git lfs pull` fetches the file"),
    ("a PDF", (b"%pdf-",), "export its rows as CSV"),
    ("an Avro file", (b"obj\x01",), "write its rows as Parquet"),
    ("an SQLite database", (b"sqlite format 3\x00",), "export a table of it as CSV"),
)
"""What people name like files of rows: how it begins, in lower case, and what to do instead."""
_NO_SKIP_HINT = "without one, an older row would stay: ingest the file without --on-error skip"
_HINT = "a file is what its name says: .gz at its end if it is gzipped, .parquet if it is Parquet"


def read_source(
    local: Path,
    key: str,
    schema: Schema,
    dialect: CsvDialect | None = None,
    arrivals: Arrivals | None = None,
    rejects: Rejects | None = None,
    changes: FileChanges | None = None,
    numbers: RowNumbers = NOT_ASKED,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as ``arrow_schema(schema)``, or with `changes`, if its table keeps
    the latest rows, as `FileChanges.stored`; its format is chosen by the suffix of `key`, whose
    folders may give values of columns (`inferred`).

    `dialect` is the dialect of CSV files, by default comma-separated with a header. With
    `arrivals`, rows are read as their bytes arrive, except those of Arrow files. With `rejects`,
    records of CSV and JSON that cannot be read or do not fit are left out. Readers of these tell
    `numbers` the lines of rows.
    Raises RefusedSourceError: the format is unknown, the file is damaged, a column is missing,
    unknown or of the wrong type, a value is invalid or null, or a row key is too large. It is
    raised before the first batch or between batches.
    """
    if changes is not None:
        schema = changes.file_schema
    file = parquet_files.LocalParquet(local, arrivals)
    values = inferred.path_values(key, schema)
    nullable = schema.without_required(values) if values else schema
    messages = None
    changes = changes and replace(changes, placed=values)
    if changes is not None and changes.form:
        messages = ChangeData(changes.form, changes.schema, changes.by, values, changes.emptied)
    if messages is not None and rejects is not None:
        raise RefusedSourceError("no rows of change data can be left out", hint=_NO_SKIP_HINT)

    def finished(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        placed = inferred.with_path_values(batches, schema, values) if values else batches
        fitting = with_fitting_keys(placed, schema)
        return fitting if changes is None else changes.stored(fitting)

    if rejects is not None and format_of(key)[0] not in _BINARY:
        finish: Finish = lambda batch: next(finished(iter([batch])))  # noqa: E731
        yield from _read(file, key, nullable, dialect, rejects, finish, numbers=numbers)
    else:
        yield from finished(_read(file, key, nullable, dialect, changes=messages, numbers=numbers))


def _read(
    local: parquet_files.LocalParquet,
    key: str,
    schema: Schema,
    dialect: CsvDialect | None,
    rejects: Rejects | None = None,
    finish: Finish = lambda rows: rows,
    changes: ChangeData | None = None,
    numbers: RowNumbers = NOT_ASKED,
) -> Iterator[pa.RecordBatch]:
    suffix, compression = format_of(key)
    check_content(local, suffix, compression)
    if suffix in _BINARY:
        with plain_file(local, compression) as plain:
            if suffix == ".parquet":
                yield from parquet_files.read_parquet(plain, schema)
            else:
                yield from parquet_files.read_arrow(plain.wait(), schema)
        return
    with opened(local, compression) as file:
        if suffix in CSV_ENDINGS:
            own = (dialect or CsvDialect()).of_ending(suffix)
            yield from read_csv(file, schema, own, rejects, finish, numbers)
        else:
            yield from read_json_lines(file, schema, rejects, finish, changes, numbers)


def check_content(local: parquet_files.LocalParquet, suffix: str, compression: str) -> None:
    """Check that a file begins as its name ends.
    Raises RefusedSourceError: it is compressed, or Parquet or Arrow, and its name says otherwise;
    or the reverse.
    """
    with local.open() as file:
        head = file.read(HEAD_BYTES)
    actual = compression_of(head)
    if actual != compression:
        is_named, is_in = WORDS.get(compression), WORDS.get(actual)
        problem = (
            f"is {is_in} but not named {actual}"
            if is_in
            else f"is named {compression} but is not {is_named}"
        )
        raise RefusedSourceError(f"the file {problem}", hint=_HINT)
    if compression:
        return
    name, hint = _what_begins(head)
    expected = _BINARY[suffix][0] if suffix in _BINARY else ""
    if name != expected:
        problem = f"is {name}" if name else f"is not {expected}" if head else "is empty"
        raise RefusedSourceError(f"the file is named {suffix} but {problem}", hint=hint)


def _what_begins(head: bytes) -> tuple[str, str]:
    """Return what a file with this head is, and what to do if its name says otherwise."""
    for name, magics in _BINARY.values():
        if head.startswith(magics):
            return name, _HINT
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next(
        ((name, do) for name, magics, do in _FOREIGN if start.startswith(magics)), ("", _HINT)
    )


def opened(local: parquet_files.LocalParquet, compression: str) -> BinaryIO:
    """Open a file to read its content, unpacked if it is compressed, up to a limit."""
    file = local.open()
    if not compression:
        return file
    return cast(BinaryIO, io.BufferedReader(_Unpacked(file, compression), BUFFER_BYTES))


@contextmanager
def plain_file(
    local: parquet_files.LocalParquet, compression: str
) -> Iterator[parquet_files.LocalParquet]:
    """Yield a file that is not compressed, for formats that are read from their end."""
    if not compression:
        yield local
        return
    plain = local.path.with_name(local.path.name + ".plain")
    try:
        with opened(local, compression) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield parquet_files.LocalParquet(plain)
    finally:
        plain.unlink(missing_ok=True)


# Reading a file before there is a job for it: to infer its types, or to check it.
#
# A file may end the process that reads it: out of memory, or by a fault of a library. The attempts
# at a job are in its record; here is none yet, and perhaps no instance. So a marker among the
# temporary files of this user has a byte for each attempt that did not end, and is locked while one
# runs.

MOST_DEATHS = 2
END_BYTES = 64 * 1024
"""So much of both ends of a file, its size and the end of its name tell it from others."""


@contextmanager
def counted_reading(file: Path) -> Iterator[None]:
    """Run the block, which reads a file; refuse that once two processes died in such a block.

    What another process reads just now is not counted, and nothing is where no marker can be.
    Raises RefusedSourceError: two processes died while they read it, or a library panicked.
    """
    with _marked(file):
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            raise RefusedSourceError(
                f"a library that reads {file.name!r} failed", hint="write it again"
            ) from error


@contextmanager
def _marked(file: Path) -> Iterator[None]:
    """Run the block while a marker says so; what ends it without its process removes that."""
    marker = None
    with suppress(OSError):  # no room, no right, or in use; or no file, of which the block tells
        marker = _locked_marker(file)
    if marker is None:
        yield
        return
    path, descriptor = marker
    try:
        deaths = os.fstat(descriptor).st_size
        if deaths >= MOST_DEATHS:
            raise RefusedSourceError(
                f"{deaths} processes ended while they read {file.name!r}: out of memory, or by a "
                "fault of a library that reads it",
                hint="write it again, smaller or in another format; to have it read again: "
                f"rm {path}",
            )
        with suppress(OSError):  # the disk is full
            os.write(descriptor, b".")
        try:
            yield
        except BaseException:
            os.ftruncate(descriptor, deaths)
            raise
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _locked_marker(file: Path) -> tuple[Path, int] | None:
    """Return the marker of a file, open and locked; None if others could have put it there.
    Raises OSError: it cannot be made, or another process has it.
    """
    folder = Path(tempfile.gettempdir()) / f"dormouse-reading-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        return None
    path = folder / _name_of(file)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return path, descriptor


def _name_of(file: Path) -> str:
    with file.open("rb") as content:
        ends = content.read(END_BYTES)
        size = content.seek(0, os.SEEK_END)
        content.seek(max(0, size - END_BYTES))
        ends += content.read()
    # a later library may read what this one cannot
    which = f"{pa.__version__} {size} {file.suffix} ".encode() + ends
    return blake2b(which, digest_size=16).hexdigest()


# Infer the columns of a file, and the types they have in a table.
#
# A Parquet or Arrow file says its types. Of CSV and JSON lines, the first rows are read, up to a
# limit; a column gets the narrowest type that reads every one of these values, by the very parsers
# of ingest.

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
    file_here = parquet_files.LocalParquet(local)
    check_content(file_here, suffix, compression)
    if suffix in _BINARY:
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
    with parquet_files.opened_arrow(local) as (schema, batches):
        rows = sum(batch.num_rows for batch in batches)
        return FoundFile(tuple(infer_columns(schema)), rows, is_whole=True)


def _of_parquet(local: parquet_files.LocalParquet) -> FoundFile:
    with parquet_files.open_parquet(local) as file:
        declared = parquet_files.declared_schema(file, _finer(local, file))
        columns = tuple(infer_columns(declared, parquet_files.remarks_on(file)))
        return FoundFile(columns, file.metadata.num_rows, is_whole=True)


def _finer(local: parquet_files.LocalParquet, file: pq.ParquetFile) -> set[str]:
    """Return the columns of INT96 that microseconds do not hold, which only the values say."""
    old = parquet_files.old_times(file.schema_arrow)
    batches = parquet_files.read_batches(local, file, old) if old else iter(())
    return {
        name
        for batch in batches
        for name in old
        if parquet_files.has_nanoseconds(batch.column(name))
    }


def _of_csv(batches: Iterator[pa.RecordBatch]) -> FoundFile:
    names = next(batches).schema.names
    columns = [inferred.TextColumn() for _ in names]
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
    findings = (column.found(name) for name, column in zip(names, columns, strict=True))
    return FoundFile(tuple(findings), rows, is_whole)


def _of_json(objects: Iterable[tuple[int, int, dict[str, object]]]) -> FoundFile:
    columns = inferred.JsonColumns()
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
