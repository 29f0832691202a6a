"""Values in the table `records`: JSON by kind, owner and key, each with a checksum.

SQLite does not notice flipped bits. The checksum covers the place of a record too, so that one in
the place of another is noticed. It is 8 bytes of BLAKE2b, against damage and not against forgery.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.stored.decoding import decode_json

_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is stored; `read` verifies it."""

    kind: str
    owner: str
    key: str
    body: str
    sum: bytes

    @property
    def is_whole(self) -> bool:
        """Whether it is what was written there."""
        return self.sum == _digest(self.kind, self.owner, self.key, self.body)

    def read(self, form: Any) -> Any:
        """Return the value, of the type `form`.

        Raises:
            CorruptDataError: it is not what was written there.
            ValueError: it is not of this form.
        """
        if not self.is_whole:
            raise CorruptDataError("its checksum is not that of what it holds")
        return decode_json(self.body, form)


def fetch(connection: sqlite3.Connection, kind: str, owner: str, key: str) -> Record | None:
    """Return a record; None if there is none."""
    where = "kind = ? AND owner = ? AND key = ?"
    return next(select(connection, where, kind, owner, key), None)


def select(connection: sqlite3.Connection, where: str, *values: object) -> Iterator[Record]:
    """Yield the records for which an SQL condition holds, by kind, owner and key."""
    rows = connection.execute(
        f"SELECT kind, owner, key, body, sum FROM records WHERE {where} ORDER BY kind, owner, key",
        values,
    )
    yield from (Record(*row) for row in rows)


def store(
    connection: sqlite3.Connection,
    kind: str,
    owner: str,
    key: str,
    value: object,
    *,
    expires_ms: int | None = None,
) -> None:
    """Store a value, in the place of what was there."""
    body = msgspec.json.encode(value).decode()
    connection.execute(
        "INSERT OR REPLACE INTO records (kind, owner, key, body, sum, expires_ms)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (kind, owner, key, body, _digest(kind, owner, key, body), expires_ms),
    )


def copy_to(connection: sqlite3.Connection, kind: str, record: Record) -> None:
    """Store the body of a record as one of another kind."""
    place = (kind, record.owner, record.key)
    connection.execute(
        "INSERT OR REPLACE INTO records (kind, owner, key, body, sum) VALUES (?, ?, ?, ?, ?)",
        (*place, record.body, _digest(*place, record.body)),
    )


def remove(connection: sqlite3.Connection, kind: str, owner: str, key: str) -> None:
    """Remove a record; one that is not there is no error."""
    connection.execute(
        "DELETE FROM records WHERE kind = ? AND owner = ? AND key = ?", (kind, owner, key)
    )


def remove_expired(connection: sqlite3.Connection, now_ms: int) -> None:
    """Remove the records whose time is over."""
    connection.execute("DELETE FROM records WHERE expires_ms <= ?", (now_ms,))


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=_DIGEST_BYTES).digest()
