"""The stored form of a key: bytes that sort as the keys do and need no schema to be decoded.

It follows the tuple layer of FoundationDB. A tag byte begins each part. Strings and bytes end with
00, and a 00 inside is written 00 FF. An integer is eight bytes, with the sign bit flipped so that
negative ones sort first. So ("a", 1) is 02 61 00, 03 80 00 00 00 00 00 00 01.

State, footers, requests and plans store keys in this form, as binary or in hexadecimal.
"""

from __future__ import annotations

from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import INT64_MIN, Key, KeyPart

_BYTES, _STRING, _INT = 1, 2, 3
_ONE_STRING = bytes([_STRING])


def encode_key(key: Key) -> bytes:
    """Return the stored form of `key`. Stored forms compare bytewise as the keys do."""
    out = bytearray()
    for part in key:
        if isinstance(part, int):
            out.append(_INT)
            out += (part - INT64_MIN).to_bytes(8, "big")
        else:
            out.append(_BYTES if isinstance(part, bytes) else _STRING)
            raw = part if isinstance(part, bytes) else part.encode()
            out += raw.replace(b"\0", b"\0\xff") + b"\0"
    return bytes(out)


def stored_bytes(key: Key) -> int:
    """Return the length of the stored form of `key`."""
    size_bytes = 0
    for part in key:
        if isinstance(part, int):
            size_bytes += 9
        else:
            raw = part if isinstance(part, bytes) else part.encode()
            size_bytes += len(raw) + raw.count(0) + 2
    return size_bytes


def decode_key(stored: bytes) -> Key:
    """Return the key of a stored form.

    Raises:
        CorruptDataError: `stored` was not made by `encode_key`.
    """
    parts: list[KeyPart] = []
    at = 0
    try:
        if stored[:1] == _ONE_STRING and stored.find(b"\0") == len(stored) - 1:
            return (stored[1:-1].decode(),)  # as most keys are
        while at < len(stored):
            tag, at = stored[at], at + 1
            if tag == _INT and at + 8 <= len(stored):
                parts.append(int.from_bytes(stored[at : at + 8], "big") + INT64_MIN)
                at += 8
            elif tag in (_BYTES, _STRING):
                end = _end_of_bytes(stored, at)
                raw = stored[at:end].replace(b"\0\xff", b"\0")
                parts.append(raw if tag == _BYTES else raw.decode())
                at = end + 1
            else:
                raise CorruptDataError("not a stored key")
    except (ValueError, IndexError) as error:
        raise CorruptDataError("not a stored key") from error
    return tuple(parts)


def _end_of_bytes(stored: bytes, start: int) -> int:
    end = stored.index(b"\0", start)
    while stored[end + 1 : end + 2] == b"\xff":
        end = stored.index(b"\0", end + 2)
    return end
