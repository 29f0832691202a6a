"""Objects as lines of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_encoder = msgspec.json.Encoder()
_ACTED_UPON = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""The control characters, in UTF-8, that JSON does not escape."""


def json_lines(objects: Iterable[object]) -> bytes:
    """Return each object as one line of JSON without control characters."""
    lines = _encoder.encode_lines(objects)
    return _ACTED_UPON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), lines)
