"""Blobs: the immutable deltas, segments and snapshots of one table, by id.

This is one of the three ports of the engine; the other two, the log and its head, are in
`log.pages`. Its adapters are in `items.blobs`.

An id is 32 hex digits that begin with the time of its making, so ids sort by age. It is made for
one blob: what is put again under it has the same bytes. A blob is garbage when its id is below the
low-water mark and neither a page of the log nor the manifest names it.
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

import msgspec

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.state.state import Entry, RestoreTable
from dormouse.stored.decoding import decode_packed, raise_corrupt

ABOVE_ALL_IDS = "~"
"""Every id is below this."""


class MissingBlobError(NotFoundError):
    """A blob, or a part of it, does not exist; `blob_id` says which, the message names the part."""

    def __init__(self, blob_id: str, what: str) -> None:
        super().__init__(what)
        self.blob_id = blob_id


@dataclass(frozen=True, slots=True)
class BlobRange:
    """The bytes from `start` up to `end` of a blob that has `size_bytes`."""

    blob_id: str
    size_bytes: int
    start: int
    end: int


class BlobStore(Protocol):
    """The blobs of one kind of one table. Every call may raise UnavailableError.

    A `put` that raised may have stored the blob or a part of it. That does no harm: nothing names
    the blob yet, so it is garbage.
    """

    def put(self, blob_id: str, body: bytes) -> None:
        """Store a blob under a new id, however large it is; retry what fails.

        Repeatable: a blob that exists under this id has these bytes.
        """

    def get(self, blob_ids: Sequence[str]) -> list[bytes]:
        """Return the blobs of these ids, in this order, several fetched at once.

        Raises:
            MissingBlobError: one of them does not exist, or lacks a part.
            CorruptDataError: one of them is damaged; the message names it.
        """

    def stream(self, blob_ids: Sequence[str]) -> Iterator[bytes]:
        """Yield the blobs of these ids as they come, in this order, several fetched at once.
        Raises: as `get`, once it comes to that blob.
        """

    def get_ranges(self, ranges: Sequence[BlobRange]) -> list[bytes]:
        """Return parts of blobs, in this order, several fetched at once.

        Raises:
            MissingBlobError: a blob does not exist, or lacks what is wanted of it.
            CorruptDataError: one has another size, or its storage says that it is damaged.
        """

    def delete_stale(self, before: str, needed: Collection[str]) -> None:
        """Delete all blobs, and parts of blobs, whose ids are below `before` and not `needed`."""


# What is done at once: a commit stores its delta and reads those of others, many together; who
# reads a part of the state reads what is kept of it and what was committed since.

_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")

AT_ONCE = 32
"""So many requests are under way together."""


class Overlap(Protocol):
    """Does two things and waits for both."""

    def __call__(self, first: Callable[[], _Result], second: Callable[[], object], /) -> _Result:
        """Return the result of `first`. Raises what either raises; of two errors, that of `first`.

        Both have ended when it returns or raises.
        """


class Fetch(Protocol):
    """Requests several things at once."""

    def __call__(
        self, get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted], /
    ) -> Iterator[_Result]:
        """Yield what `get` returns for each, in order, each as soon as those before it are there.
        Raises what `get` raises. `get` may be called twice for one, and only reads.
        """


def in_turn(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do one after the other: for tests, and where requests take no time."""
    result = first()
    second()
    return result


