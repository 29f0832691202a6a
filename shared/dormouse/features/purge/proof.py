"""What a proof of a purge found: the rows that match, and the objects that hold some."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemainingObject:
    """An object that holds matching rows, or may: `rows` is None if it cannot be read, and 0 if it
    only names keys of removed rows.

    `reason` says why it still exists; `until_ms` from when on it can be deleted, None if unknown.
    """

    path: str
    rows: int | None
    reason: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The result at one version: how many rows match, and which objects hold such rows."""

    version: int
    rows: int
    objects: int
    shards: int
    remains: tuple[RemainingObject, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether neither the table nor any object holds a matching row."""
        return not self.rows and not self.remains
