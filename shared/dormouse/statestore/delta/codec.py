"""A delta: what one commit changes, and its stored form, packed as small as it gets.

The form is MessagePack, compressed: segments and snapshots, which replace deltas soon, are Parquet
that any reader opens. A compaction of ten shards takes some 700 bytes, where Parquet takes 2,700
and ten times the CPU time; as an item it costs one write unit. Its parts, one after the other:

    "DMdelta"   7 bytes that no other file of Dormouse begins with
    format      1 byte: 5, or 6 if it carries copies of other deltas
    checksum    8 bytes of BLAKE2b over all other bytes and the identity of the delta
    rows        zlib of MessagePack: a list with a map for each transaction (`rows`). In format 6 a
                pair: that list, and a list with a pair for each delta carried, its id and its list

So one checksum holds for a delta and for what it carries.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.model.transactions import Entry, RestoreVersion
from dormouse.statestore.delta.rows import packed_rows, unpacked_entries
from dormouse.stored.decoding import raise_corrupt

FORMAT, CARRYING = 5, 6
_MAGIC = b"DMdelta"
_DIGEST_BYTES = 8
_SUM_AT = len(_MAGIC) + 1
_ROWS_AT = _SUM_AT + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Delta:
    """The entries of one commit, under the id which the log has of it."""

    id: str
    entries: tuple[Entry, ...]

    @property
    def restores(self) -> bool:
        """Whether it restores a version, of which there is a snapshot under its id."""
        return any(isinstance(entry.transaction, RestoreVersion) for entry in self.entries)


def identity_of(state_id: str, blob_id: str) -> str:
    """Return the identity of a delta among those of all tables; its checksum covers it."""
    return f"{state_id}/{blob_id}"


class _Carrying(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    rows: msgspec.Raw
    carried: tuple[tuple[bytes, msgspec.Raw], ...]


@dataclass(frozen=True, slots=True)
class StoredDelta:
    """A delta that was read and is as it was written; `where` names it in errors."""

    rows: bytes | msgspec.Raw
    carried: dict[str, msgspec.Raw]
    where: str

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its own entries. Raises CorruptDataError: they are of no known form."""
        return self._entries(self.rows, self.where)

    def entries_of(self, delta_id: str) -> tuple[Entry, ...]:
        """Return the entries of a delta that it carries. Raises CorruptDataError as `entries`."""
        return self._entries(self.carried[delta_id], f"delta {delta_id} in {self.where}")

    def _entries(self, rows: bytes | msgspec.Raw, where: str) -> tuple[Entry, ...]:
        with raise_corrupt(f"{where} is not a readable delta"):
            return unpacked_entries(rows, where)


def encode_delta(
    entries: Sequence[Entry], identity: str, carried: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """Return the stored form of the entries of one delta, which contains its identity.

    It carries other deltas: the id and the packed rows of each.
    """
    head, rows = _MAGIC + bytes([CARRYING if carried else FORMAT]), packed_rows(entries)
    if carried:
        others = tuple((bytes.fromhex(name), msgspec.Raw(of)) for name, of in carried)
        rows = msgspec.msgpack.encode(_Carrying(msgspec.Raw(rows), others))
    body = zlib.compress(rows)
    return head + _digest(head, body, identity) + body


def open_delta(body: bytes, identity: str, where: str) -> StoredDelta:
    """Return a delta with those that it carries; `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged or foreign, another delta than `identity`, or from a later
            version of Dormouse.
    """
    head, checksum, packed = body[:_SUM_AT], body[_SUM_AT:_ROWS_AT], body[_ROWS_AT:]
    if not head.startswith(_MAGIC) or checksum != _digest(head, packed, identity):
        raise CorruptDataError(f"{where} is not the Dormouse delta that was written there")
    if head[-1] not in (FORMAT, CARRYING):
        raise CorruptDataError(
            f"{where} is a delta of format {head[-1]}; those known here are {FORMAT} and "
            f"{CARRYING}",
            hint="it was written by a later version: upgrade this one"
            if head[-1] > FORMAT
            else "it was written by an earlier version: read it with that one",
        )
    with raise_corrupt(f"{where} is not a readable delta"):
        rows = _decompressed(packed)
        if head[-1] == FORMAT:
            return StoredDelta(rows, {}, where)
        found = msgspec.msgpack.decode(rows, type=_Carrying)
        return StoredDelta(found.rows, {name.hex(): of for name, of in found.carried}, where)


def decode_delta(body: bytes, identity: str, where: str) -> tuple[Entry, ...]:
    """Return the entries of a delta. Raises CorruptDataError as `open_delta`."""
    return open_delta(body, identity, where).entries


def _decompressed(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _digest(head: bytes, packed: bytes, identity: str) -> bytes:
    return blake2b(head + packed + identity.encode(), digest_size=_DIGEST_BYTES).digest()
