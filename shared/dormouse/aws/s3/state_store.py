"""The state store that keeps deltas, segments and snapshots as Parquet objects.

They lie in the data bucket, where any reader of Parquet can open them. The log is items of
DynamoDB.
"""

from __future__ import annotations

from dormouse.statestore.delta.parquet_codec import PARQUET
from dormouse.statestore.object_store import ObjectStateStore


class S3StateStore(ObjectStateStore):
    """The engine over objects of the data bucket."""

    codec = PARQUET
