"""The state store that keeps deltas, segments and snapshots as objects of the data bucket.

Segments and snapshots are Parquet, which any reader opens. The log is items of DynamoDB.
"""

from __future__ import annotations

from typing import ClassVar

from dormouse.statestore.object_store import ObjectStateStore


class S3StateStore(ObjectStateStore):
    """The engine over objects of the data bucket."""

    carries: ClassVar[bool] = True
