"""The footer of a shard: what Dormouse stores about it beside the rows.

It is written by `writing`. It is read to split partitions, to adopt a shard that another run wrote,
to record in an output where its inputs came from, and to check or rebuild a state.
docs/shard-format.md describes the format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, DamagedShardError
from dormouse.keys.histogram import KeyHistogram
from dormouse.keys.ranges import Key, KeyRange, decode_key, encode_key
from dormouse.model.shards import Shard
from dormouse.model.versions.provenance import Lineage, Provenance
from dormouse.ports.services import Objects, Storage
from dormouse.schema.schema import Schema
from dormouse.shards.format.crcs import TRAILER_BYTES, decode_entry
from dormouse.shards.format.row_groups import estimated_footer_bytes, estimated_index_bytes
from dormouse.shards.format.stored_index import MAGIC, find_entry
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.paths import shard_path

METADATA_KEY = "dormouse"
VERSION = 3
FOOTER_READ_THREADS = 8
TYPICAL_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class ShardFooter:
    """What a shard says about itself.

    `samples` are row keys in strictly ascending order, each with its rank: the number of rows with
    a lesser key.
    """

    table_id: str
    shard_id: str
    schema: Schema
    provenance: Provenance
    rows: int
    min_key: Key
    max_key: Key
    samples: tuple[tuple[Key, int], ...]

    @property
    def keys(self) -> KeyHistogram:
        """The distribution of its row keys."""
        return KeyHistogram(self.samples, self.rows, self.max_key)

    def rows_below(self, key: Key) -> int:
        """Return the number of rows whose row key is less than `key`; exact at
        samples, otherwise interpolated.
        """
        return self.keys.rows_below(key)


class _Identity(msgspec.Struct, frozen=True):
    """The part of the JSON form that identifies the shard."""

    table_id: str
    shard_id: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form; keys are encoded by `encode_key`, in hexadecimal digits."""

    v: int
    table_id: str
    shard_id: str
    schema: dict[str, object]
    range_min: str
    range_max: str | None
    job: str
    written_ms: int
    generation: int
    number: Annotated[int, msgspec.Meta(ge=0)]
    last: bool
    sources: tuple[str, ...]
    inputs: tuple[str, ...]
    superseded: tuple[str, ...]
    completed: tuple[str, ...]
    rows: Annotated[int, msgspec.Meta(ge=1)]
    min_key: str
    max_key: str
    samples: tuple[tuple[str, int], ...]


def encode_footer(footer: ShardFooter) -> bytes:
    """Return the value of the Parquet metadata key ``dormouse``."""
    provenance = footer.provenance
    return msgspec.json.encode(
        _Stored(
            v=VERSION,
            table_id=footer.table_id,
            shard_id=footer.shard_id,
            schema=footer.schema.to_json(),
            range_min=key_to_hex(provenance.range.min),
            range_max=None if provenance.range.max is None else key_to_hex(provenance.range.max),
            job=provenance.job,
            written_ms=provenance.written_ms,
            generation=provenance.generation,
            number=provenance.number,
            last=provenance.last,
            sources=provenance.lineage.sources,
            inputs=provenance.lineage.inputs,
            superseded=provenance.lineage.superseded,
            completed=provenance.lineage.completed,
            rows=footer.rows,
            min_key=key_to_hex(footer.min_key),
            max_key=key_to_hex(footer.max_key),
            samples=tuple((key_to_hex(key), rank) for key, rank in footer.samples),
        )
    )


def decode_footer(stored: bytes, path: str) -> ShardFooter:
    """Decode what `encode_footer` returned; `path` names the shard in errors.

    Raises:
        CorruptDataError: it is not such a footer.
    """
    with raise_corrupt(f"the footer of shard {path} is damaged"):
        body = decode_json(stored, _Stored)
        if body.v != VERSION:
            raise CorruptDataError(f"it is of the unknown version {body.v}")
        return ShardFooter(
            table_id=body.table_id,
            shard_id=body.shard_id,
            schema=Schema.from_json(body.schema),
            provenance=_provenance(body),
            rows=body.rows,
            min_key=key_from_hex(body.min_key),
            max_key=key_from_hex(body.max_key),
            samples=tuple((key_from_hex(key), rank) for key, rank in body.samples),
        )


