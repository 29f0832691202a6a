"""What a state says of sealed sources, as the few bytes that the footer of a snapshot keeps."""

from __future__ import annotations

import msgspec

from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.stored.decoding import decode_json, raise_corrupt


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to which version sources are in segments, and which these are."""

    sealed_to: int
    segments: tuple[SourceSegment, ...]
    adopted: tuple[SourceSegment, ...]


def encode_sealed(state: TableState) -> bytes:
    """Return the stored form."""
    return msgspec.json.encode(
        Sealed(state.sealed_to, state.source_segments, state.adopted_segments)
    )


def decode_sealed(body: bytes, where: str) -> Sealed:
    """Return what `encode_sealed` stored; `where` names its place in errors.

    Raises:
        CorruptDataError: it is damaged.
    """
    with raise_corrupt(f"{where} does not say which sources are sealed"):
        return decode_json(body, Sealed)
