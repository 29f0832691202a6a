"""Write sorted rows to one Parquet file of an export; files are divided between row keys.

The footer of a file names its export, task and number, and the key at which the next file begins.
So the files alone say where the next run of a task continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from dormouse.arrow.order import OrderCheck, row_span
from dormouse.arrow.types import arrow_schema
from dormouse.errors import AlreadyExistsError
from dormouse.key_forms.arrow import row_key
from dormouse.keys.ranges import Key, decode_key, encode_key
from dormouse.ports.services import Objects
from dormouse.results import writers
from dormouse.schema.schema import Schema
from dormouse.shards.format.footer import read_metadata
from dormouse.stored.decoding import decode_json, raise_corrupt

METADATA_KEY = "dormouse-export"
FILE_BYTES = 256 * 1024 * 1024
"""About the size at which a file of an export ends."""


@dataclass(frozen=True, slots=True)
class FileId:
    """Which file of an export: file `number` of a task, from 0."""

    export: str
    task: int
    number: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file's number of rows, and the row key at which the next file of its task begins.

    `rest` is None for the last file of a task.
    """

    rows: int
    rest: Key | None


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form; the key is a hexadecimal `encode_key`."""

    export: str
    task: int
    number: int
    rest: str | None
    v: int = 1


def columns_to_read(schema: Schema, columns: Sequence[str]) -> list[str]:
    """Return the columns that `write_file` needs to write `columns`: the keys, then the others."""
    keys = [field.name for field in schema.keys]
    return [*keys, *(name for name in columns if name not in keys)]


def write_file(
    batches: Iterable[pa.RecordBatch],
    local: Path,
    place: FileId,
    schema: Schema,
    columns: Sequence[str],
    *,
    file_bytes: int = FILE_BYTES,
    is_late: Callable[[], bool] = lambda: False,
    written: Callable[[int], None] = lambda final_bytes: None,
) -> WrittenFile:
    """Write sorted rows to `local`, up to about `file_bytes`; without rows no file is made.

    The batches have the `columns_to_read`, the file only `columns`. Once `file_bytes` are written,
    or if `is_late`, the file ends before the next row key: all rows of one row key are in one file.
    For row keys a, b, b, b, c and a limit reached after the first b, the file has a, b, b, b, and
    the next begins at c. So the next file begins at a key, and no row is written twice.
    `written` is called with how many bytes of the file are there and will not change.

    Raises:
        UnsortedRowsError: the rows are not sorted.
    """
    whole = arrow_schema(schema)
    written_schema = pa.schema([whole.field(name) for name in columns])
    file = _File(local, written_schema, _leading_keys(schema, columns))
    check = OrderCheck(schema)
    last: Key = ()
    try:
        for batch in batches:
            check.see(batch)
            while batch.num_rows:
                taken = min(file.room, batch.num_rows)
                if file.rows and (file.size_bytes >= file_bytes or is_late()):
                    taken = row_span(batch, last, schema)[1]
                    if taken < batch.num_rows:
                        file.write(batch.slice(0, taken))
                        return file.close(place, row_key(batch, taken, schema))
                file.write(batch.slice(0, taken))
                written(file.size_bytes)
                last = row_key(batch, taken - 1, schema)
                batch = batch.slice(taken)
        return file.close(place, None)
    finally:
        file.end()


class _File:
    """The file being written, sorted by the columns at the positions `sorted_by`; it is created
    with its first row.
    """

    def __init__(self, local: Path, schema: pa.Schema, sorted_by: Sequence[int]) -> None:
        self._local, self._schema, self._sorted = local, schema, sorted_by
        self._writer: writers.ParquetRows | None = None
        self._sink: pa.NativeFile | None = None

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self._writer.rows if self._writer is not None else 0

    @property
    def size_bytes(self) -> int:
        """The size of the row groups written so far."""
        return self._sink.tell() if self._sink is not None else 0

    @property
    def room(self) -> int:
        """How many more rows the pending row group takes; at least one."""
        return self._writer.room if self._writer is not None else writers.ROW_GROUP_ROWS

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not batch.num_rows:
            return
        if self._writer is None:
            self._sink = pa.OSFile(str(self._local), "wb")
            self._writer = writers.ParquetRows(self._sink, self._schema, sorted_by=self._sorted)
        self._writer.write(batch.select(self._schema.names).cast(self._schema))

    def close(self, place: FileId, rest: Key | None) -> WrittenFile:
        """Write the last row group and the metadata, if the file has rows."""
        if self._writer is not None:
            key = None if rest is None else encode_key(rest).hex()
            known = _Stored(place.export, place.task, place.number, key)
            self._writer.close({METADATA_KEY: msgspec.json.encode(known).decode()})
        return WrittenFile(self.rows, rest)

    def end(self) -> None:
        """Close the file, whether it is complete or not."""
        if self._writer is not None:
            self._writer.end()
        if self._sink is not None:
            self._sink.close()


def _leading_keys(schema: Schema, columns: Sequence[str]) -> list[int]:
    """Return the positions of the keys that sort the columns: up to the first key not selected."""
    places = []
    for field in schema.keys:
        if field.name not in columns:
            break
        places.append(columns.index(field.name))
    return places


def read_existing(objects: Objects, path: str, size_bytes: int, place: FileId) -> WrittenFile:
    """Return the content of a file that an earlier run put.

    Raises:
        AlreadyExistsError: the file is not this file of this export.
        CorruptDataError: the file is damaged.
    """
    metadata = read_metadata(objects, path, size_bytes, is_shard=False)
    stored = (metadata.metadata or {}).get(METADATA_KEY.encode())
    if stored is None:
        raise _foreign(path)
    with raise_corrupt(f"{path} is damaged"):
        known = decode_json(stored, _Stored)
        rest = None if known.rest is None else decode_key(bytes.fromhex(known.rest))
    if FileId(known.export, known.task, known.number) != place:
        raise _foreign(path)
    return WrittenFile(metadata.num_rows, rest)


def _foreign(path: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{path} exists already, and is not a file of this export",
        hint="export to a prefix of its own",
    )
