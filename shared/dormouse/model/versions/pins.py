"""A pin: what keeps one version of a table readable, its state and its shards.

It belongs to an owner, which has at most one pin on a table. The state of the version is kept in a
snapshot of the pin's own; the shards that it references are not deleted while there is the pin.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OwnerKind(StrEnum):
    """What a version is pinned for."""

    TAG = "tag"
    QUERY = "query"
    EXPORT = "export"
    PUBLICATION = "publication"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class PinOwner:
    """Who needs a version: for a tag, `name` is the tag."""

    kind: OwnerKind
    name: str

    @property
    def key(self) -> str:
        """The key under which the pin of this owner is stored."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned version, which was current at `time_ms` and had so many rows.

    `snapshot_id` names the snapshot of `size_bytes`. A pin that is not confirmed yet holds the
    version too, but may have come too late for it. From `expires_ms` on, the pin may be deleted; it
    holds the version until it is.
    """

    owner: PinOwner
    version: int
    time_ms: int
    generation: int
    rows: int
    snapshot_id: str
    size_bytes: int
    pinned_ms: int
    is_confirmed: bool = False
    expires_ms: int | None = None

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the pin may be deleted."""
        return self.expires_ms is not None and self.expires_ms <= now_ms
