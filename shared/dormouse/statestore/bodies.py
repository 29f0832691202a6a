"""Where deltas, segments and snapshots of a table lie: two protocols the engine is made over.

`s3` keeps all as objects of the data bucket. Everything kept is immutable and has an id that was
made for it, so that what is put again under its id is the same. What the head does not name, nor a
page, and whose id lies below the floor, is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dormouse.model.state import TableState
from dormouse.statestore.pages import Snapshot


class Bodies(Protocol):
    """Immutable bodies of one table, by id.

    Every call may raise UnavailableError. A `put` that is not answered raises it as well: until the
    id is told to somebody, a body that may or may not be there is as good as none.
    """

    def put(self, body_id: str, body: bytes) -> None:
        """Keep a body; one that is there under this id is this one, put before."""

    def get(self, body_id: str) -> bytes:
        """Return a body. Raises NotFoundError."""

    def ids(self) -> Iterator[str]:
        """Return the ids of all bodies there are, in no particular order."""

    def delete(self, body_ids: Sequence[str]) -> None:
        """Delete bodies; one that is not there is no error."""


class Snapshots(Protocol):
    """Whole states of one table, each at one version. Calls fail as those of `Bodies` do.

    Several can be there at once: that of the newest version, older ones by which the past is read,
    and such as no head names, because their writers died or lost to others.
    """

    def save(self, snapshot_id: str, state: TableState, previous: Snapshot | None) -> Snapshot:
        """Keep a state, `previous` being the newest there is; give what the head is to say of it.

        Nobody reads it before the head says so, and it may never come to that.
        """

    def load(self, snapshot: Snapshot) -> TableState:
        """Return the state that was saved. Raises NotFoundError."""

    def ids(self) -> Iterator[str]:
        """Return the ids of all snapshots there are, in no particular order."""

    def delete(self, snapshot_ids: Sequence[str]) -> None:
        """Delete snapshots; one that is not there is no error."""
