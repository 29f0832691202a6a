"""Ids of 32 hex digits as the 16 bytes they show, a column at a time.

Sources and jobs are named by such digests, and a table remembers a great many of them.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.statestore.snapshot.columns import Column

_DIGITS, _BYTES = 32, 16
_ALL_HEX = re.compile(rb"[0-9a-f]*")


def packed(ids: Column) -> Column | None:
    """Return a column of ids as 16 bytes each; None unless each is 32 lower-case hex digits."""
    lengths = pc.unique(pc.call_function("binary_length", [ids])).to_pylist()
    data = ids.buffers()[2]
    if lengths != [_DIGITS] or data is None:
        return None
    start = _DIGITS * ids.offset
    text = data.to_pybytes()[start : start + _DIGITS * len(ids)]
    if not _ALL_HEX.fullmatch(text):
        return None
    return pa.Array.from_buffers(
        pa.binary(_BYTES), len(ids), [None, pa.py_buffer(bytes.fromhex(text.decode()))]
    )


def unpacked(digests: Column) -> Column:
    """Return the ids which `packed` made 16 bytes each."""
    start = _BYTES * digests.offset
    stored = digests.buffers()[1] if len(digests) else None
    data = stored.to_pybytes()[start : start + _BYTES * len(digests)] if stored else b""
    offsets = pa.array(range(0, _DIGITS * len(digests) + 1, _DIGITS), pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data.hex().encode())]
    return pa.Array.from_buffers(pa.string(), len(digests), buffers)
