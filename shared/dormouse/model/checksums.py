"""A checksum that lies within the bytes it is of, as the footer of a Parquet file has room for one.

It is of all bytes but its own digits. So a file says of itself whether it is as it was written,
wherever it was kept; and one without a checksum was not written here.
"""

from __future__ import annotations

from hashlib import blake2b

_DIGITS = 32
_MARK = b"blake2b:"
BLANK = _MARK.decode() + "0" * _DIGITS
"""What is written where the checksum comes to stand."""


def checksum_of(body: bytes) -> tuple[int, bytes]:
    """Give where the digits of the checksum are, or are to be put, and what they must be.

    Raises:
        ValueError: there is no place for them.
    """
    mark = body.rfind(_MARK)
    start = mark + len(_MARK)
    if mark < 0 or len(body) < start + _DIGITS:
        raise ValueError("it has no checksum")
    view = memoryview(body)
    digest = blake2b(view[:start], digest_size=_DIGITS // 2)
    digest.update(view[start + _DIGITS :])
    return start, digest.hexdigest().encode()


def check(body: bytes) -> None:
    """Check that bytes are those whose checksum was put among them.

    Raises:
        ValueError: they are not, or they have none.
    """
    start, digits = checksum_of(body)
    if body[start : start + len(digits)] != digits:
        raise ValueError("its checksum is not that of its bytes")