def _provenance(body: _Stored) -> Provenance:
    return Provenance(
        range=range_from_hex(body.range_min, body.range_max),
        job=body.job,
        written_ms=body.written_ms,
        generation=body.generation,
        number=body.number,
        last=body.last,
        lineage=Lineage(body.sources, body.inputs, body.superseded, body.completed),
    )


def key_to_hex(key: Key) -> str:
    """Return the stored form of a key, in hexadecimal digits."""
    return encode_key(key).hex()


def key_from_hex(stored: str) -> Key:
    """Return the key whose stored form has these hexadecimal digits.
    Raises ValueError if there is none.
    """
    return decode_key(bytes.fromhex(stored))


def range_from_hex(low: str, high: str | None) -> KeyRange:
    """Return the range with these bounds. Raises ValueError if a bound
    is not the stored form of a key.
    """
    return KeyRange(key_from_hex(low), None if high is None else key_from_hex(high))


def read_footers(
    storage: Storage, table_id: str, shards: Iterable[Shard]
) -> Iterator[tuple[Shard, ShardFooter]]:
    """Read the footers of many shards, several at once, and yield them in order.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is truncated, or was not written by Dormouse.
    """

    def read(shard: Shard) -> tuple[Shard, ShardFooter]:
        path = shard_path(table_id, shard.id)
        footer = read_footer(storage, path, shard.size_bytes)
        check_names(path, (footer.table_id, footer.shard_id), (table_id, shard.id))
        return shard, footer

    with ThreadPoolExecutor(FOOTER_READ_THREADS) as threads:
        yield from threads.map(read, shards)


def read_footer(storage: Storage, path: str, size_bytes: int) -> ShardFooter:
    """Read the footer of a shard of known size, with one or two ranged reads. Parquet's description
    of its column chunks, which may take much memory, is not decoded.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or was not written by Dormouse.
    """
    return footer_of(verified_footer(storage, path, size_bytes, TYPICAL_COLUMNS), path)


def footer_of(footer: bytes, path: str) -> ShardFooter:
    """Return what the shard at `path` says about itself in its stored Parquet footer.

    Raises:
        CorruptDataError: it was not written by Dormouse.
    """
    with raise_damaged(path):
        stored = _existing(find_entry(footer, METADATA_KEY), path)
        return _decoded(stored, sum(decode_entry(find_entry(footer), path).rows), path)


def verified_footer(objects: Objects, path: str, size_bytes: int, columns: int) -> bytes:
    """Read the Parquet footer of a shard of known size and what follows it, with one or two ranged
    reads. `columns` is the expected number of Parquet columns.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or its checksum is not that of its bytes.
    """
    footer = _footer(objects, path, size_bytes, columns)
    try:
        checksums.verify(footer)
    except ValueError as error:
        raise _unreadable(path, error) from error
    return footer


def _decoded(stored: bytes, rows: int, path: str) -> ShardFooter:
    footer = decode_footer(stored, path)
    if footer.rows != rows:
        raise CorruptDataError(f"{path} has {rows} rows, but its footer says {footer.rows}")
    return footer


def check_identity(metadata: pq.FileMetaData, path: str, table_id: str, shard: Shard) -> None:
    """Check that the footer read at `path` belongs to the shard that the state names.

    Raises:
        DamagedShardError: it is the footer of another shard, even if that has the same size.
    """
    with raise_damaged(path):
        with raise_corrupt(f"the footer of shard {path} is damaged"):
            found = decode_json(_stored(metadata, path), _Identity)
        check_names(path, (found.table_id, found.shard_id), (table_id, shard.id))
        if metadata.num_rows != shard.rows:
            raise CorruptDataError(
                f"{path} has {metadata.num_rows} rows, but the state says {shard.rows}"
            )


