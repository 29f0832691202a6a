"""The stored form of a delta, as the engine knows it; each state store chooses its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dormouse.model.transactions import Entry, RestoreVersion


@dataclass(frozen=True, slots=True)
class Delta:
    """The entries of one commit, under the id which the log has of it."""

    id: str
    entries: tuple[Entry, ...]

    @property
    def restores(self) -> bool:
        """Whether it restores a version, of which there is a snapshot under its id."""
        return any(isinstance(entry.transaction, RestoreVersion) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class DeltaCodec:
    """How the entries of one delta become bytes, and bytes become entries again.

    `encode` takes the entries and the identity of the delta, which its stored form contains.
    `decode` takes the bytes, the identity that they must have, and a name of the delta for errors.
    It raises CorruptDataError for bytes that are damaged or foreign, of another delta, or from a
    later version of Dormouse. Files of deltas end in `suffix`.
    """

    encode: Callable[[Sequence[Entry], str], bytes]
    decode: Callable[[bytes, str, str], tuple[Entry, ...]]
    suffix: str


def identity_of(state_id: str, blob_id: str) -> str:
    """Return the identity of a delta among those of all tables; its checksum covers it."""
    return f"{state_id}/{blob_id}"
