"""A checksum that lies within the bytes it is of, as the footer of a Parquet file has room for one.

It is of all bytes but its own digits. So a file says of itself whether it is as it was written,
wherever it was kept; and one without a checksum was not written here.
"""

from __future__ import annotations

from hashlib import blake2b

_DIGITS = 32
_MARK = b"blake2b:"
BLANK = _MARK.decode() + "0" * _DIGITS
"""What is written where the checksum comes to stand, after all that may look like one."""


def to_fill_in(body: bytes) -> tuple[int, bytes]:
    """Return where the digits of the checksum are to be put, and the digits.

    Raises:
        ValueError: `BLANK` is not there, or not the last of its kind.
    """
    start = _place(body)
    if body[start : start + _DIGITS] != b"0" * _DIGITS:
        raise ValueError("there is no room for a checksum")
    return start, _digits(body, start)


def check(body: bytes) -> None:
    """Check that bytes are those whose checksum was put among them.

    Raises:
        ValueError: they are not, or they have none.
    """
    start = _place(body)
    if body[start : start + _DIGITS] != _digits(body, start):
        raise ValueError("its checksum is not that of its bytes")


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
