"""Write and read Avro container files: the form of Iceberg's manifests.

Equal records give equal bytes: the marker between blocks is a digest of the header, and all records
are one block. Only the types that manifests need are known.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from dormouse.errors import CorruptDataError

Schema: TypeAlias = "str | list[Any] | dict[str, Any]"
"""An Avro schema, as parsed JSON."""
_Encode: TypeAlias = Callable[[bytearray, Any], None]
_Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
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
    header = bytearray(_MAGIC)
    described = {"avro.schema": _dumps(schema), "avro.codec": "deflate", **metadata}
    _put_long(header, len(described))
    for key, value in described.items():
        _put_text(header, key)
        _put_text(header, value)
    _put_long(header, 0)
    sync = blake2b(header, digest_size=_SYNC_BYTES).digest()
    header += sync
    if count:
        deflated = zlib.compress(bytes(block), 9, -zlib.MAX_WBITS)
        _put_long(header, count)
        _put_bytes(header, deflated)
        header += sync
    return bytes(header)


def read_container(data: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the header's metadata and the records of a container file that `write_container`
    wrote.

    Raises:
        CorruptDataError: it is none.
    """
    if not data.startswith(_MAGIC):
        raise CorruptDataError("it is not an Avro file")
    try:
        return _read(data)
    except (IndexError, KeyError, ValueError, zlib.error) as error:
        raise CorruptDataError(f"it is not an Avro file of Dormouse: {error}") from error


def _read(data: bytes) -> tuple[dict[str, str], list[dict[str, Any]]]:
    metadata, at = {}, len(_MAGIC)
    count, at = _get_long(data, at)
    for _ in range(count):
        key, at = _get_text(data, at)
        metadata[key], at = _get_text(data, at)
    _, at = _get_long(data, at)
    sync, at = data[at : at + _SYNC_BYTES], at + _SYNC_BYTES
    if len(sync) < _SYNC_BYTES:
        raise ValueError("it is cut off")
    decode, records = _decoder(json.loads(metadata["avro.schema"])), []
    while at < len(data):
        count, at = _get_long(data, at)
        deflated, at = _get_bytes(data, at)
        block, place = zlib.decompress(deflated, -zlib.MAX_WBITS), 0
        for _ in range(count):
            record, place = decode(block, place)
            records.append(record)
        if place != len(block) or data[at : at + _SYNC_BYTES] != sync:
            raise ValueError("a block is damaged")
        at += _SYNC_BYTES
    return metadata, records


def _dumps(schema: Schema) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _encoder(schema: Schema) -> _Encode:
    """Return the function that appends a value of a schema to a buffer."""
    match schema:
        case "int" | "long":
            return _put_long
        case "string":
            return _put_text
        case "bytes":
            return _put_bytes
        case "boolean":
            return lambda out, value: out.append(value)
        case ["null", inner]:
            return _optional_encoder(_encoder(inner))
        case {"type": "record", "fields": fields}:
            return _record_encoder(list(fields))
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
    """Append an integer: zigzag, then seven bits a byte, the lowest first."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, value: bytes) -> None:
    _put_long(out, len(value))
    out += value


def _put_text(out: bytearray, value: str) -> None:
    _put_bytes(out, value.encode())


def _decoder(schema: Schema) -> _Decode:
    """Return the function that reads a value of a schema at a place; it returns where it ends."""
    match schema:
        case "int" | "long":
            return _get_long
        case "string":
            return _get_text
        case "bytes":
            return _get_bytes
        case "boolean":
            return lambda data, at: (bool(data[at]), at + 1)
        case ["null", inner]:
            return _optional_decoder(_decoder(inner))
        case {"type": "record", "fields": fields}:
            return _record_decoder(list(fields))
        case {"type": "array", "items": items}:
            return _array_decoder(_decoder(items))
    raise ValueError(f"no Avro schema of a manifest: {_dumps(schema)}")


def _optional_decoder(decode: _Decode) -> _Decode:
    return lambda data, at: decode(data, at + 1) if data[at] else (None, at + 1)


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
        count, at = _get_long(data, at)
        while count:
            for _ in range(count):
                value, at = decode(data, at)
                values.append(value)
            count, at = _get_long(data, at)
        return values, at

    return get


def _get_long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _get_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _get_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("it is cut off")
    return data[at : at + length], at + length


def _get_text(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _get_bytes(data, at)
    return raw.decode(), at
