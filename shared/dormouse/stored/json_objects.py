"""The stored form of JSON objects beside a table: exports, purges, requests, trees, markers.

Each object contains its kind, its format number and the path at which it was put, and ends with a
checksum of all of it (`checksums`). So an object that is damaged, or was moved, is not believed.
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


def encode_stored(kind: str, version: int, path: str, body: msgspec.Struct) -> bytes:
    """Return the bytes to put at `path`; `version` is the format number of this kind of body."""
    envelope = _Envelope(kind, version, path, msgspec.Raw(msgspec.json.encode(body)))
    return with_checksum(msgspec.json.encode(envelope))


def decode_stored(kind: str, version: int, path: str, stored: bytes, form: type[_T]) -> _T:
    """Return the body of what was put at `path`.

    Raises:
        ValueError: it is damaged, or of another kind or path.
        CorruptDataError: it has another format number.
    """
    checksums.verify(stored)
    envelope = decode_json(stored, _Envelope)
    if (envelope.kind, envelope.path) != (kind, path):
        raise ValueError(f"it is {envelope.kind} and was put at {envelope.path}")
    check_format(envelope.format, version)
    return decode_json(bytes(envelope.body), form)


def with_checksum(body: bytes) -> bytes:
    """Return JSON whose last value is `BLANK`, with the checksum in its place."""
    place, digits = checksums.compute_checksum(body)
    return body[:place] + digits + body[place + len(digits) :]


def check_format(found: int, known: int) -> None:
    """Refuse a format number that this release does not know.

    Raises:
        CorruptDataError: the numbers differ.
    """
    if found != known:
        raise CorruptDataError(
            f"it is of format {found}; the one known here is {known}",
            hint="it was written by another version of Dormouse: use that one",
        )
