"""UUIDs as people write them, and as 16 bytes."""

from __future__ import annotations

import re

_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")


def parse_uuid(text: str) -> bytes:
    """Return the bytes of a UUID written in hexadecimal digits, with hyphens or without.

    Raises:
        ValueError: it is none.
    """
    if not _FORM.fullmatch(text):
        raise ValueError("it is a UUID such as 123e4567-e89b-12d3-a456-426614174000")
    return bytes.fromhex(text.replace("-", ""))


def show_uuid(uuid: bytes) -> str:
    """Return a UUID as text, in lower case and with hyphens."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
