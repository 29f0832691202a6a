"""The state store that keeps deltas and snapshots as Parquet objects of the data bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.model.state import TableState
from dormouse.ports import Clock, Ids, Storage
from dormouse.statestore.codec_snapshot import decode_snapshot, encode_snapshot
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.log import Log
from dormouse.statestore.pages import Pages, Snapshot
from dormouse.statestore.patience import WITHOUT_PAUSES, Patience
from dormouse.statestore.reading import Reader
from dormouse.stored.paths import delta_prefix, segment_prefix, snapshot_prefix

_SUFFIX = ".parquet"


class StoredBodies:
    """`bodies.Bodies` as objects below a prefix."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        """Keep bodies under ``<prefix><id>.parquet``."""
        self._storage, self._prefix = storage, prefix

    def path(self, body_id: str) -> str:
        """Return the path of a body."""
        return f"{self._prefix}{body_id}{_SUFFIX}"

    def put(self, body_id: str, body: bytes) -> None:
        """Keep a body; one that is there under this id is this one, put before."""
        path = self.path(body_id)
        try:
            self._storage.put(path, body)
        except OutcomeUnknownError as error:
            raise UnavailableError(f"{path} could not be stored: {error}") from error

    def get(self, body_id: str) -> bytes:
        """Return a body. Raises NotFoundError."""
        return self._storage.get(self.path(body_id))

    def ids(self) -> Iterator[str]:
        """Return the ids of all bodies there are."""
        for stored in self._storage.list(self._prefix):
            yield stored.path.removeprefix(self._prefix).removesuffix(_SUFFIX)

    def delete(self, body_ids: Sequence[str]) -> None:
        """Delete bodies; one that is not there is no error."""
        self._storage.delete([self.path(body_id) for body_id in body_ids])


class StoredSnapshots:
    """`bodies.Snapshots` as one object each."""

    def __init__(self, table_id: str, storage: Storage) -> None:
        """Keep the snapshots of `table_id`."""
        self._table_id = table_id
        self._bodies = StoredBodies(storage, snapshot_prefix(table_id))

    def save(self, snapshot_id: str, state: TableState, previous: Snapshot | None) -> Snapshot:
        """Keep a state, all of it: nothing is taken over from `previous`."""
        body = encode_snapshot(self._table_id, state)
        self._bodies.put(snapshot_id, body)
        return Snapshot(snapshot_id, state.version, state.time_ms, len(body))

    def load(self, snapshot: Snapshot) -> TableState:
        """Return the state that was saved. Raises NotFoundError."""
        path = self._bodies.path(snapshot.id)
        return decode_snapshot(self._table_id, self._bodies.get(snapshot.id), path)

    def ids(self) -> Iterator[str]:
        """Return the ids of all snapshots there are."""
        return self._bodies.ids()

    def delete(self, snapshot_ids: Sequence[str]) -> None:
        """Delete snapshots; one that is not there is no error."""
        self._bodies.delete(snapshot_ids)


class S3StateStore(LogStateStore):
    """The engine over objects of the data bucket."""

    def __init__(
        self,
        table_id: str,
        storage: Storage,
        pages: Pages,
        clock: Clock,
        ids: Ids,
        *,
        patience: Patience = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""
        log = Log(table_id, pages, patience)
        reader = Reader(
            log,
            deltas=StoredBodies(storage, delta_prefix(table_id)),
            segments=StoredBodies(storage, segment_prefix(table_id)),
            snapshots=StoredSnapshots(table_id, storage),
        )
        super().__init__(reader, clock, ids, options)
