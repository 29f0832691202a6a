"""The Avro records of Iceberg's manifests and manifest lists, of format 2 and 3.

Optional fields are in the schemas though they are null: some readers fail where they are missing.
The numbers are those of Iceberg's specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXISTING, ADDED = 0, 1
"""The status of an entry: known before the snapshot, or new in it."""
DATA, DELETES = 0, 1
"""The content of a manifest, and of a file in it: rows, or positions of deleted rows."""
VERSION_IDS = 2**60
"""The ids of snapshots that show a version are less; those of others have a multiple added."""
FOLDED_SNAPSHOT = VERSION_IDS
"""The snapshot that files are said to come from which are published by content, not by history. It
is none of the snapshots of any table."""
FOLDED_SEQUENCE = 1
FILE_PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The ids of the columns of a file of positions."""


def _field(number: int, name: str, kind: Any, *, optional: bool = True) -> dict[str, Any]:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": number}
    return {"name": name, "type": kind, "field-id": number}


def _map(key: int, value: int, kind: str) -> dict[str, Any]:
    """Return the schema of a map with integer keys, which Avro has only as a list of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [
            _field(key, "key", "int", optional=False),
            _field(value, "value", kind, optional=False),
        ],
    }
    return {"type": "array", "items": pair, "logicalType": "map"}


def _list(element: int, kind: Any) -> dict[str, Any]:
    return {"type": "array", "items": kind, "element-id": element}


_PARTITION = {"type": "record", "name": "r102", "fields": []}
_FILE_V2 = [
    _field(134, "content", "int", optional=False),
    _field(100, "file_path", "string", optional=False),
    _field(101, "file_format", "string", optional=False),
    _field(102, "partition", _PARTITION, optional=False),
    _field(103, "record_count", "long", optional=False),
    _field(104, "file_size_in_bytes", "long", optional=False),
    _field(108, "column_sizes", _map(117, 118, "long")),
    _field(109, "value_counts", _map(119, 120, "long")),
    _field(110, "null_value_counts", _map(121, 122, "long")),
    _field(137, "nan_value_counts", _map(138, 139, "long")),
    _field(125, "lower_bounds", _map(126, 127, "bytes")),
    _field(128, "upper_bounds", _map(129, 130, "bytes")),
    _field(131, "key_metadata", "bytes"),
    _field(132, "split_offsets", _list(133, "long")),
    _field(135, "equality_ids", _list(136, "int")),
    _field(140, "sort_order_id", "int"),
    _field(143, "referenced_data_file", "string"),
]
_FILE_V3 = [
    *_FILE_V2,
    _field(142, "first_row_id", "long"),
    _field(144, "content_offset", "long"),
    _field(145, "content_size_in_bytes", "long"),
]
_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field(509, "contains_null", "boolean", optional=False),
        _field(518, "contains_nan", "boolean"),
        _field(510, "lower_bound", "bytes"),
        _field(511, "upper_bound", "bytes"),
    ],
}
_MANIFEST_V2 = [
    _field(500, "manifest_path", "string", optional=False),
    _field(501, "manifest_length", "long", optional=False),
    _field(502, "partition_spec_id", "int", optional=False),
    _field(517, "content", "int", optional=False),
    _field(515, "sequence_number", "long", optional=False),
    _field(516, "min_sequence_number", "long", optional=False),
    _field(503, "added_snapshot_id", "long", optional=False),
    _field(504, "added_files_count", "int", optional=False),
    _field(505, "existing_files_count", "int", optional=False),
    _field(506, "deleted_files_count", "int", optional=False),
    _field(512, "added_rows_count", "long", optional=False),
    _field(513, "existing_rows_count", "long", optional=False),
    _field(514, "deleted_rows_count", "long", optional=False),
    _field(507, "partitions", _list(508, _SUMMARY)),
    _field(519, "key_metadata", "bytes"),
]
_MANIFEST_V3 = [*_MANIFEST_V2, _field(520, "first_row_id", "long")]


def entry_schema(format_version: int) -> dict[str, Any]:
    """Return the Avro schema of the entries of a manifest."""
    file = {
        "type": "record",
        "name": "r2",
        "fields": _FILE_V2 if format_version == 2 else _FILE_V3,
    }
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int", optional=False),
            _field(1, "snapshot_id", "long"),
            _field(3, "sequence_number", "long"),
            _field(4, "file_sequence_number", "long"),
            _field(2, "data_file", file, optional=False),
        ],
    }


def manifest_schema(format_version: int) -> dict[str, Any]:
    """Return the Avro schema of the manifests in a manifest list."""
    return {
        "type": "record",
        "name": "manifest_file",
        "fields": _MANIFEST_V2 if format_version == 2 else _MANIFEST_V3,
    }


def entry(file: Mapping[str, Any], sequence: int | None) -> dict[str, Any]:
    """Return the entry of a file, known before under a sequence number; None says that it is new in
    the snapshot that adds its manifest, from which it has its numbers.
    """
    if sequence is None:
        return {"status": ADDED, "data_file": file}
    return {
        "status": EXISTING,
        "snapshot_id": FOLDED_SNAPSHOT,
        "sequence_number": sequence,
        "file_sequence_number": sequence,
        "data_file": file,
    }


@dataclass(frozen=True, slots=True)
class Totals:
    """What a manifest says of its files in the list: how many they are, and their rows."""

    files: int
    rows: int


def manifest(
    uri: str,
    length_bytes: int,
    content: int,
    totals: Totals,
    added_in: tuple[int, int] | None,
    sequences: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the record of a manifest in a list.

    `added_in` has the id and sequence number of the snapshot in which its files are new; None if
    they were known before, under `sequences`.
    """
    snapshot, sequence = added_in or (FOLDED_SNAPSHOT, max(sequences))
    new, known = (totals, Totals(0, 0)) if added_in else (Totals(0, 0), totals)
    return {
        "manifest_path": uri,
        "manifest_length": length_bytes,
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": sequence,
        "min_sequence_number": min(sequences, default=sequence),
        "added_snapshot_id": snapshot,
        "added_files_count": new.files,
        "existing_files_count": known.files,
        "deleted_files_count": 0,
        "added_rows_count": new.rows,
        "existing_rows_count": known.rows,
        "deleted_rows_count": 0,
    }
