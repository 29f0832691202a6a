"""Position deletes of Iceberg's format 2: a Parquet file that lists the dead rows of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.iceberg.files.entries import FILE_PATH_ID, POSITION_ID
from dormouse.iceberg.files.vectors import RowRange

LIBRARY = f"pyarrow {pa.__version__}"
"""What decides about the bytes beside the rows. Names made from rows contain it."""
_ROWS_AT_ONCE = 1_000_000
_FIELD_ID = b"PARQUET:field_id"
_COLUMNS: list[pa.Field[Any]] = [
    pa.field("file_path", pa.string(), False, {_FIELD_ID: str(FILE_PATH_ID).encode()}),
    pa.field("pos", pa.int64(), False, {_FIELD_ID: str(POSITION_ID).encode()}),
]
_SCHEMA = pa.schema(_COLUMNS)
_LAYOUT: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["file_path"],
    "column_encoding": {"pos": "DELTA_BINARY_PACKED"},
    "store_schema": False,
}


def position_deletes(uri: str, rows: Sequence[RowRange]) -> bytes:
    """Return a Parquet file with the dead rows of the data file at `uri`, in order.

    A million positions take 20 KB: each is one more than the one before.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SCHEMA, **_LAYOUT) as writer:
        for start, end in _pieces(rows):
            positions = pa.array(range(start, end), pa.int64())
            paths = pa.repeat(uri, len(positions))
            writer.write_batch(pa.record_batch([paths, positions], schema=_SCHEMA))
    return sink.getvalue().to_pybytes()


def _pieces(rows: Sequence[RowRange]) -> Iterator[RowRange]:
    for start, end in rows:
        for at in range(start, end, _ROWS_AT_ONCE):
            yield at, min(end, at + _ROWS_AT_ONCE)
