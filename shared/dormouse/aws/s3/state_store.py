"""The state store that keeps deltas, segments and snapshots as Parquet objects.

They lie in the data bucket, where any reader of Parquet can open them. The log is items of
DynamoDB.
"""

from __future__ import annotations

from dormouse.ports import Clock, Ids, Storage
from dormouse.retry_policy import WITHOUT_PAUSES, RetryPolicy
from dormouse.statestore.delta.parquet_codec import PARQUET
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.log.log import Log
from dormouse.statestore.log.pages import Pages
from dormouse.statestore.log.reader import Reader
from dormouse.statestore.object_blobs import ObjectBlobs
from dormouse.stored.paths import delta_prefix, segment_prefix, snapshot_prefix


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
        retry_policy: RetryPolicy = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""

        def blobs(prefix: str, kind: str) -> ObjectBlobs:
            return ObjectBlobs(storage, prefix, kind, retry_policy)

        reader = Reader(
            Log(table_id, pages, retry_policy),
            deltas=blobs(delta_prefix(table_id), "delta"),
            segments=blobs(segment_prefix(table_id), "segment"),
            snapshots=blobs(snapshot_prefix(table_id), "snapshot"),
            codec=PARQUET,
        )
        super().__init__(reader, clock, ids, options)
