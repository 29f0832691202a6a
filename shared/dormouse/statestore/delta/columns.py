"""The columns of a segment: each transaction is a row, and has those that its kind needs."""

from __future__ import annotations

import pyarrow as pa

_SEGMENT = pa.struct(
    [
        ("id", pa.string()),
        ("after", pa.int64()),
        ("up_to", pa.int64()),
        ("count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("index_at", pa.int64()),
        ("slots", pa.int64()),
    ]
)
_PLACED = pa.struct([("partition", pa.string()), ("rows", pa.int64())])
_SPLIT = pa.struct([("partition", pa.string()), ("at", pa.binary())])
_SHARD_ROWS = pa.struct([("shard", pa.string()), ("rows", pa.int64())])
_DISPUTE = pa.struct([("shard", pa.string()), ("since_ms", pa.int64())])
_SHARD = pa.struct(
    [
        ("id", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("min_key", pa.binary()),
        ("max_key", pa.binary()),
        ("placed", pa.list_(_PLACED)),
    ]
)
_PARTITION = pa.struct(
    [
        ("id", pa.string()),
        ("min_key", pa.binary()),
        ("max_key", pa.binary()),
        ("parent", pa.string()),
        ("children", pa.list_(pa.string())),
        ("height", pa.int64()),
    ]
)
COLUMNS: dict[str, pa.DataType] = {
    "kind": pa.string(),
    "time_ms": pa.int64(),
    "generation": pa.int64(),
    "job": pa.string(),
    "partition": pa.string(),
    "sources": pa.list_(pa.string()),
    "looked_up_to": pa.int64(),
    "inputs": pa.list_(pa.string()),
    "purge_id": pa.string(),
    "request_key": pa.string(),
    "shards": pa.list_(_SHARD),
    "partitions": pa.list_(_PARTITION),
    "at": pa.binary(),
    "rows_left": pa.list_(_SHARD_ROWS),
    "splits": pa.list_(_SPLIT),
    "deleted": pa.list_(pa.string()),
    "segments": pa.list_(_SEGMENT),
    "replaced": pa.list_(pa.string()),
    "new_generation": pa.int64(),
    "version": pa.int64(),
    "rows_taken": pa.list_(_SHARD_ROWS),
    "rows_removed": pa.int64(),
    "disputed": pa.list_(pa.string()),
    "reason": pa.string(),
    "resolved": pa.list_(_DISPUTE),
    "key_types": pa.list_(pa.string()),
    "rules": pa.int64(),
}
