"""The stored form of a delta, as the engine knows it; each state store chooses its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dormouse.model.transactions import Entry


@dataclass(frozen=True, slots=True)
class DeltaCodec:
    """How the entries of one delta become bytes and again entries.

    `decode` takes, beside the bytes, what names the delta in errors. It raises CorruptDataError for
    bytes that are damaged or foreign, or from a later version of Dormouse.
    """

    encode: Callable[[Sequence[Entry]], bytes]
    decode: Callable[[bytes, str], tuple[Entry, ...]]
