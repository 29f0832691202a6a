"""The footer of a shard: what Dormouse says about it beside the rows.

Written by `writing`; read to split partitions, to adopt a shard another run wrote, and to rebuild
a state. Its form is described in docs/shard-format.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.model.keys import Key, decode_key, encode_key
from dormouse.model.schema import Schema
from dormouse.ports import Storage

METADATA_KEY = "dormouse"
VERSION = 1
MAGIC = b"PAR1"
_ENDING_BYTES = 8  # the length of the footer in four bytes, and the magic


@dataclass(frozen=True, slots=True)
class ShardFooter:
    """What a shard says about itself.

    `samples` are row keys in strictly ascending order, each with the number of rows whose key is
    less. `sources` and `inputs` are what the job made the shard from: ingested sources, or shards.
    """

    table_id: str
    shard_id: str
    schema: Schema
    partition: str
    job: str
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    rows: int
    min_key: Key
    max_key: Key
    samples: tuple[tuple[Key, int], ...]

    def rows_below(self, key: Key) -> int:
        """Give the rows whose row key is less than `key`; exact at samples, else interpolated."""
        if key <= self.min_key:
            return 0
        if key > self.max_key:
            return self.rows
        at = bisect_left(self.samples, key, key=lambda sample: sample[0])
        if at < len(self.samples) and self.samples[at][0] == key:
            return self.samples[at][1]
        low = self.samples[at - 1][1] + 1 if at else 1
        high = self.samples[at][1] if at < len(self.samples) else self.rows - 1
        return (low + high) // 2


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form; keys are hexadecimal `encode_key`."""

    v: int
    table_id: str
    shard_id: str
    schema: dict[str, object]
    partition: str
    job: str
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    rows: Annotated[int, msgspec.Meta(ge=1)]
    min_key: str
    max_key: str
    samples: tuple[tuple[str, int], ...]


def encode_footer(footer: ShardFooter) -> bytes:
    """Give the value of the Parquet metadata key ``dormouse``."""
    return msgspec.json.encode(
        _Stored(
            v=VERSION,
            table_id=footer.table_id,
            shard_id=footer.shard_id,
            schema=footer.schema.to_json(),
            partition=footer.partition,
            job=footer.job,
            sources=footer.sources,
            inputs=footer.inputs,
            rows=footer.rows,
            min_key=encode_key(footer.min_key).hex(),
            max_key=encode_key(footer.max_key).hex(),
            samples=tuple((encode_key(key).hex(), rank) for key, rank in footer.samples),
        )
    )


def decode_footer(stored: bytes, path: str) -> ShardFooter:
    """Parse what `encode_footer` gave; `path` names the shard in errors.

    Raises:
        CorruptDataError: it is no such footer.
    """
    try:
        body = msgspec.json.decode(stored, type=_Stored)
        if body.v != VERSION:
            raise CorruptDataError(f"shard {path} has a footer of the unknown version {body.v}")
        return ShardFooter(
            table_id=body.table_id,
            shard_id=body.shard_id,
            schema=Schema.from_json(body.schema),
            partition=body.partition,
            job=body.job,
            sources=body.sources,
            inputs=body.inputs,
            rows=body.rows,
            min_key=decode_key(bytes.fromhex(body.min_key)),
            max_key=decode_key(bytes.fromhex(body.max_key)),
            samples=tuple((decode_key(bytes.fromhex(key)), rank) for key, rank in body.samples),
        )
    except (msgspec.DecodeError, InvalidRequestError, ValueError) as error:
        raise CorruptDataError(f"the footer of shard {path} is damaged: {error}") from error


def read_footer(storage: Storage, path: str, size_bytes: int) -> ShardFooter:
    """Read the footer of a shard of known size, by one or two ranged reads.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or no shard of ours.
    """
    metadata = read_metadata(storage, path, size_bytes)
    stored = (metadata.metadata or {}).get(METADATA_KEY.encode())
    if stored is None:
        raise CorruptDataError(f"{path} is a Parquet file, but not one that Dormouse wrote")
    footer = decode_footer(stored, path)
    if footer.rows != metadata.num_rows:
        raise CorruptDataError(
            f"{path} holds {metadata.num_rows} rows, but its footer speaks of {footer.rows}"
        )
    return footer


def read_metadata(storage: Storage, path: str, size_bytes: int) -> pq.FileMetaData:
    """Read the Parquet metadata of a shard of known size, by one or two ranged reads.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or no Parquet file.
    """
    with storage.open(path, size_bytes) as file:
        tail = _tail(file, path, size_bytes, _likely_footer_bytes(size_bytes))
        (length,) = struct.unpack("<I", tail[-_ENDING_BYTES:-4])
        if length + _ENDING_BYTES > size_bytes:
            raise CorruptDataError(f"{path} is damaged: its footer is longer than itself")
        if length + _ENDING_BYTES > len(tail):
            tail = _tail(file, path, size_bytes, length + _ENDING_BYTES)
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise CorruptDataError(f"the Parquet footer of {path} is damaged: {error}") from error


def _likely_footer_bytes(size_bytes: int) -> int:
    """Guess a length that most footers are shorter than; they grow with the row groups."""
    return min(size_bytes, 16 * 1024 + size_bytes // 400)


def _tail(file: BinaryIO, path: str, size_bytes: int, length: int) -> bytes:
    file.seek(size_bytes - length)
    tail = file.read(length)
    if len(tail) != length or tail[-4:] != MAGIC or length < _ENDING_BYTES:
        raise CorruptDataError(f"{path} is not a Parquet file of {size_bytes} bytes")
    return tail
