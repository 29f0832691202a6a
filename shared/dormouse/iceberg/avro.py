"""Write and read Avro container files: the form of Iceberg's manifests.

Equal records give equal bytes: all records are one block, and the marker around it is a digest of
all else, by which damage is found. Only the types that manifests need are known. Integers are
written as Thrift does.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from struct import pack
from typing import Any, TypeAlias

from dormouse.errors import CorruptDataError
from dormouse.shards.thrift import read_signed, signed
from dormouse.stored.checksums import crc32

Schema: TypeAlias = "str | list[Any] | dict[str, Any]"
"""An Avro schema, as parsed JSON."""
_Encode: TypeAlias = Callable[[bytearray, Any], None]
_Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_TEXTS = [{"name": name, "type": "string"} for name in ("key", "value")]
_HEADER: Schema = {"type": "array", "items": {"type": "record", "fields": _TEXTS}}
"""The map in a header is encoded as an array of its pairs."""
LIBRARY = f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
"""What decides about the bytes beside the records. Names made from records contain it."""


def write_container(
    schema: Schema, records: Iterable[Mapping[str, Any]], metadata: Mapping[str, str]
) -> bytes:
    """Return a container file of records, compressed with deflate; `metadata` is for its header."""
    encode, block, count = _encoder(schema), bytearray(), 0
    for record in records:
        encode(block, record)
        count += 1
    header, content = bytearray(_MAGIC), bytearray()
    described = {"avro.schema": _dumps(schema), "avro.codec": "deflate", **metadata}
    _encoder(_HEADER)(header, [{"key": key, "value": text} for key, text in described.items()])
    if count:
        _put_long(content, count)
        _put_bytes(content, zlib.compress(bytes(block), 9, -zlib.MAX_WBITS))
    head, body = bytes(header), bytes(content)
    return head + _framed(body, _digest(head + body))


def read_container(data: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return metadata and records of what `write_container` wrote. Raises CorruptDataError."""
    if not data.startswith(_MAGIC):
        raise CorruptDataError("it is not an Avro file")
    try:
        return _read(data)
    except (IndexError, KeyError, ValueError, zlib.error) as error:
        raise CorruptDataError(f"it is not an Avro file of Dormouse: {error}") from error


def _read(data: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    pairs, start = _decoder(_HEADER)(data, len(_MAGIC))
    sync, body = data[start : start + _SYNC_BYTES], data[start + _SYNC_BYTES : -_SYNC_BYTES]
    if sync != _digest(data[:start] + body) or data[start:] != _framed(body, sync):
        raise ValueError("it is cut off or damaged")
    metadata = {pair["key"]: pair["value"] for pair in pairs}
    decode, records = _decoder(json.loads(metadata["avro.schema"])), []
    if body:
        count, at = read_signed(body, 0)
        block, place = zlib.decompress(_get_bytes(body, at)[0], -zlib.MAX_WBITS), 0
        for _ in range(count):
            record, place = decode(block, place)
            records.append(record)
        if place != len(block):
            raise ValueError("a block is damaged")
    return metadata, records


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SYNC_BYTES).digest()


def _framed(body: bytes, sync: bytes) -> bytes:
    """Return what follows a header: its marker, and a block between two of them if there is one."""
    return sync + body + sync if body else sync


def _dumps(schema: Schema) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _encoder(schema: Schema) -> _Encode:
    """Return the function that appends a value of a schema to a buffer."""
    match schema:
        case "int" | "long":
            return _put_long
        case "string":
            return lambda out, value: _put_bytes(out, value.encode())
        case "bytes":
            return _put_bytes
        case "boolean":
            return bytearray.append
        case ["null", inner]:
            return _optional_encoder(_encoder(inner))
        case {"type": "record", "fields": fields}:
            return _record_encoder(fields)
        case {"type": "array", "items": items}:
            return _array_encoder(_encoder(items))
    raise ValueError(f"no Avro schema of a manifest: {_dumps(schema)}")


