"""The entries of stored deltas, which the product reads one at a time."""

from __future__ import annotations

from dormouse.log.blobs import open_delta
from dormouse.state.state import Entry


def decode_delta(body: bytes, identity: str, where: str) -> tuple[Entry, ...]:
    """Return the entries of a delta. Raises CorruptDataError as `open_delta`."""
    return open_delta(body, identity, where).entries