def check_names(path: str, found: tuple[str, str], expected: tuple[str, str]) -> None:
    """Check that a shard says of itself that it is the shard `expected` of a table.

    Raises:
        DamagedShardError: it is another one.
    """
    if found != expected:
        raise DamagedShardError(
            f"{path} is shard {found[1]} of table {found[0]}",
            path=path,
            hint="Dormouse never overwrites an object, so it was replaced by hand",
        )


def _stored(metadata: pq.FileMetaData, path: str) -> bytes:
    return _existing((metadata.metadata or {}).get(METADATA_KEY.encode()), path)


def _existing(stored: bytes | None, path: str) -> bytes:
    if stored is None:
        raise CorruptDataError(f"{path} is a Parquet file, but not one that Dormouse wrote")
    return stored


@contextmanager
def raise_damaged(path: str) -> Iterator[None]:
    """Raise a CorruptDataError of the block as a DamagedShardError
    that names the shard at `path`.
    """
    try:
        yield
    except DamagedShardError:
        raise
    except CorruptDataError as error:
        raise DamagedShardError(str(error), path=path, hint=error.hint) from error


def read_metadata(
    objects: Objects,
    path: str,
    size_bytes: int,
    columns: int = TYPICAL_COLUMNS,
    *,
    is_shard: bool = True,
) -> pq.FileMetaData:
    """Read the Parquet metadata of a shard, or of another file, of known
    size, with one or two ranged reads.

    The footer of a shard has a checksum, which must match. `columns` is the expected number of
    Parquet columns: a second read is needed if the footer is longer than that of such a shard.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or not a Parquet file.
    """
    read = verified_footer if is_shard else _footer
    footer = read(objects, path, size_bytes, columns)
    try:
        return pq.read_metadata(pa.BufferReader(footer))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> DamagedShardError:
    return DamagedShardError(
        f"the Parquet footer of {path} is damaged, or not written by Dormouse: {error}", path=path
    )


def _footer(objects: Objects, path: str, size_bytes: int, columns: int) -> bytes:
    """Read the footer of a file and its trailer, with one or two ranged reads."""
    tail = _tail(objects, path, size_bytes, estimated_footer_bytes(size_bytes, columns))
    footer_bytes = _footer_bytes(tail)
    if footer_bytes > len(tail):
        tail = _tail(objects, path, size_bytes, footer_bytes)
    return tail[-footer_bytes:]


def read_index_entry(objects: Objects, path: str, size_bytes: int, columns: int) -> bytes | None:
    """Read what the footer of a shard has as its index, with one or two ranged reads; return None
    if it has none. `columns` is the expected number of Parquet columns.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated, or not a Parquet file.
    """
    tail = _tail(objects, path, size_bytes, estimated_index_bytes(size_bytes, columns))
    with raise_damaged(path):
        entry = find_entry(tail)
        footer_bytes = _footer_bytes(tail)
        if entry is None and footer_bytes > len(tail):
            entry = find_entry(_tail(objects, path, size_bytes, footer_bytes))
        return entry


def _footer_bytes(tail: bytes) -> int:
    """Return the size of a Parquet footer with the trailer that ends `tail`."""
    (length,) = struct.unpack("<I", tail[-TRAILER_BYTES:-4])
    return int(length) + TRAILER_BYTES


def _tail(objects: Objects, path: str, size_bytes: int, length: int) -> bytes:
    """Return the last `length` bytes of a file, or all of it."""
    with raise_damaged(path), objects.open(path, size_bytes) as file:
        length = min(size_bytes, length)
        file.seek(size_bytes - length)
        tail = file.read(length)
        if len(tail) != length or tail[-4:] != MAGIC or length < TRAILER_BYTES:
            raise CorruptDataError(f"{path} is not a Parquet file of {size_bytes} bytes")
    return tail
