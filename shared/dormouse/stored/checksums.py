"""A checksum that lies within the bytes it covers, such as in the footer of a Parquet file.

It covers all bytes except its own digits. So a file proves by itself that it is as it was written,
wherever it is stored, and a file without a checksum was not written by Dormouse.
"""

from hashlib import blake2b

_DIGITS = 32
_MARK = b"blake2b:"
BLANK = _MARK.decode() + "0" * _DIGITS
"""The placeholder that is written where the checksum goes, after all that may look like one."""


def compute_checksum(body: bytes) -> tuple[int, bytes]:
    """Return the position of the checksum's digits, and the digits to put there.
    Raises ValueError: `BLANK` is missing, or is not the last of its kind.
    """
    start = _place(body)
    if body[start : start + _DIGITS] != b"0" * _DIGITS:
        raise ValueError("there is no room for a checksum")
    return start, _digits(body, start)


def with_checksum(body: bytes) -> bytes:
    """Return bytes with their checksum in the place of `BLANK`. Raises as `compute_checksum`."""
    start, digits = compute_checksum(body)
    return body[:start] + digits + body[start + _DIGITS :]


def verify(body: bytes) -> None:
    """Check that bytes match the checksum they contain. Raises ValueError: not, or none."""
    start = _place(body)
    if body[start : start + _DIGITS] != _digits(body, start):
        raise ValueError("its checksum is not that of its bytes")


def renew(body: bytes) -> bytes:
    """Return bytes changed on purpose with a fresh checksum. Raises ValueError: they have none."""
    start = _place(body)
    return body[:start] + _digits(body, start) + body[start + _DIGITS :]


def _place(body: bytes) -> int:
    mark = body.rfind(_MARK)
    if mark < 0:
        raise ValueError("it has no checksum")
    return mark + len(_MARK)


def _digits(body: bytes, start: int) -> bytes:
    view = memoryview(body)
    digest = blake2b(view[:start], digest_size=_DIGITS // 2)
    digest.update(view[start + _DIGITS :])
    return digest.hexdigest().encode()


# The CRC-32 of zlib, gzip and S3: of all bytes that shards describe, and of what S3 is sent.
#
# ISA-L computes it with the processor's instructions for it, several times as fast as zlib. It has
# no wheels for some platforms; there zlib computes the same values.

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
