"""Look for a secret in every byte of the files of a folder, also in what these hold compressed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def places_of(secret: bytes, folder: Path) -> list[str]:
    """Return the files in which a secret is, and what in them has it."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found += [
                f"{path.relative_to(folder)}: {what}"
                for what, body in bodies_of(path.read_bytes())
                if secret in body
            ]
    return found


def bodies_of(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a file, and what it holds in another form: cells, statistics, metadata, unpacked."""
    yield "bytes", body
    for codec in ("zstd", "gzip", "lz4"):
        with suppress(pa.ArrowException, OSError, ValueError):
            stream = pa.CompressedInputStream(pa.BufferReader(body), codec)
            yield codec, stream.read()
    if body.startswith(b"PAR1"):
        file = pq.ParquetFile(pa.BufferReader(body))
        yield "cells", repr(file.read().to_pylist()).encode()
        yield "metadata", repr(file.metadata.metadata).encode()
        for group in range(file.metadata.num_row_groups):
            yield "statistics", repr(file.metadata.row_group(group).to_dict()).encode()
    if body.startswith(b"SQLite"):
        database = sqlite3.connect(":memory:")
        database.deserialize(body.replace(b"\x02\x02", b"\x01\x01", 1))  # no WAL beside it
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):
                yield table, repr(row).encode()
                for cell in row:
                    if isinstance(cell, bytes):  # a small object
                        yield from ((f"{table}, {what}", part) for what, part in bodies_of(cell))