def _optional_encoder(encode: _Encode) -> _Encode:
    def put(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            encode(out, value)

    return put


def _record_encoder(fields: Sequence[Any]) -> _Encode:
    parts = [(field["name"], _encoder(field["type"])) for field in fields]

    def put(out: bytearray, value: Mapping[str, Any]) -> None:
        for name, encode in parts:
            encode(out, value.get(name))

    return put


def _array_encoder(encode: _Encode) -> _Encode:
    def put(out: bytearray, values: Sequence[Any]) -> None:
        if values:
            _put_long(out, len(values))
            for value in values:
                encode(out, value)
        out.append(0)

    return put


def _put_long(out: bytearray, value: int) -> None:
    out += signed(value)


def _put_bytes(out: bytearray, value: bytes) -> None:
    _put_long(out, len(value))
    out += value


def _decoder(schema: Schema) -> _Decode:
    """Return the function that reads a value of a schema at a place; it returns where it ends."""
    match schema:
        case "int" | "long":
            return read_signed
        case "string":
            return _get_text
        case "bytes":
            return _get_bytes
        case "boolean":
            return lambda data, at: (bool(data[at]), at + 1)
        case ["null", inner]:
            decode = _decoder(inner)
            return lambda data, at: decode(data, at + 1) if data[at] else (None, at + 1)
        case {"type": "record", "fields": fields}:
            return _record_decoder(fields)
        case {"type": "array", "items": items}:
            return _array_decoder(_decoder(items))
    raise ValueError(f"no Avro schema of a manifest: {_dumps(schema)}")


def _record_decoder(fields: Sequence[Any]) -> _Decode:
    parts = [(field["name"], _decoder(field["type"])) for field in fields]

    def get(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, decode in parts:
            record[name], at = decode(data, at)
        return record, at

    return get


def _array_decoder(decode: _Decode) -> _Decode:
    def get(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        count, at = read_signed(data, at)
        while count:
            for _ in range(count):
                value, at = decode(data, at)
                values.append(value)
            count, at = read_signed(data, at)
        return values, at

    return get


def _get_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_signed(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("it is cut off")
    return data[at : at + length], at + length


def _get_text(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _get_bytes(data, at)
    return raw.decode(), at


# The Avro records of Iceberg's manifests and manifest lists, of format 2 and 3.
#
# Optional fields are in the schemas though they are null: some readers fail where they are missing.
# The numbers are those of Iceberg's specification.

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
    file = {"type": "record", "name": "r2", "fields": _FILE_V2 if format_version == 2 else _FILE_V3}
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


def entry(file: Mapping[str, Any], sequence: int | None, *, is_new: bool) -> dict[str, Any]:
    """Return the entry of a file under a sequence number. One that is new in the snapshot that adds
    its manifest has its numbers from that, as far as it has none.
    """
    numbers = {"sequence_number": sequence, "file_sequence_number": sequence, "data_file": file}
    if is_new:
        return {"status": ADDED, **numbers}
    return {"status": EXISTING, "snapshot_id": FOLDED_SNAPSHOT, **numbers}


def manifest(
    uri: str,
    length_bytes: int,
    content: int,
    files: int,
    rows: int,
    added_in: tuple[int, int] | None,
    sequences: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the record of a manifest of so many files and rows in a list.

    `added_in` has the id and sequence number of the snapshot in which its files are new; None if
    they were known before, under `sequences`.
    """
    snapshot, sequence = added_in or (FOLDED_SNAPSHOT, max(sequences))
    of_new, of_old = bool(added_in), not added_in
    return {
        "manifest_path": uri,
        "manifest_length": length_bytes,
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": sequence,
        "min_sequence_number": min(sequences, default=sequence),
        "added_snapshot_id": snapshot,
        "added_files_count": of_new * files,
        "existing_files_count": of_old * files,
        "deleted_files_count": 0,
        "added_rows_count": of_new * rows,
        "existing_rows_count": of_old * rows,
        "deleted_rows_count": 0,
    }


# Deletion vectors of Iceberg's format 3: a bitmap of the dead rows of a shard, in a Puffin file.
#
# Dead rows are few long runs, so the bitmap has run containers alone. It is a 64-bit Roaring
# bitmap: one 32-bit bitmap for each value of the upper half, of containers for each 65,536
# positions.

RowRange: TypeAlias = tuple[int, int]
"""The first of some rows of a shard, and the row after the last."""
_PUFFIN = b"PFA1"
_VECTOR = b"\xd1\xd3\x39\x64"
_RUN_COOKIE = 12347
_CONTAINER_BITS, _BITMAP_BITS = 16, 32
_LEAST_WITH_OFFSETS = 4
_ROW_POSITION_ID = 2147483645
VECTOR_OFFSET = len(_PUFFIN)
"""Where the vector begins in its file."""


def count_rows(rows: Sequence[RowRange]) -> int:
    """Return the number of rows in some ranges."""
    return sum(end - start for start, end in rows)


def vector(rows: Sequence[RowRange]) -> bytes:
    """Return the vector of some rows, whose ranges are in order and do not touch."""
    body = _VECTOR + bitmap64(rows)
    return pack(">I", len(body)) + body + pack(">I", crc32(body))


def puffin(uri: str, blob: bytes, rows: int) -> bytes:
    """Return a Puffin file with the vector of some dead rows of the data file at `uri`."""
    described = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": VECTOR_OFFSET,
        "length": len(blob),
        "properties": {"referenced-data-file": uri, "cardinality": str(rows)},
    }
    footer = json.dumps({"blobs": [described], "properties": {}}, separators=(",", ":")).encode()
    end = pack("<i", len(footer)) + bytes(4) + _PUFFIN
    return _PUFFIN + blob + _PUFFIN + footer + end


def bitmap64(rows: Sequence[RowRange]) -> bytes:
    """Return a 64-bit Roaring bitmap in its portable form."""
    bitmaps = _cut(rows, _BITMAP_BITS)
    out = pack("<Q", len(bitmaps))
    for upper, parts in bitmaps.items():
        out += pack("<I", upper) + _bitmap32(parts)
    return out


def _bitmap32(rows: Sequence[RowRange]) -> bytes:
    containers = _cut(rows, _CONTAINER_BITS)
    count = len(containers)
    head = pack("<I", _RUN_COOKIE | (count - 1) << 16)
    head += ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    bodies = []
    for upper, runs in containers.items():
        head += pack("<HH", upper, count_rows(runs) - 1)
        numbers = [number for start, end in runs for number in (start, end - start - 1)]
        bodies.append(pack(f"<{1 + len(numbers)}H", len(runs), *numbers))
    if count >= _LEAST_WITH_OFFSETS:
        at = len(head) + 4 * count
        for body in bodies:
            head += pack("<I", at)
            at += len(body)
    return head + b"".join(bodies)


def _cut(rows: Sequence[RowRange], bits: int) -> dict[int, list[RowRange]]:
    """Return the parts of ranges between multiples of ``2**bits``, counted from there, by which."""
    size = 1 << bits
    parts: dict[int, list[RowRange]] = {}
    for start, end in rows:
        at = start
        while at < end:
            upper, low = at >> bits, at & (size - 1)
            length = min(end - at, size - low)
            parts.setdefault(upper, []).append((low, low + length))
            at += length
    return parts
