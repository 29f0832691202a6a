"""Bytes of files as they are ingested: compressed, and Arrow."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from typing import Literal

import pyarrow as pa


def gzipped(body: bytes) -> bytes:
    """Compress, the same bytes at any time: they are part of the names of tests."""
    return gzip.compress(body, mtime=0)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzipped,
    ".bz2": bz2.compress,
    ".zst": lambda body: pa.compress(body, "zstd", asbytes=True),
}


def arrow_file(table: pa.Table, compression: Literal["lz4", "zstd"] | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
