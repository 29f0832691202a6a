"""The stored form of the key index: blocks of rows, and the index that says where each lies.

It lies within a snapshot or an increment, before the footer of that Parquet file, where readers of
Parquet do not look. So there is one object, one request to write it, and one to delete it. A reader
of a few keys fetches the end of the object, which has the index, and then the blocks it needs. Its
parts, one after the other:

    blocks      each is a small Parquet file (`rows`), compressed once more, which saves a tenth:
                its footer and the heads of its columns are not compressed in it
    index       JSON, compressed: facts of the state; of each block the key where it begins, its
                size, and its checksum; of a shared block also where its keys end; the same of the
                increments before this one, so that one request tells where all their blocks lie
    sizes       8 bytes: how many all of this has; 4 bytes: how many the index has
    checksum    16 bytes of BLAKE2b over the index, the sizes and the id of the table
    format      1 byte: 1
    "DMbykey"   7 bytes
    footer      of the Parquet file, and the 8 bytes that say how long it is

The checksum of the Parquet file is that of the file without its key index, so who reads all of the
state need not fetch it.
"""

from __future__ import annotations

import io
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import KeyRange
from dormouse.schema.key_types import KeyTypes
from dormouse.statestore.by_key.rows import SCHEMA, Block, SharedBlock, distinct_rows
from dormouse.stored.decoding import decode_json, raise_corrupt

