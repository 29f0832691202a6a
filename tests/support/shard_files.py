"""A shard in a folder, and a storage whose reads are noted and can be tampered with."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow.parquet as pq

from dormouse.errors import NotFoundError
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.shards.footer import read_metadata
from dormouse.shards.reading import Slice
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.tables import MEMORY_BYTES, ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "LongType"}, {"name": "text", "type": "StringType"}],
    }
)
ROWS: list[dict[str, object]] = [
    {"k": k, "v": k // 2, "text": sha256(bytes([k % 256, k // 256])).hexdigest()}
    for k in range(3000)
]
"""Rows that take room, for they cannot be compressed well."""


class Shard:
    """A table of one shard in a folder."""

    def __init__(
        self,
        folder: Path,
        schema: Schema = EVERY_TYPE,
        storage: type[FolderStorage] = FolderStorage,
    ) -> None:
        self.table = ShardTable(storage(folder / "data"), schema, folder / "scratch")
        (folder / "scratch").mkdir()
        rows = [row_of_every_type(n) for n in range(300)] if schema is EVERY_TYPE else ROWS
        (new,) = self.table.add(rows)
        self.shard = new.shard
        self.path = shard_path("table", new.shard.id)
        self.file = folder / "data" / self.path
        self.body = self.file.read_bytes()

    @property
    def metadata(self) -> pq.FileMetaData:
        return read_metadata(self.table.storage, self.path, len(self.body))


class Bodies(FolderStorage):
    """A folder whose reads are noted as path, start and length, and can be tampered with.

    `before_read` has what is done before the read of a number, `short` how many bytes a read that
    begins at `cut_at` lacks.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.reads: list[tuple[str, int, int]] = []
        self.before_read: dict[int, Callable[[], object]] = {}
        self.cut_at, self.short = -1, 0
        self.lock = threading.Lock()

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        return cast(BinaryIO, _Tampered(self, path))


class _Tampered(io.RawIOBase):
    def __init__(self, bodies: Bodies, path: str) -> None:
        self._bodies, self._path, self._at = bodies, path, 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET
        self._at = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        bodies = self._bodies
        with bodies.lock:  # so that what is done before a read is done before all that follow
            bodies.before_read.pop(len(bodies.reads), lambda: None)()
            try:
                body = (bodies.root / self._path).read_bytes()[self._at :][:size]
            except FileNotFoundError as error:
                raise NotFoundError(self._path) from error
            bodies.reads.append((self._path, self._at, len(body)))
        return body[: len(body) - bodies.short] if self._at == bodies.cut_at else body


def merged(table: ShardTable, storage: Any, **options: Any) -> list[dict[str, object]]:
    slices = [Slice(shard, KeyRange()) for shard in table.state.shards.values()]
    settings = {"scratch": table.folder, "memory_bytes": MEMORY_BYTES} | options
    batches = merge_slices(storage, "table", slices, table.schema, **settings)
    return [row for batch in batches for row in batch.to_pylist()]
