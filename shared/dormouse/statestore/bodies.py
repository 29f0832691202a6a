"""Where a table's deltas and snapshots lie, as two small protocols the engine is made over.

`s3` keeps both as objects of the data bucket. Everything kept is immutable and has an id that was
made for it, so that what is put again under its id is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dormouse.model.state import TableState
from dormouse.statestore.pages import Root


class Bodies(Protocol):
    """Immutable bodies of one table, by id.

    Every call may raise UnavailableError. A `put` that is not answered raises it as well: until the
    id is told to somebody, a body that may or may not be there is as good as none.
    """

    def put(self, body_id: str, body: bytes) -> None:
        """Keep a body; one that is there under this id is this one, put before."""

    def get(self, body_id: str) -> bytes:
        """Give a body. Raises NotFoundError."""

    def ids(self) -> Iterator[str]:
        """Give the ids of all bodies there are, in no particular order."""

    def delete(self, body_ids: Sequence[str]) -> None:
        """Delete bodies; one that is not there is no error."""


class Snapshots(Protocol):
    """Whole states of one table, each at one version. Calls fail as those of `Bodies` do."""

    def save(self, snapshot_id: str, state: TableState, previous: Root | None) -> Root:
        """Keep a state, `previous` being the newest there is; give what the head is to say of it.

        Nobody reads it before the head says so; if it never does, what was kept is deleted.
        """

    def load(self, root: Root) -> TableState:
        """Give the state that was saved. Raises NotFoundError."""

    def ids(self) -> Iterator[str]:
        """Give the ids of all snapshots there are, in no particular order."""

    def delete(self, snapshot_ids: Sequence[str]) -> None:
        """Delete snapshots; one that is not there is no error."""