def side_by_side(first: Callable[[], _Result], second: Callable[[], object]) -> _Result:
    """Do `second` on a thread of its own meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        beside = thread.submit(second)
        result = first()
    beside.result()
    return result


def fetched(
    get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted], at_once: int = AT_ONCE
) -> Iterator[_Result]:
    """Request each once; a `Fetch`."""
    if len(requests) < 2:
        yield from map(get, requests)
        return
    with ThreadPoolExecutor(min(len(requests), at_once)) as pool:
        yield from pool.map(get, requests)


# A delta: what one commit changes, and its stored form, packed as small as it gets.
#
# The form is MessagePack, compressed. A compaction of ten shards takes some 700 bytes, where
# Parquet takes 2,700 and ten times the CPU time; as an item it costs one write unit. Its parts, one
# after the other:
#
#     "DMdelta"   7 bytes that no other file of Dormouse begins with
#     format      1 byte: 1
#     checksum    8 bytes of BLAKE2b over all other bytes and the identity of the delta
#     body        zlib of MessagePack: its entries (`state.state`), and a list with a pair for
#                 each delta that it carries a copy of: its id and its entries
#
# So one checksum holds for a delta and for what it carries.


T = TypeVar("T")

FORMAT = 1
_MAGIC = b"DMdelta"
_DIGEST_BYTES = 8
_SUM_AT = len(_MAGIC) + 1
_BODY_AT = _SUM_AT + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Delta:
    """The entries of one commit, under the id which the log has of it."""

    id: str
    entries: tuple[Entry, ...]

    @property
    def restores(self) -> bool:
        """Whether it restores a version, of which there is a snapshot under its id."""
        return any(isinstance(entry.transaction, RestoreTable) for entry in self.entries)


def identity_of(state_id: str, blob_id: str) -> str:
    """Return the identity of a delta among those of all tables; its checksum covers it."""
    return f"{state_id}/{blob_id}"


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    entries: msgspec.Raw
    carried: tuple[tuple[bytes, msgspec.Raw], ...]


@dataclass(frozen=True, slots=True)
class StoredDelta:
    """A delta that was read and is as it was written; `where` names it in errors."""

    packed: msgspec.Raw
    carried: dict[str, msgspec.Raw]
    where: str

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its own entries. Raises CorruptDataError: they are of no known form."""
        return unpacked_entries(self.packed, self.where)

    def entries_of(self, delta_id: str) -> tuple[Entry, ...]:
        """Return the entries of a delta that it carries. Raises CorruptDataError as `entries`."""
        return unpacked_entries(self.carried[delta_id], f"delta {delta_id} in {self.where}")


def packed_entries(entries: Sequence[Entry]) -> bytes:
    """Return entries as MessagePack."""
    return msgspec.msgpack.encode(entries)


def unpacked_entries(packed: bytes | msgspec.Raw, where: str) -> tuple[Entry, ...]:
    """Return the result of `packed_entries`. Raises CorruptDataError as `read_entries`."""
    return read_entries(packed, where, decode_packed)


def read_entries(stored: T, where: str, decode: Callable[[T, Any], Any]) -> tuple[Entry, ...]:
    """Return the stored entries of a delta, which `where` names in errors.
    Raises CorruptDataError: they hold what is no known change.
    """
    hint = "if a later version of Dormouse wrote it, upgrade this one"
    with raise_corrupt(f"{where} holds what no known transaction looks like", hint=hint):
        entries: tuple[Entry, ...] = decode(stored, tuple[Entry, ...])
        return entries


def encode_delta(
    entries: Sequence[Entry], identity: str, carried: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """Return the stored form of the entries of one delta, which contains its identity.

    It carries other deltas: the id and the packed entries of each.
    """
    others = tuple((bytes.fromhex(name), msgspec.Raw(of)) for name, of in carried)
    form = _Stored(msgspec.Raw(packed_entries(entries)), others)
    head, body = _MAGIC + bytes([FORMAT]), zlib.compress(msgspec.msgpack.encode(form))
    return head + _digest(head, body, identity) + body


def open_delta(body: bytes, identity: str, where: str) -> StoredDelta:
    """Return a delta with those that it carries; `where` names it in errors.
    Raises CorruptDataError: it is damaged or foreign, another delta than `identity`, or from a
    later version of Dormouse.
    """
    head, checksum, packed = body[:_SUM_AT], body[_SUM_AT:_BODY_AT], body[_BODY_AT:]
    if not head.startswith(_MAGIC) or checksum != _digest(head, packed, identity):
        raise CorruptDataError(f"{where} is not the Dormouse delta that was written there")
    if head[-1] != FORMAT:
        raise CorruptDataError(
            f"{where} is a delta of format {head[-1]}; the one known here is {FORMAT}",
            hint="it was written by a later version: upgrade this one",
        )
    with raise_corrupt(f"{where} is not a readable delta"):
        form = decode_packed(zlib.decompress(packed), _Stored)
        carried = {name.hex(): entries for name, entries in form.carried}
        return StoredDelta(form.entries, carried, where)


def _digest(head: bytes, packed: bytes, identity: str) -> bytes:
    return blake2b(head + packed + identity.encode(), digest_size=_DIGEST_BYTES).digest()
