"""What was taken of shards, and disputes over them, as rows and columns of a snapshot.

Used by `codec`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import Dispute, DisputeReason, RowsTaken
from dormouse.statestore.snapshot.columns import StoredIds, column, integers, piece
from dormouse.statestore.snapshot.maps import StoredMap

TAKINGS = pa.list_(
    pa.struct(
        [
            ("job", pa.string()),
            ("partition", pa.string()),
            ("rows", pa.int64()),
            ("low", pa.binary()),
            ("high", pa.binary()),
        ]
    )
)
TAKEN = ("id", "takings")
DISPUTE = ("id", "reason", "time_ms", "inputs")
"""The columns of each item. The inputs of a dispute are the jobs that raised it."""


def taken_row(shard_id: str, takings: tuple[RowsTaken, ...]) -> tuple[object, ...]:
    """Return what was taken of a shard as a row."""
    return shard_id, [_taking(taking) for taking in takings]


def _taking(taking: RowsTaken) -> tuple[object, ...]:
    high = taking.range.max
    ends = encode_key(taking.range.min), None if high is None else encode_key(high)
    return taking.job, taking.partition, taking.rows, *ends


def dispute_row(shard_id: str, dispute: Dispute) -> tuple[object, ...]:
    """Return a dispute as a row."""
    return shard_id, dispute.reason.value, dispute.since_ms, dispute.jobs


def taken_columns(rows: pa.Table) -> StoredMap[tuple[RowsTaken, ...]]:
    """Return what was taken of shards, whose columns are `rows`."""
    takings = column(rows, "takings")

    def value(place: int) -> tuple[RowsTaken, ...]:
        return tuple(
            RowsTaken(taken["job"], taken["partition"], taken["rows"], _range(taken))
            for taken in takings[place].as_py()
        )

    return StoredMap(StoredIds(column(rows, "id")), value, rows)


def _range(taken: Mapping[str, bytes | None]) -> KeyRange:
    high = taken["high"]
    return KeyRange(decode_key(taken["low"] or b""), None if high is None else decode_key(high))


def dispute_columns(rows: pa.Table) -> StoredMap[Dispute]:
    """Return the disputes whose columns are `rows`.

    Raises:
        ValueError: one has a reason that is not known here.
    """
    times, jobs = integers(column(rows, "time_ms")), column(rows, "inputs")
    reasons = [DisputeReason(text) for text in piece(rows, "reason").to_pylist()]

    def value(place: int) -> Dispute:
        return Dispute(reasons[place], times[place], tuple(jobs[place].as_py()))

    return StoredMap(StoredIds(column(rows, "id")), value, rows)