FORMAT = 1
_TAIL_BYTES, _TAIL_SHARE = 20 * 1024, 2048
_MAGIC = b"DMbykey"
_INDEX_SUM, _BLOCK_SUM = 16, 8
_SIZES = struct.Struct(">QI")
_MARK = bytes([FORMAT]) + _MAGIC
_TRAILER = _SIZES.size + _INDEX_SUM + len(_MARK)


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an index says of the state; `after` is the version that an increment follows."""

    after: int
    version: int
    time_ms: int
    generation: int
    key_types: KeyTypes


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    fence: bytes
    size_bytes: int
    checksum: bytes


class _SharedPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    low: bytes
    high: bytes | None
    size_bytes: int
    checksum: bytes


class _Earlier(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The index of an increment before this one, whose last block ends at `end`."""

    id: str
    after: int
    version: int
    end: int
    places: tuple[_Place, ...]
    shared: tuple[_SharedPlace, ...]


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Blocks and then shared blocks, in the order in which they lie."""

    facts: Facts
    places: tuple[_Place, ...]
    shared: tuple[_SharedPlace, ...] = ()
    before: tuple[_Earlier, ...] = ()


class KeyIndex:
    """The index of one object: where the blocks of some keys lie."""

    def __init__(self, stored: _Stored, end: int) -> None:
        """Hold an index which begins at `end` of its object, where the last block ends."""
        self._stored, self._end = stored, end
        self.facts, self._shared = stored.facts, stored.shared
        self._places: tuple[_Place | _SharedPlace, ...] = (*stored.places, *stored.shared)
        self._fences = [place.fence for place in stored.places]
        sizes = [place.size_bytes for place in self._places]
        at = end - sum(sizes)
        self._starts = []
        for size_bytes in sizes:
            self._starts.append(at)
            at += size_bytes

    def __len__(self) -> int:
        """Count the blocks, without shared ones."""
        return len(self._fences)

    @property
    def earlier(self) -> dict[str, KeyIndex]:
        """The indexes of the increments before this one, by their ids."""
        found = {}
        for each in self._stored.before:
            facts = msgspec.structs.replace(self.facts, after=each.after, version=each.version)
            found[each.id] = KeyIndex(_Stored(facts, each.places, each.shared), each.end)
        return found

    def as_earlier(self, increment_id: str) -> _Earlier:
        """Return this index as that of a later increment has it."""
        facts = self.facts.after, self.facts.version
        places = self._stored.places, self._stored.shared
        return _Earlier(increment_id, *facts, self._end, *places)

    @property
    def numbers(self) -> range:
        """The numbers of all blocks; those of shared ones are the last."""
        return range(len(self._places))

    def blocks(self, wanted: Iterable[KeyRange]) -> list[int]:
        """Return the numbers of the blocks that have all rows of the keys in some ranges."""
        found: set[int] = set()
        for span in wanted:
            low, high = span.low, span.high
            first = max(bisect_right(self._fences, low) - 1, 0)
            last = len(self) if high is None else bisect_left(self._fences, high)
            found.update(range(first, min(max(last, first + 1), len(self))))
            for number, place in enumerate(self._shared, len(self)):
                if (high is None or place.low <= high) and (
                    place.high is None or low <= place.high
                ):
                    found.add(number)
        return sorted(found)

    def place(self, number: int) -> tuple[int, int]:
        """Return where a block begins and ends in its object."""
        start = self._starts[number]
        return start, start + self._places[number].size_bytes

    def rows(self, number: int, body: bytes, where: str) -> pa.Table:
        """Return the rows of a block that was read; `where` names its object in errors.

        Raises:
            CorruptDataError: it is damaged.
        """
        place = self._places[number]
        if _digest(body, _BLOCK_SUM) != place.checksum:
            raise CorruptDataError(f"block {number} of the key index of {where} is damaged")
        try:
            file = pa.BufferReader(zlib.decompress(body))
            # A thread of Arrow that still holds the body when Python ends would abort the process.
            rows = pq.ParquetFile(file).read(use_threads=False)
            return rows.cast(SCHEMA)
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            problem = f"block {number} of the key index of {where} cannot be read: {error}"
            raise CorruptDataError(problem) from error


def encode_key_index(
    table_id: str,
    facts: Facts,
    blocks: Iterable[Block | SharedBlock],
    before: Mapping[str, KeyIndex] | None = None,
) -> bytes:
    """Return blocks and their index, as they lie in the object of a snapshot or increment.

    `before` are the indexes of the increments before this one, by their ids.
    """
    bodies, places = [], []
    shared_bodies, shared = [], []
    for block in blocks:
        body = _encode_rows(block.rows)
        of_body = len(body), _digest(body, _BLOCK_SUM)
        if isinstance(block, SharedBlock):
            shared_bodies.append(body)
            shared.append(_SharedPlace(block.low, block.high, *of_body))
        else:
            bodies.append(body)
            places.append(_Place(block.fence, *of_body))
    bodies += shared_bodies
    earlier = tuple(index.as_earlier(name) for name, index in (before or {}).items())
    stored = _Stored(facts, tuple(places), tuple(shared), earlier)
    index = zlib.compress(msgspec.json.encode(stored))
    sizes = _SIZES.pack(sum(map(len, bodies)) + len(index) + _TRAILER, len(index))
    return b"".join([*bodies, index, sizes, _index_sum(index, sizes, table_id), _MARK])


def with_key_index(body: bytes, section: bytes) -> bytes:
    """Return a Parquet file with a key index before its footer."""
    at = len(body) - _footer_bytes(body)
    return b"".join([body[:at], section, body[at:]])


def without_key_index(body: bytes) -> bytes:
    """Return the Parquet file alone. Its key index may be of any format, for all end alike."""
    start, end = place_of_key_index(body, len(body))
    return body if start == end else body[:start] + body[end:]


def place_of_key_index(tail: bytes, size_bytes: int) -> tuple[int, int]:
    """Return where the key index begins and ends in an object of so many bytes, by the end of it;
    it ends where it begins if there is none.
    """
    footer = _footer_bytes(tail)
    end, trailer_at = size_bytes - footer, len(tail) - footer - _TRAILER
    if trailer_at < 0 or tail[len(tail) - footer - len(_MAGIC) : len(tail) - footer] != _MAGIC:
        return end, end
    size, _ = _SIZES.unpack_from(tail, trailer_at)
    return max(end - int(size), 0), end


def _encode_rows(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=["low", "high"],  # type: ignore[arg-type]  # the stubs know no names; those of a partition are the same in all its rows
        write_statistics=False,
        store_schema=False,
    )
    return zlib.compress(sink.getvalue())


def all_rows(table_id: str, body: bytes, where: str) -> pa.Table | None:
    """Return all rows of the key index of an object, each once; None if it has none.

    Raises:
        CorruptDataError: it is damaged.
    """
    alone = without_footer(body)
    index = decode_key_index(table_id, alone, len(alone), where)
    if index is None:
        return None
    found = [SCHEMA.empty_table()]
    for number in index.numbers:
        start, end = index.place(number)
        found.append(index.rows(number, body[start:end], where))
    return distinct_rows(pa.concat_tables(found).combine_chunks())


def tail_bytes(size_bytes: int, before_bytes: int = 0) -> int:
    """Return how much of the end of an object of so many bytes has most likely all of its index.

    The footer of a Parquet file has 14 KB, a place in the index some 35 bytes for 20 KB of blocks,
    which are a third of a snapshot and half of an increment. It also has those of increments before
    it, of `before_bytes` together.
    """
    places = size_bytes // _TAIL_SHARE + 2 * before_bytes // _TAIL_SHARE
    return min(_TAIL_BYTES + places, size_bytes)


def index_place(body: bytes) -> tuple[int, int] | None:
    """Return how many bytes the index of an object has, and how many follow it in the object, by
    the end of it; None if it has no index of a form that is known here.

    `body` may be so short that it has only a part of the index, or (`bytes_needed`) not even that.
    """
    footer = _footer_bytes(body)
    end = len(body) - footer
    if end < _TRAILER or body[end - len(_MARK) : end] != _MARK:
        return None
    _, size = _SIZES.unpack_from(body, end - _TRAILER)
    return _TRAILER + int(size), footer


def bytes_needed(tail: bytes) -> int | None:
    """Return how many bytes of the end of an object hold its index and all that follows; None if it
    has no index of a form that is known here.

    If `tail` is so short that this does not show in it, return how long it must be for that.
    """
    footer = _footer_bytes(tail)
    if len(tail) - footer < _TRAILER:
        return footer + _TRAILER
    place = index_place(tail)
    return place and sum(place)


def without_footer(tail: bytes) -> bytes:
    """Return the end of an object without its footer: it ends where the index does."""
    return tail[: len(tail) - _footer_bytes(tail)]


def decode_key_index(table_id: str, tail: bytes, end: int, where: str) -> KeyIndex | None:
    """Return the index which `tail` ends with, as its object does at `end`; None if it is of no
    form that is known here. `where` names the object in errors.

    Raises:
        CorruptDataError: it is damaged, or another table's.
    """
    if not tail.endswith(_MARK):
        return None
    trailer = tail[len(tail) - _TRAILER :]
    sizes, checksum = trailer[: _SIZES.size], trailer[_SIZES.size :][:_INDEX_SUM]
    _, size = _SIZES.unpack(sizes)
    index = tail[max(len(tail) - _TRAILER - size, 0) : len(tail) - _TRAILER]
    if checksum != _index_sum(index, sizes, table_id):
        raise CorruptDataError(f"the key index of {where} is damaged, or of another table")
    with raise_corrupt(f"the key index of {where} cannot be read"):
        try:
            stored = decode_json(zlib.decompress(index), _Stored)
        except zlib.error as error:
            raise ValueError(str(error)) from error
    return KeyIndex(stored, end - _TRAILER - size)


def _footer_bytes(body: bytes) -> int:
    """Return how many bytes the footer of a Parquet file has, by its end: with its length, in four
    of them, and the four that mark it.
    """
    return int.from_bytes(body[-8:-4], "little") + 8


def _index_sum(index: bytes, sizes: bytes, table_id: str) -> bytes:
    return _digest(index + sizes + table_id.encode(), _INDEX_SUM)


def _digest(body: bytes, size: int) -> bytes:
    return blake2b(body, digest_size=size).digest()
