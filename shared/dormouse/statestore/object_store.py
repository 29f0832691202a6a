"""The state store whose deltas, segments and snapshots are objects of the table's storage."""

from __future__ import annotations

from typing import ClassVar

from dormouse.ports.services import Clock, Ids, Storage
from dormouse.retry_policy import WITHOUT_PAUSES, RetryPolicy
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.log.log import Log
from dormouse.statestore.log.pages import Pages
from dormouse.statestore.log.reader import Reader
from dormouse.statestore.object_blobs import ObjectBlobs
from dormouse.stored.paths import delta_prefix, segment_prefix, snapshot_prefix


class ObjectStateStore(LogStateStore):
    """The engine over objects below the table's prefix.

    Deltas carry those before them if a request takes longer than a few kilobytes (`carries`).
    """

    carries: ClassVar[bool] = False

    def __init__(
        self,
        table_id: str,
        storage: Storage,
        pages: Pages,
        clock: Clock,
        ids: Ids,
        *,
        retry_policy: RetryPolicy = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""

        def blobs(prefix: str, kind: str) -> ObjectBlobs:
            return ObjectBlobs(storage, prefix, kind, retry_policy)

        reader = Reader(
            Log(table_id, pages, retry_policy, options.name),
            deltas=ObjectBlobs(
                storage,
                delta_prefix(table_id),
                "delta",
                retry_policy,
                suffix=".delta",
                is_spread=True,
                fetch=options.fetch,
            ),
            segments=blobs(segment_prefix(table_id), "segment"),
            snapshots=blobs(snapshot_prefix(table_id), "snapshot"),
            carries=self.carries,
        )
        super().__init__(reader, clock, ids, options)
