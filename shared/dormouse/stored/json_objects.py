"""The stored form of what is kept as JSON beside a table: exports, purges, requests, trees, notes.

Each object says what it is, in which format, and at which path it was put, and ends with a checksum
of all of it (`checksums`). So one that is damaged, or that belongs elsewhere, is not believed.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json

_T = TypeVar("_T", bound=msgspec.Struct)


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    format: int
    path: str
    body: msgspec.Raw
    checksum: str = checksums.BLANK


def to_stored(kind: str, version: int, path: str, body: msgspec.Struct) -> bytes:
    """Return what is put at `path`; `version` is the format of this kind's bodies."""
    envelope = _Envelope(kind, version, path, msgspec.Raw(msgspec.json.encode(body)))
    return with_checksum(msgspec.json.encode(envelope))


def of_stored(kind: str, version: int, path: str, stored: bytes, form: type[_T]) -> _T:
    """Return the body of what was put at `path`.

    Raises:
        ValueError: it is damaged, or of another kind or place.
        CorruptDataError: it is of another format.
    """
    checksums.check(stored)
    envelope = decode_json(stored, _Envelope)
    if (envelope.kind, envelope.path) != (kind, path):
        raise ValueError(f"it is {envelope.kind} and was put at {envelope.path}")
    check_format(envelope.format, version)
    return decode_json(bytes(envelope.body), form)


def with_checksum(body: bytes) -> bytes:
    """Return JSON whose last value is a blank checksum with that filled in."""
    place, digits = checksums.to_fill_in(body)
    return body[:place] + digits + body[place + len(digits) :]


def check_format(found: int, known: int) -> None:
    """Refuse a format that this release does not know.

    Raises:
        CorruptDataError: it does not.
    """
    if found != known:
        raise CorruptDataError(
            f"it is of format {found}; the one known here is {known}",
            hint="it was written by another version of Dormouse: use that one",
        )
