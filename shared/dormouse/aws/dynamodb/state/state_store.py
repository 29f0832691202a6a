"""The state store that keeps everything as items of DynamoDB, for many processes that commit.

It is the engine of the S3 store over three tables of DynamoDB: the log, the deltas (with the
segments), the snapshots. A process that commits fetches what others committed meanwhile: a hundred
deltas in one request, where S3 needs a hundred. What this costs is written by the kilobyte, so
deltas are packed into less than one, and snapshots are written more rarely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dormouse.aws.dynamodb.state.blobs import DynamoBlobs, Kind
from dormouse.ports.services import Clock, Ids
from dormouse.retry_policy import WITHOUT_PAUSES, RetryPolicy
from dormouse.statestore.engine import DEFAULTS, LogStateStore, Options
from dormouse.statestore.log.compaction import CompactionPolicy
from dormouse.statestore.log.log import Log
from dormouse.statestore.log.pages import Pages
from dormouse.statestore.log.reader import Reader

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

COMPACTION = CompactionPolicy(snapshot_share=5)


@dataclass(frozen=True, slots=True)
class BlobTables:
    """The DynamoDB tables that hold the blobs of all tables of an instance, and their client."""

    client: DynamoDBClient
    deltas: str
    snapshots: str


class DynamoDBStateStore(LogStateStore):
    """The engine over items of DynamoDB."""

    def __init__(
        self,
        table_id: str,
        tables: BlobTables,
        pages: Pages,
        clock: Clock,
        ids: Ids,
        *,
        retry_policy: RetryPolicy = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet."""

        def blobs(table_name: str, kind: Kind) -> DynamoBlobs:
            return DynamoBlobs(tables.client, table_name, table_id, kind, retry_policy)

        reader = Reader(
            Log(table_id, pages, retry_policy, options.name),
            deltas=blobs(tables.deltas, "delta"),
            segments=blobs(tables.deltas, "segment"),
            snapshots=blobs(tables.snapshots, "snapshot"),
        )
        super().__init__(reader, clock, ids, options, COMPACTION)
